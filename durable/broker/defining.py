"""A whole vhost's definitions out and in: an import is checked in full, then it is one record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..definition_forms import (
    GROUPS,
    check_together,
    export_definitions,
    read_definitions,
    to_plain,
)
from ..definitions import (
    BindingDefinition,
    Definition,
    Definitions,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from ..errors import InvalidDefinition
from ..protocol.definition_bytes import unpack_definitions
from ..routing.permissions import (
    Need,
    for_bind,
    for_declare_exchange,
    for_declare_queue,
    for_declare_stream,
    for_delete,
    for_permissions,
)  # fmt: skip
from ..vhost import changes
from ..vhost.changes import Change
from ..vhost.registry import Registry
from .hosted import Hosted
from .listing import some_at_once
from .peer import Peer

WORDS = {
    ExchangeDefinition.kind: changes.EXCHANGE,
    BindingDefinition.kind: changes.BIND,
    PermissionDefinition.kind: changes.PERMISSION,
}

Asked = tuple[str, Definitions]
"""A vhost, and what is to be in it."""


def exported(hosted: Hosted, peer: Peer) -> Iterator[dict[str, Any]]:
    """For `listed`: what is declared in the first turn, and lasts. Queues in memory or of one connection
    are left out, as in the log.

    Raises:
        AccessRefused: the caller may not configure all of it.
    """
    there = _declared(hosted.vhost.registry)
    yield export_definitions(Definitions(), hosted.vhost.name)
    transient: set[str] = set()
    for group in GROUPS:  # Queues come before what is bound to them.
        for some in some_at_once(getattr(there, group)):
            lasting = [one for one in some if _lasts(one, transient)]
            for one in lasting:
                peer.check(_for_export(one))
            yield {group: [to_plain(one) for one in lasting]}


def _lasts(definition: Definition, transient: set[str]) -> bool:
    """
    Args:
        transient: names of the queues that do not, added to.
    """
    if isinstance(definition, QueueDefinition):
        if definition.transient:
            transient.add(definition.name)
        return not definition.transient
    if isinstance(definition, BindingDefinition):
        return definition.to_exchange or definition.destination not in transient
    return True


def _for_export(definition: Definition) -> Iterable[Need]:
    if isinstance(definition, BindingDefinition):
        return ()
    if isinstance(definition, PermissionDefinition):
        return for_permissions(definition.cluster)
    return for_delete(definition.kind, definition.name)


def bindings_of(hosted: Hosted, sees: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    """For `listed`: all there are in the first turn, those to queues in memory included.

    Args:
        sees: whether who asks is to know of a destination.
    """
    _, there = hosted.vhost.registry.router.definitions()
    yield {"bindings": []}
    for some in some_at_once(there):
        yield {"bindings": [to_plain(one) for one in some if sees(one.destination)]}


def read_packed(packed: bytes) -> Asked:
    """The vhost, and what is to be declared in it. Touches nothing else, so any thread may.

    Raises:
        Malformed, InvalidDefinition: it is not what `pack_definitions` gives.
    """
    return read_definitions(unpack_definitions(packed))


async def take_in(
    hosted: Hosted, peer: Peer, asked: Asked,
    check_patterns: Callable[[Iterable[StreamDefinition]], None],
) -> dict[str, int]:  # fmt: skip
    """Declare all of it, or nothing; how many of each kind are new.

    Args:
        check_patterns: raises TooManyPatterns: the broker cannot capture for these streams as well.
    Raises:
        InvalidDefinition, DefinitionConflict, UnknownQueue, UnknownExchange, BuiltIn, TooManyQueues,
        TooManyPatterns, AccessRefused, ExclusiveQueue, NoAdministrator, RecordTooLarge: nothing was declared.
    """
    new: Counter[str] = Counter()

    def wanted() -> list[Change]:
        missing = _missing(hosted, peer, asked)
        check_patterns(one for one in missing if isinstance(one, StreamDefinition))
        said = [one for one in missing if isinstance(one, PermissionDefinition)]
        if said:
            hosted.vhost.registry.permissions.check_administered(said)
        new.clear()
        new.update(one.kind for one in missing)
        return [_declaring(hosted.vhost.registry, one) for one in missing]

    await hosted.change(wanted)
    return dict(new)


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
        peer.check(for_permissions(permission.cluster))


def _missing(hosted: Hosted, peer: Peer, wanted: Asked) -> list[Definition]:
    """What of it is not there yet, in an order in which it can be declared. Raises as `take_in`."""
    registry = hosted.vhost.registry
    there = _declared(registry)
    vhost, asked = wanted
    if vhost != hosted.vhost.name:
        raise InvalidDefinition("definitions", "vhost", vhost, repr(hosted.vhost.name))
    _check(asked, peer)  # Before it is compared: who may not declare it is not told what is there.
    check_together(asked, there)
    names = registry.queues.keys() | registry.streams.keys()
    both: tuple[QueueDefinition | StreamDefinition, ...] = (*asked.queues, *asked.streams)
    members = [one for one in both if one.name not in names]
    registry.check_room(len(members))
    bound = {one.identity for one in there.bindings}
    bindings = [one for one in asked.bindings if one.identity not in bound]
    for binding in bindings:
        peer.check_destination(binding, registry.queues)
    return [
        *(one for one in asked.exchanges if not registry.router.has_exchange(one.name)),
        *members,
        *bindings,
        *(one for one in asked.permissions if one not in there.permissions),
    ]


def _declaring(registry: Registry, definition: Definition) -> Change:
    """The change that declares it."""
    plain = to_plain(definition)
    if isinstance(definition, QueueDefinition):
        return [changes.QUEUE, registry.new_lanes(definition), plain]
    if isinstance(definition, StreamDefinition):
        return [changes.STREAM, *registry.new_lanes(definition), plain]
    return [WORDS[definition.kind], plain]
