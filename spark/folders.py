"""Folders that are named after topics: `topic=orders.eu`, and what does not fit into a file's name.

A topic of 255 bytes is legal, and a file system takes 255 bytes for `topic=` and all that is escaped in it.
"""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

FOLDER_BYTES_MAX = 255 - len("topic=")
NUL = "\0"
"""No file's name has one."""
NO_TOPIC = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a topic, as Spark and pyarrow name it."""
FRONT_CHARACTERS, HASH_DIGITS = 19, 16
"""Of a topic that is too long: as many as fit if each takes 4 bytes, and each byte is escaped."""
FULL_TOPIC = "full_topic"
"""The column that has topics as they are."""


def folder(topic: str) -> str:
    """The topic itself wherever it fits and can be a folder's name."""
    fits = len(quote(topic, safe="")) <= FOLDER_BYTES_MAX
    if fits and NUL not in topic and topic != NO_TOPIC:
        return topic
    digits = sha256(topic.encode()).hexdigest()
    return f"{topic.replace(NUL, '')[:FRONT_CHARACTERS]}~{digits[:HASH_DIGITS]}"
