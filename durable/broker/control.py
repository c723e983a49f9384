"""The operations that clients may call on a control tunnel: one method each, with checked arguments.

Every change is answered when it is on disk. Operations are idempotent: a client whose connection ended may
repeat them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from inspect import Signature, signature
from typing import Any, get_origin

import trio

from ..definition_forms import read_definition, to_plain
from ..definitions import (
    BindingDefinition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
    check_same,
)
from ..errors import InUse, Malformed, UnknownStream
from ..protocol.calls import Call
from ..routing.permissions import (
    for_bind,
    for_declare_exchange,
    for_declare_queue,
    for_declare_stream,
    for_delete,
    for_permissions,
    for_read,
    for_vhost,
)  # fmt: skip
from ..vhost import changes
from ..vhost.changes import Change
from ..vhost.registry import Registry
from .defining import apply_import, bindings_of, exported, read_packed
from .directory import DEFAULT_VHOST
from .listing import encode_listing
from .peer import Peer
from .running_vhost import RunningVhost
from .statistics import statistics_of
from .vhosts import Vhosts

OPERATIONS = frozenset({
    "declare_queue", "delete_queue", "purge_queue", "declare_exchange", "delete_exchange", "bind", "unbind",
    "declare_stream", "delete_stream", "delete_cursor", "set_permission", "clear_permission", "statistics",
    "bindings", "export_definitions", "import_definitions", "vhosts", "create_vhost", "delete_vhost",
})  # fmt: skip
"""Methods of `Control` that clients may call."""


class Control:
    """The operations of one connection on one vhost."""

    def __init__(
        self, running: RunningVhost, peer: Peer, vhosts: Vhosts,
        delete_vhost: Callable[[str], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._running, self._peer, self._vhosts = running, peer, vhosts
        self._delete_vhost = delete_vhost

    async def call(self, call: Call) -> Any:
        """Carry out a call that `check_call` has passed, and return its result. Raises DurableError if it was refused."""
        with self._peer.hide_suggestions():
            return await getattr(self, call.operation)(**call.arguments)

    @property
    def _registry(self) -> Registry:
        return self._running.vhost.registry

    async def declare_queue(self, definition: dict[str, Any]) -> None:
        wanted = read_definition(QueueDefinition, definition)
        wanted.check()
        self._peer.check(for_declare_queue(wanted))

        def change() -> Sequence[Change]:
            existing = self._registry.queues.get(wanted.name)
            if existing is not None:
                self._peer.check_own(existing)
                check_same(existing.definition, wanted)
                self._running.note_declared(existing)
                return []
            self._registry.check_free(wanted.name, wanted.kind)
            lanes = self._registry.new_lanes(wanted)
            if wanted.exclusive:
                self._peer.add_exclusive(lanes[0], self._registry.owners)
            return [[changes.QUEUE, lanes, to_plain(wanted)]]

        await self._running.change_writer.write(change)

    async def delete_queue(
        self, name: str, if_empty: bool = False, if_unused: bool = False
    ) -> int | None:
        self._peer.check(for_delete("queue", name))
        if name not in self._registry.queues and name not in self._registry.streams:
            return None
        queue = self._registry.queue(name)
        self._peer.check_own(queue)
        ready = 0

        def stays() -> bool:
            nonlocal ready
            if if_unused and len(queue.consumers):
                how = f"{len(queue.consumers)} consumers"
                raise InUse("queue", name, f"{how}; stop them first", "if_unused")
            if if_empty and queue.unsettled:
                dead = f", {queue.dead} of them to be dead-lettered" if queue.dead else ""
                how = f"{queue.unsettled} messages{dead}"
                raise InUse("queue", name, f"{how}; consume or purge them first", "if_empty")
            ready = queue.ready
            return False

        await self._running.delete_queue(queue, "the queue was deleted", stays=stays)
        return ready

    async def purge_queue(self, name: str) -> int:
        self._peer.check(for_read("queue", name))
        queue = self._registry.queue(name)
        self._peer.check_own(queue)
        return await self._running.purge(queue)

    async def declare_exchange(self, definition: dict[str, Any]) -> None:
        wanted = read_definition(ExchangeDefinition, definition)
        wanted.check()
        self._peer.check(for_declare_exchange(wanted))

        def change() -> Sequence[Change]:
            exists = self._registry.router.check_exchange(wanted)
            return [] if exists else [[changes.EXCHANGE, to_plain(wanted)]]

        await self._running.change_writer.write(change)

    async def delete_exchange(self, name: str, if_unused: bool = False) -> bool:
        self._peer.check(for_delete("exchange", name))
        router = self._registry.router
        return await self._delete(
            [changes.EXCHANGE_GONE, name], lambda: router.has_exchange(name),
            lambda: router.check_delete(name, if_unused=if_unused),
        )  # fmt: skip

    async def bind(self, definition: dict[str, Any]) -> None:
        wanted = read_definition(BindingDefinition, definition)
        wanted.check()
        self._peer.check(for_bind(wanted))

        def check() -> None:
            self._registry.router.check_bind(wanted)
            self._peer.check_destination(wanted, self._registry.queues)

        await self._change([[changes.BIND, to_plain(wanted)]], check)

    async def unbind(self, definition: dict[str, Any]) -> bool:
        wanted = read_definition(BindingDefinition, definition)
        wanted.check()
        self._peer.check(for_bind(wanted))
        return await self._delete(
            [changes.UNBIND, to_plain(wanted)],
            partial(self._registry.router.has_binding, wanted),
            partial(self._peer.check_destination, wanted, self._registry.queues),
        )

    async def declare_stream(self, definition: dict[str, Any]) -> None:
        wanted = read_definition(StreamDefinition, definition)
        wanted.check()
        self._peer.check(for_declare_stream(wanted))

        def change() -> Sequence[Change]:
            existing = self._registry.streams.get(wanted.name)
            if existing is not None:
                check_same(existing.definition, wanted)
                return []
            # In one turn: it takes no longer than `wanted.check` did.
            self._vhosts.stream_check(self._running, self._peer.cluster, [wanted]).now()
            self._registry.check_free(wanted.name, wanted.kind)
            (lane,) = self._registry.new_lanes(wanted)
            return [[changes.STREAM, lane, to_plain(wanted)]]

        await self._running.change_writer.write(change)

    async def delete_stream(self, name: str) -> bool:
        self._peer.check(for_delete("stream", name))
        if name in self._registry.queues:
            raise UnknownStream(name, hint=UnknownStream.IS_QUEUE)
        return await self._delete(
            [changes.STREAM_GONE, name], lambda: name in self._registry.streams
        )

    async def delete_cursor(self, stream: str, cursor: str) -> bool:
        """A cluster that may read the stream may also store and delete its cursors."""
        self._peer.check(for_read("stream", stream))
        found, streams = self._registry.stream(stream), self._registry.streams
        return await self._delete(
            [changes.CURSOR, stream, cursor, None],
            lambda: streams.get(stream) is found and cursor in found.cursors,
        )  # fmt: skip

    async def set_permission(self, definition: dict[str, Any]) -> None:
        wanted = read_definition(PermissionDefinition, definition)
        wanted.check()
        self._peer.check(for_permissions(wanted.cluster))
        check = partial(self._registry.permissions.check_administered, [wanted])
        await self._change(changes.permission(wanted), check)

    async def clear_permission(self, cluster: str) -> bool:
        PermissionDefinition(cluster=cluster).check()
        self._peer.check(for_permissions(cluster))
        permissions = self._registry.permissions
        return await self._delete(
            [changes.PERMISSION_GONE, cluster],
            lambda: any(one.cluster == cluster for one in permissions.definitions()),
            partial(permissions.check_administered, (), removed=cluster),
        )  # fmt: skip

    async def statistics(self) -> bytes:
        """Return the counters of everything that the caller has a permission for."""
        return await encode_listing(statistics_of(self._running, self._peer.sees))

    async def bindings(self) -> bytes:
        """Return the bindings to everything that the caller has a permission for."""
        return await encode_listing(bindings_of(self._running, self._peer.sees))

    async def export_definitions(self) -> bytes:
        return await encode_listing(exported(self._running, self._peer))

    async def import_definitions(self, definitions: bytes) -> dict[str, int]:
        self._peer.check_configures()  # Before unpacking, which may take much memory.
        stream_check = partial(self._vhosts.stream_check, self._running, self._peer.cluster)
        with self._vhosts.collector.growing() as freeze:
            # In a thread: very many definitions take seconds, and others' confirms do not wait for it.
            requested = await trio.to_thread.run_sync(
                read_packed, definitions, limiter=self._vhosts.import_limiter
            )
            new = await apply_import(self._running, self._peer, requested, stream_check)
            freeze(sum(new.values()))
        return new

    async def _change(self, wanted: Sequence[Change], check: Callable[[], object]) -> None:
        """Make changes that are valid whatever has happened before their turn, unless `check` raises then."""

        def change() -> Sequence[Change]:
            check()
            return wanted

        await self._running.change_writer.write(change)

    async def _delete(
        self, wanted: Change, exists: Callable[[], bool], check: Callable[[], object] = lambda: None
    ) -> bool:  # fmt: skip
        """Make a change that deletes something, unless `check` raises. Return whether it was there."""
        existed = False

        def change() -> Sequence[Change]:
            nonlocal existed
            existed = exists()
            if existed:
                check()
            return [wanted] if existed else []

        await self._running.change_writer.write(change)
        return existed

    async def vhosts(self) -> list[str]:
        return self._vhosts.names_for(self._peer.cluster)

    async def create_vhost(self, name: str) -> None:
        self._check_vhost(DEFAULT_VHOST, name)
        await self._vhosts.create(name)

    async def delete_vhost(self, name: str) -> bool:
        """Delete a vhost; return whether it was there. Refused for the vhost of this connection, which could
        not be answered any more."""
        self._check_vhost(DEFAULT_VHOST, name)
        if name == self._running.vhost.name and name != DEFAULT_VHOST:
            raise InUse(
                "vhost",
                name,
                "this connection uses it; delete it from a connection to another vhost",
            )
        self._vhosts.check_available(name)
        if name not in self._vhosts.names:
            return False
        self._check_vhost(name, name)
        await self._delete_vhost(name)
        return True

    def _check_vhost(self, vhost: str, name: str) -> None:
        """Check permissions in `vhost`, not in the one of this connection: full rights in one vhost
        must not give rights to others."""
        permissions = self._vhosts.get(vhost).vhost.registry.permissions
        permissions.check(self._peer.cluster, for_vhost(name))


@cache
def _signature(operation: str) -> Signature:
    return signature(getattr(Control, operation), eval_str=True)


def check_call(call: Call) -> None:
    """Check operation, names and types: before the call waits for anything, because its arguments may take much
    memory, and before it is carried out, because a TypeError from inside it would be a bug of ours.

    Raises:
        Malformed: there is no such operation, or it does not take these arguments.
    """
    if call.operation not in OPERATIONS:
        raise Malformed(f"unknown operation {call.operation!r}")
    wanted = _signature(call.operation)
    try:
        bound = wanted.bind(None, **call.arguments)
    except TypeError as error:
        raise Malformed(f"{call.operation}: {error}") from None
    bound.arguments.pop("self")
    for name, value in bound.arguments.items():
        kind = wanted.parameters[name].annotation
        kind = get_origin(kind) or kind
        if not isinstance(value, kind):
            found = f"{name} is {type(value).__name__}, not {kind.__name__}"
            raise Malformed(f"{call.operation}: {found}")
