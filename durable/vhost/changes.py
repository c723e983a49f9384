"""Changes to what is declared in a vhost: values that stand in the log and are applied, live and at
recovery, by the same code.

Each is a msgpack list, a word and its fields:

    ["queue", [lane ids], {...}]     ["queue gone", name]      ["exchange", {...}]   ["exchange gone", name]
    ["stream", lane id, {...}]       ["stream gone", name]     ["bind", {...}]       ["unbind", {...}]
    ["permission", {...}]            ["permission gone", cluster]
    ["cursor", stream, name, offset or None, told]             ["snapshot", ...]   and so on, see snapshot.py

The maps are definitions, with the names of durable/definitions.py. `told`, how many missing messages readers
with that cursor know of, comes in a change of its own behind one without it: software that does not know it
passes over the second one, and has the cursor where it is. It is left out where it is 0.
"""

from __future__ import annotations

from typing import Any

QUEUE, QUEUE_GONE = "queue", "queue gone"
EXCHANGE, EXCHANGE_GONE = "exchange", "exchange gone"
STREAM, STREAM_GONE = "stream", "stream gone"
BIND, UNBIND = "bind", "unbind"
PERMISSION, PERMISSION_GONE = "permission", "permission gone"
CURSOR = "cursor"
SNAPSHOT, SNAPSHOT_END = "snapshot", "snapshot end"
PUBLISHERS, LANES, RETURNS, GAPS = "publishers", "lanes", "returns", "gaps"
"""Of snapshots only."""

Change = list[Any]


def cursor(stream: str, name: str, offset: int, told: int) -> list[Change]:
    """The changes that put it there."""
    plain = [CURSOR, stream, name, offset]
    return [plain, [*plain, told]] if told else [plain]


def opposite(change: Change) -> Change:
    """What takes it back, if it is something that is declared."""
    word, *fields = change
    if word == CURSOR:
        return [CURSOR, fields[0], fields[1], None]
    if word == BIND:
        return [UNBIND, *fields]
    gone, name = {
        QUEUE: (QUEUE_GONE, "name"), EXCHANGE: (EXCHANGE_GONE, "name"),
        STREAM: (STREAM_GONE, "name"), PERMISSION: (PERMISSION_GONE, "cluster"),
    }[word]  # fmt: skip
    return [gone, fields[-1][name]]
