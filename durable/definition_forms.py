"""Definitions as plain values, for the log (msgpack) and for JSON; export and import of a whole vhost.

    {"version": 1, "vhost": "/", "exchanges": [...], "queues": [...], "streams": [...],
     "bindings": [...], "permissions": [...]}

Each entry has the fields of its definition under their names, patterns as a list, arguments as a dict.
Every field is written, so changing a default does not change what was declared. When reading, a field
with a default may be absent; an unknown field is an error, because ignoring it would ignore a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, TypeVar

from .definition_checks import NAME, check_name
from .definitions import (
    BUILT_IN,
    BindingDefinition,
    Definition,
    Definitions,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
    check_bindable,
    check_built_in,
    check_same,
    sorted_arguments,
)
from .errors import (
    DefinitionConflict,
    InvalidDefinition,
    UnknownExchange,
    UnknownQueue,
    nearest,
)
from .turns import some_at_once

VERSION = 1
CLASSES: dict[str, type[Definition]] = {
    one.kind: one
    for one in (
        ExchangeDefinition, QueueDefinition, StreamDefinition, BindingDefinition,
        PermissionDefinition,
    )
}  # fmt: skip
FIELDS = {kind: tuple(one.name for one in fields(cls)) for kind, cls in CLASSES.items()}
_VALUES = {kind: attrgetter(*names) for kind, names in FIELDS.items()}
REQUIRED = {
    kind: tuple(one.name for one in fields(cls) if one.default is MISSING)
    for kind, cls in CLASSES.items()
}
GROUPS = {f"{kind}s": kind for kind in CLASSES}
"""Names of the fields of Definitions, and their kinds, in the order in which they can be applied."""


def to_plain(definition: Definition) -> dict[str, Any]:
    """Return the definition as a dict of values that JSON and msgpack can hold."""
    kind = definition.kind
    plain = dict(zip(FIELDS[kind], _VALUES[kind](definition), strict=True))
    if isinstance(definition, StreamDefinition):
        plain["patterns"] = list(definition.patterns)
    elif isinstance(definition, BindingDefinition):
        plain["arguments"] = dict(definition.arguments)
    return plain


D = TypeVar("D", bound=Definition)


def read_definition(definition_type: type[D], plain: Any) -> D:
    """Like `from_plain`, for the kind of definition that `definition_type` is."""
    value = from_plain(definition_type.kind, plain)
    assert isinstance(value, definition_type), f"a {definition_type.kind} is made of one"
    return value


def from_plain(kind: str, plain: Any) -> Definition:
    """Return the definition that `to_plain` was given. Its values are not checked: call `check()` for that.

    Patterns given as one text are one pattern: `tuple()` would silently split it into its letters.

    Raises:
        InvalidDefinition: no such kind, not a dict, or a field that is unknown or missing.
    """
    definition_type = CLASSES.get(kind)
    if definition_type is None:
        raise InvalidDefinition("definition", "kind", kind, f"one of {', '.join(CLASSES)}")
    _check_fields(kind, plain, FIELDS[kind])
    for name in REQUIRED[kind]:
        if name not in plain:
            raise InvalidDefinition(kind, name, None, "a value, but it is missing")
    values = dict(plain)
    patterns, arguments = values.get("patterns"), values.get("arguments")
    if isinstance(patterns, str | list):
        values["patterns"] = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if isinstance(arguments, dict) and all(isinstance(name, str) for name in arguments):
        values["arguments"] = sorted_arguments(arguments)
    return definition_type(**values)


def export_definitions(definitions: Definitions, vhost: str) -> dict[str, Any]:
    """Return the definitions of one vhost as a dict that JSON can hold."""
    groups = {group: [to_plain(one) for one in getattr(definitions, group)] for group in GROUPS}
    return {"version": VERSION, "vhost": vhost, **groups}


def read_definitions(plain: Any) -> tuple[str, Definitions]:
    """Return the vhost and its definitions; each entry is checked by itself, not against the others.

    Raises:
        InvalidDefinition: not what `export_definitions` returns; says which entry, and why.
    """
    _check_fields("definitions", plain, ["version", "vhost", *GROUPS])
    for name, allowed in (("version", str(VERSION)), ("vhost", NAME)):
        if name not in plain:
            raise InvalidDefinition("definitions", name, None, f"{allowed}, but it is missing")
    version, vhost = plain["version"], plain["vhost"]
    if type(version) is not int or version != VERSION:
        raise InvalidDefinition("definitions", "version", version, str(VERSION))
    check_name("definitions", "vhost", vhost)
    groups: dict[str, Any] = {}
    for group, kind in GROUPS.items():
        entries = plain.get(group, [])
        if not isinstance(entries, list):
            raise InvalidDefinition("definitions", group, entries, "a list")
        groups[group] = tuple(_entries(group, kind, entries))
    return vhost, Definitions(**groups)


def check_consistent(
    definitions: Definitions, existing: Definitions | None = None
) -> Iterator[None]:
    """Check whether all definitions, already checked one by one, can be declared in a vhost that has
    `existing`. Yields where other tasks may run.

    Raises:
        InvalidDefinition: something is there twice.
        DefinitionConflict: something exists with other settings, or a stream has the name of a queue or a queue
            that of a stream.
        UnknownQueue, UnknownExchange: an end of a binding does not exist.
        BuiltIn: a binding of the default exchange, or a built-in exchange with other settings.
    """
    present = existing or Definitions()
    for exchanges in some_at_once(definitions.exchanges):
        for exchange in exchanges:
            check_built_in(exchange)
        yield
    for group in ("exchanges", "queues", "streams"):
        yield from _check_same(getattr(definitions, group), getattr(present, group))
    destinations: tuple[Any, ...] = (*definitions.queues, *definitions.streams)
    yield from _check_once("queue or stream", "name", destinations, lambda one: one.name)
    yield from _check_once("exchange", "name", definitions.exchanges, lambda one: one.name)
    yield from _check_once(
        "permission", "cluster", definitions.permissions, lambda one: one.cluster
    )
    yield from _check_once("binding", "identity", definitions.bindings, lambda one: one.identity)
    yield from _check_kinds(definitions.queues, present.streams, "stream")
    yield from _check_kinds(definitions.streams, present.queues, "queue")
    names = {one.name for one in (*present.exchanges, *definitions.exchanges)} | set(BUILT_IN)
    queues = {one.name for one in (*present.queues, *present.streams, *destinations)}
    yield
    for bindings in some_at_once(definitions.bindings):
        for binding in bindings:
            _check_ends(binding, names, queues)
        yield


def _entries(group: str, kind: str, entries: list[Any]) -> Iterator[Definition]:
    for index, entry in enumerate(entries):
        try:
            definition = from_plain(kind, entry)
            definition.check()
            yield definition
        except InvalidDefinition as error:
            raise error.at(f"{group}[{index}]") from error


def _check_fields(kind: str, plain: Any, known: Sequence[str]) -> None:
    if not isinstance(plain, Mapping):
        raise InvalidDefinition(kind, "it", plain, f"fields {', '.join(known)}")
    for name in plain:
        if name not in known:
            near = nearest(name, known) if isinstance(name, str) else ""
            hint = f"; did you mean {near}?" if near else ""
            allowed = f"one of {', '.join(known)}{hint}"
            raise InvalidDefinition(kind, "a field's name", name, allowed)


def _check_same(requested: Sequence[Any], existing: Iterable[Any]) -> Iterator[None]:
    named = {one.name: one for one in existing}
    yield
    for some in some_at_once(requested):
        for one in some:
            was = named.get(one.name)
            if was is not None:
                check_same(was, one)
        yield


def _check_once(
    kind: str, field: str, entries: Sequence[Any], key: Callable[[Any], Hashable]
) -> Iterator[None]:
    seen: set[Hashable] = set()
    for some in some_at_once(entries):
        for one in some:
            if key(one) in seen:
                raise InvalidDefinition(kind, field, key(one), "each once")
            seen.add(key(one))
        yield


def _check_kinds(requested: Sequence[Any], others: Iterable[Any], kind: str) -> Iterator[None]:
    """Raises DefinitionConflict if one of `others`, which exist and are of `kind`, has a requested name."""
    taken = {one.name for one in others}
    yield
    for some in some_at_once(requested):
        for one in some:
            if one.name in taken:
                raise DefinitionConflict.of_kinds(one.name, kind, one.kind)
        yield


def _check_ends(binding: BindingDefinition, exchanges: set[str], queues: set[str]) -> None:
    """Raises an error unless both ends exist and can be bound."""
    check_bindable(binding)
    if binding.exchange not in exchanges:
        raise UnknownExchange(binding.exchange, exchanges)
    if not binding.to_exchange and binding.destination not in queues:
        raise UnknownQueue.as_destination(binding.destination, queues, exchanges)
    if binding.to_exchange and binding.destination not in exchanges:
        raise UnknownExchange(binding.destination, exchanges)
