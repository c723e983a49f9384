"""Changes to what is declared in a vhost: values that are logged, and applied by the same code live and
at recovery.

Each is a msgpack list, a word and its fields:

    ["queue", [lane ids], {...}]     ["queue gone", name]      ["exchange", {...}]   ["exchange gone", name]
    ["stream", lane id, {...}]       ["stream gone", name]     ["bind", {...}]       ["unbind", {...}]
    ["permission", {...}]            ["permission gone", cluster]                    ["permission with capture", {...}]
    ["cursor", stream, name, offset or None, reported]         ["snapshot", ...]   and so on, see snapshot.py

The maps are definitions, with the field names of durable/definitions.py. `reported` is how many missing
messages the readers with that cursor know of; it is left out if it is 0. A cursor with `reported` is logged as
a second change behind one without it: a release that does not know `reported` skips the second one, and still
has the right offset.

A permission whose `capture` is not ".*" is logged as two changes as well. A release that does not know `capture`
could refuse no pattern, so the first change, which is for such a release, allows to configure nothing but
permissions: a cluster that may make a vhost could declare any stream in it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..definition_forms import read_definition, to_plain
from ..definitions import ANYTHING, BindingDefinition, PermissionDefinition
from ..routing.permissions import narrowed_to_permissions

QUEUE, QUEUE_GONE = "queue", "queue gone"
EXCHANGE, EXCHANGE_GONE = "exchange", "exchange gone"
STREAM, STREAM_GONE = "stream", "stream gone"
BIND, UNBIND = "bind", "unbind"
PERMISSION, PERMISSION_GONE = "permission", "permission gone"
PERMISSION_WITH_CAPTURE = "permission with capture"
CURSOR = "cursor"
SNAPSHOT, SNAPSHOT_END = "snapshot", "snapshot end"
PUBLISHERS, LANES, RETURNS, GAPS = "publishers", "lanes", "returns", "gaps"
"""These occur in snapshots only."""

Change = list[Any]


def cursor(stream: str, name: str, offset: int, reported: int) -> list[Change]:
    """Return the changes that set a cursor."""
    plain = [CURSOR, stream, name, offset]
    return [plain, [*plain, reported]] if reported else [plain]


def permission(definition: PermissionDefinition) -> list[Change]:
    """Return the changes that set a cluster's permission."""
    plain = to_plain(definition)
    earlier = {name: value for name, value in plain.items() if name != "capture"}
    if definition.capture == ANYTHING:  # As earlier releases wrote it, and meant it.
        return [[PERMISSION, earlier]]
    earlier["configure"] = narrowed_to_permissions(definition.configure)
    return [[PERMISSION, earlier], [PERMISSION_WITH_CAPTURE, plain]]


def opposite(change: Change) -> Change:
    """Return the change that undoes `change`, which declares something."""
    word, *fields = change
    if word == CURSOR:
        return [CURSOR, fields[0], fields[1], None]
    if word == BIND:
        return [UNBIND, *fields]
    gone, name = {
        QUEUE: (QUEUE_GONE, "name"), EXCHANGE: (EXCHANGE_GONE, "name"),
        STREAM: (STREAM_GONE, "name"), PERMISSION: (PERMISSION_GONE, "cluster"),
        PERMISSION_WITH_CAPTURE: (PERMISSION_GONE, "cluster"),
    }[word]  # fmt: skip
    return [gone, fields[-1][name]]


def identity(change: Change) -> Hashable:
    """Return a key that is equal for changes that declare the same thing, whatever its settings."""
    word, *fields = change
    if word == BIND:
        return word, read_definition(BindingDefinition, fields[0]).identity
    if word == CURSOR:
        return word, fields[0], fields[1]
    if word in (QUEUE, STREAM):
        lanes = fields[0] if isinstance(fields[0], list) else [fields[0]]
        return word, fields[1]["name"], tuple(lanes)
    if word == PERMISSION_WITH_CAPTURE:
        word = PERMISSION
    return word, fields[0].get("name"), fields[0].get("cluster")
