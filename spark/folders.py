"""Names of folders after topics, `topic=orders.eu`, also for topics that cannot be part of a file name.

A topic may have 255 bytes; a file system allows 255 bytes for `topic=` and the topic with its escapes.
"""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

FOLDER_BYTES_MAX = 255 - len("topic=")
NUL = "\0"
"""Not allowed in file names."""
NO_TOPIC = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a topic, by the convention of Spark and pyarrow."""
FRONT_CHARACTERS, HASH_DIGITS = 19, 16
"""What is kept of a topic that is too long: as many characters as fit if each has 4 bytes, all escaped; then a hash."""
FULL_TOPIC = "full_topic"
"""The column with the unshortened topics."""


def folder(topic: str) -> str:
    """Return the topic if it fits and can be a folder's name; otherwise its beginning and a hash."""
    fits = len(quote(topic, safe="")) <= FOLDER_BYTES_MAX
    if fits and NUL not in topic and topic != NO_TOPIC:
        return topic
    digits = sha256(topic.encode()).hexdigest()
    return f"{topic.replace(NUL, '')[:FRONT_CHARACTERS]}~{digits[:HASH_DIGITS]}"
