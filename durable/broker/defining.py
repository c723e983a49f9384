"""Export and import of a whole vhost's definitions. An import is checked completely, then logged as one
record."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from ..definition_forms import (
    GROUPS,
    check_consistent,
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
from ..errors import AccessRefused, InvalidDefinition
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
from ..turns import some_at_once
from ..vhost.addition import Addition, build_addition
from ..vhost.registry import Registry
from .listing import run_steps
from .peer import Peer
from .running_vhost import RunningVhost
from .stream_check import StreamCheck

Import = tuple[str, Definitions]
"""The name of a vhost, and what is to be declared in it."""


def exported(running: RunningVhost, peer: Peer) -> Iterator[dict[str, Any]]:
    """Yield what is declared in the vhost when this begins, for `encode_listing`. Memory queues and exclusive queues
    are left out, as in the log.

    Raises:
        AccessRefused: the caller may not configure all of it.
    """
    declared = _declared(running.vhost.registry)
    yield export_definitions(Definitions(), running.vhost.name)
    transient: set[str] = set()
    for group in GROUPS:  # Queues come before bindings to them.
        for some in some_at_once(getattr(declared, group)):
            persistent = [one for one in some if _is_persistent(one, transient)]
            for one in persistent:
                _check_export(peer, one)
            yield {group: [to_plain(one) for one in persistent]}


def _check_export(peer: Peer, definition: Definition) -> None:
    """Raises AccessRefused, which contains only names that the caller may know of."""
    try:
        peer.check(_for_export(definition))
    except AccessRefused as error:
        if peer.sees(error.name):
            raise
        raise AccessRefused(error.cluster, error.what, "everything to be exported", "") from None


def _is_persistent(definition: Definition, transient: set[str]) -> bool:
    """Whether a definition outlasts the broker.

    Args:
        transient: names of queues that do not; added to here.
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


def bindings_of(running: RunningVhost, sees: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    """Yield all bindings there are when this begins, for `encode_listing`, including those to memory queues.

    Args:
        sees: whether the caller may know of a destination.
    """
    _, declared = running.vhost.registry.router.definitions()
    yield {"bindings": []}
    for some in some_at_once(declared):
        yield {"bindings": [to_plain(one) for one in some if sees(one.destination)]}


def read_packed(packed: bytes) -> Import:
    """Return the vhost, and what is to be declared in it. Accesses nothing else, so it may run in any thread.

    Raises:
        Malformed, InvalidDefinition: this is not what `pack_definitions` returns.
    """
    return read_definitions(unpack_definitions(packed))


async def apply_import(
    running: RunningVhost, peer: Peer, requested: Import,
    stream_check: Callable[[Iterable[StreamDefinition]], StreamCheck],
) -> dict[str, int]:  # fmt: skip
    """Declare everything or nothing; return the number of new definitions of each kind. Nothing else can be
    declared meanwhile, and everything becomes visible at once.

    Args:
        stream_check: returns the check of streams that are new.
    Raises:
        InvalidDefinition, DefinitionConflict, UnknownQueue, UnknownExchange, BuiltIn, TooManyQueues,
            TooManyPatterns, AccessRefused, ExclusiveQueue, NoAdministrator, RecordTooLarge: nothing was
            declared.
    """
    registry = running.vhost.registry
    addition: Addition | None = None
    async with running.change_writer.gate.exclusive():
        new = await run_steps(_missing(running, peer, requested))
        if new.permissions:
            registry.permissions.check_administered(new.permissions)
        counts = {kind: len(getattr(new, group)) for group, kind in GROUPS.items()}
        if any(counts.values()):
            check = stream_check(new.streams)
            await run_steps(check.steps())
            # Referenced until the end: freeing it takes about as long as applying it.
            addition = await run_steps(build_addition(registry, new))
            position = await running.change_writer.write_addition(addition, check.now)
        else:  # What exists already may not be on disk yet.
            position = running.log.end - 1
        await run_steps(_note_declared(running, requested[1].queues))
    await running.log.wait_durable(position)
    return {kind: count for kind, count in counts.items() if count}


def _note_declared(
    running: RunningVhost, queues: Iterable[QueueDefinition]
) -> Generator[None, None, None]:
    for some in some_at_once(queues):
        for one in some:
            running.note_declared(running.vhost.registry.queue(one.name))
        yield


def _declared(registry: Registry) -> Definitions:
    exchanges, bindings = registry.router.definitions()
    return Definitions(
        queues=tuple(one.definition for one in registry.queues.values()), exchanges=exchanges,
        bindings=bindings, streams=tuple(one.definition for one in registry.streams.values()),
        permissions=registry.permissions.definitions(),
    )  # fmt: skip


def _check(requested: Definitions, peer: Peer) -> Iterator[None]:
    for group in GROUPS:
        for some in some_at_once(getattr(requested, group)):
            for one in some:
                if isinstance(one, QueueDefinition) and one.exclusive:
                    allowed = (
                        "False in an import: an exclusive queue would end with this connection"
                    )
                    where = f"queue {one.name!r}"
                    raise InvalidDefinition(one.kind, "exclusive", True, allowed, where)
                peer.check(_for_import(one))
            yield


def _for_import(definition: Definition) -> Iterable[Need]:
    match definition:
        case QueueDefinition():
            return for_declare_queue(definition)
        case ExchangeDefinition():
            return for_declare_exchange(definition)
        case StreamDefinition():
            return for_declare_stream(definition)
        case BindingDefinition():
            return for_bind(definition)
        case PermissionDefinition():
            return for_permissions(definition.cluster)


def _missing(
    running: RunningVhost, peer: Peer, wanted: Import
) -> Generator[None, None, Definitions]:
    """Return the definitions that do not exist yet. Raises what `apply_import` raises."""
    registry = running.vhost.registry
    vhost, requested = wanted
    if vhost != running.vhost.name:
        raise InvalidDefinition("definitions", "vhost", vhost, repr(running.vhost.name))
    # Before comparing: a caller that may not declare something is not told whether it exists.
    yield from _check(requested, peer)
    existing = _declared(registry)
    yield
    yield from check_consistent(requested, existing)
    names = registry.queues.keys() | registry.streams.keys()
    queues = tuple(one for one in requested.queues if one.name not in names)
    streams = tuple(one for one in requested.streams if one.name not in names)
    registry.check_room(len(queues) + len(streams))
    yield
    bindings: list[BindingDefinition] = []
    for some in some_at_once(requested.bindings):
        for binding in some:
            if not registry.router.has_binding(binding):
                peer.check_destination(binding, registry.queues)
                bindings.append(binding)
        yield
    router, permissions = registry.router, set(existing.permissions)
    return Definitions(
        exchanges=tuple(one for one in requested.exchanges if not router.has_exchange(one.name)),
        queues=queues, streams=streams, bindings=tuple(bindings),
        permissions=tuple(one for one in requested.permissions if one not in permissions),
    )  # fmt: skip
