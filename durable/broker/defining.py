"""A whole vhost's definitions out and in: an import is checked in full, then it is one record."""

from __future__ import annotations

from typing import Any

from ..definition_forms import export_definitions, import_definitions, to_plain
from ..definitions import (
    Definition,
    Definitions,
    ExchangeDefinition,
    QueueDefinition,
    StreamDefinition,
)
from ..errors import InvalidDefinition
from ..routing.permissions import (
    for_bind,
    for_declare_exchange,
    for_declare_queue,
    for_declare_stream,
    for_delete,
)  # fmt: skip
from ..vhost import changes
from ..vhost.changes import Change
from ..vhost.registry import Registry
from .hosted import Hosted
from .peer import Peer

Named = QueueDefinition | ExchangeDefinition | StreamDefinition


def exported(hosted: Hosted, peer: Peer) -> dict[str, Any]:
    """What is declared and lasts: queues in memory or of one connection are left out, as in the log.

    Raises:
        AccessRefused: the caller may not configure all of it.
    """
    registry = hosted.vhost.registry
    there = _declared(registry)
    lasting = Definitions(
        queues=tuple(one for one in there.queues if not one.transient), exchanges=there.exchanges,
        bindings=tuple(one for one in there.bindings if not registry.is_transient_binding(one)),
        streams=there.streams, permissions=there.permissions,
    )  # fmt: skip
    named: tuple[Named, ...] = (*lasting.queues, *lasting.exchanges, *lasting.streams)
    for one in named:
        peer.check(for_delete(one.kind, one.name))
    for permission in lasting.permissions:
        peer.check(for_delete("permissions of", permission.cluster))
    return export_definitions(lasting, hosted.vhost.name)


async def take_in(hosted: Hosted, peer: Peer, plain: Any) -> dict[str, int]:
    """Declare all of it, or nothing; how many of each kind are new.

    Raises:
        InvalidDefinition, DefinitionConflict, UnknownQueue, UnknownExchange, BuiltIn, AccessRefused:
            nothing was declared.
    """
    registry = hosted.vhost.registry
    vhost, asked = import_definitions(plain, _declared(registry))
    if vhost != hosted.vhost.name:
        raise InvalidDefinition("definitions", "vhost", vhost, repr(hosted.vhost.name))
    _check(asked, peer)
    lasting, transient, new = _changes(registry, asked)
    if lasting:
        await hosted.change(lambda: lasting)
    if transient:
        await hosted.change(lambda: transient, transient=True)
    if new.get(StreamDefinition.kind):
        hosted.streams_changed()
    return new


def _declared(registry: Registry) -> Definitions:
    exchanges, bindings = registry.router.definitions()
    return Definitions(
        queues=tuple(one.definition for one in registry.queues.values()), exchanges=exchanges,
        bindings=bindings, streams=tuple(one.definition for one in registry.streams.values()),
        permissions=registry.permissions.definitions(),
    )  # fmt: skip


def _check(asked: Definitions, peer: Peer) -> None:
    for queue in asked.queues:
        if queue.exclusive:
            allowed = "False in an import: it would be this connection's, and end with it"
            raise InvalidDefinition(queue.kind, "exclusive", True, allowed, f"queue {queue.name!r}")
        peer.check(for_declare_queue(queue))
    for exchange in asked.exchanges:
        peer.check(for_declare_exchange(exchange))
    for stream in asked.streams:
        peer.check(for_declare_stream(stream))
    for binding in asked.bindings:
        peer.check(for_bind(binding))
    for permission in asked.permissions:
        peer.check(for_delete("permissions of", permission.cluster))


def _changes(
    registry: Registry, asked: Definitions
) -> tuple[list[Change], list[Change], dict[str, int]]:
    """What is not there yet: for the log, for memory, and how many of each kind."""
    there = _declared(registry)
    bound = {one.identity for one in there.bindings}
    names = registry.queues.keys() | registry.streams.keys()
    in_memory = {one.name for one in (*there.queues, *asked.queues) if one.transient}
    lasting: list[Change] = []
    transient: list[Change] = []
    new: dict[str, int] = {}

    def add(one: Definition, change: Change, to: list[Change] = lasting) -> None:
        to.append(change)
        new[one.kind] = new.get(one.kind, 0) + 1

    for exchange in asked.exchanges:
        if not registry.router.has_exchange(exchange.name):
            add(exchange, [changes.EXCHANGE, to_plain(exchange)])
    for queue in asked.queues:
        if queue.name not in names:
            change = [changes.QUEUE, registry.new_lanes(queue), to_plain(queue)]
            add(queue, change, transient if queue.transient else lasting)
    for stream in asked.streams:
        if stream.name not in names:
            (lane,) = registry.new_lanes(stream)
            add(stream, [changes.STREAM, lane, to_plain(stream)])
    for binding in asked.bindings:
        if binding.identity not in bound:
            to_memory = not binding.to_exchange and binding.destination in in_memory
            change = [changes.BIND, to_plain(binding)]
            add(binding, change, transient if to_memory else lasting)
    for permission in asked.permissions:
        if permission not in there.permissions:
            add(permission, [changes.PERMISSION, to_plain(permission)])
    return lasting, transient, new
