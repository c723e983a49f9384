"""The client API of a broker: declare, publish, consume, read.

broker = durable.connect(node, cluster="broker")
await broker.declare_queue("jobs")
await broker.publish("", "jobs", b"...")          # returns when it is on disk
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any

import trio

from mesh.node import Node

from ..definition_checks import (
    COUNT_MAX,
    check_cluster_name,
    check_flags,
    check_key,
    check_level,
    check_name,
    check_reference,
    checked_wait_s,
)
from ..definition_forms import read_definition, to_plain
from ..definitions import (
    ANYTHING,
    BindingDefinition,
    Definition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from ..errors import InvalidDefinition, Unconfirmed
from ..protocol.definition_bytes import pack_definitions
from ..protocol.listing import merge_listing, read_listing
from ..protocol.properties import TTL_S_MAX, Properties
from .channel import Channel
from .deliveries import Deliveries
from .numbered_publisher import DEFAULT_EPOCH, NumberedPublisher
from .pending_confirms import PendingConfirms
from .publisher import Publisher
from .records import Records, check_start

WINDOW_BYTES = 8 << 20
Headers = Mapping[str, Any] | None


def connect(
    node: Node, *, cluster: str = "broker", vhost: str = "/", timeout: float = 30.0
) -> Connection:
    """Return a connection to a broker's vhost, for as long as the node lives. It connects at its first use.

    Make one and keep it: once used, its tunnels stay open until the node ends, even if nobody refers to it.

    Args:
        timeout: seconds that any one answer may take, including a restart of the broker; inf: no limit.
    Raises:
        InvalidDefinition: `cluster` or `vhost` is not a valid name, or `timeout` not a valid time.
        TypeError: `node` is not a node, such as `mesh.join(...)` without `async with`.
    """
    if not isinstance(node, Node):
        raise TypeError(f"node: want a node from `async with mesh.join(...) as node`, got {node!r}")
    check_cluster_name("connection", "cluster", cluster)
    check_name("connection", "vhost", vhost)
    return Connection(
        Channel(node, cluster, vhost, checked_wait_s("connection", "timeout", timeout))
    )


class Connection:
    """A broker's vhost, as a client uses it. Made by `connect`. All its calls raise BrokerLost if there is no
    answer in time, and AccessRefused, besides the errors that each one names."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._publisher: Publisher | None = None

    def __repr__(self) -> str:
        return f"<Connection to {self._channel.cluster} vhost {self._channel.vhost!r}>"

    async def declare_queue(self, name: str, **settings: Any) -> None:
        """Create a queue, or check that the existing one is as asked.

        Args:
            settings: fields of QueueDefinition.
        Raises:
            DefinitionConflict: it exists and differs; the error says in which fields.
            InvalidDefinition: a setting is wrong or unknown; the error suggests the closest name.
        """
        await self._declare(
            "declare_queue", read_definition(QueueDefinition, {"name": name, **settings})
        )

    async def delete_queue(
        self, name: str, *, if_empty: bool = False, if_unused: bool = False
    ) -> int | None:
        """Return how many ready messages it had; None if there was none. Raises InUse; UnknownQueue: it is a stream."""
        check_key("queue", "name", name)
        check_flags("queue", if_empty=if_empty, if_unused=if_unused)
        ready: int | None = await self._channel.call(
            "delete_queue", name=name, if_empty=if_empty, if_unused=if_unused
        )
        return ready

    async def purge_queue(self, name: str) -> int:
        """Drop all ready messages, and return how many. Raises UnknownQueue; StoreFull: some or all of them stay."""
        check_key("queue", "name", name)
        return int(await self._channel.call("purge_queue", name=name))

    async def declare_exchange(self, name: str, **settings: Any) -> None:
        """Create an exchange, as `declare_queue` does. Args: fields of ExchangeDefinition."""
        await self._declare(
            "declare_exchange", read_definition(ExchangeDefinition, {"name": name, **settings})
        )

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> bool:
        """Delete an exchange if it exists, and return whether it did. Raises InUse."""
        check_key("exchange", "name", name)
        check_flags("exchange", if_unused=if_unused)
        return await self._delete("delete_exchange", name=name, if_unused=if_unused)

    async def bind(
        self, exchange: str, destination: str, key: str = "", *, to_exchange: bool = False,
        arguments: Headers = None,
    ) -> None:  # fmt: skip
        """Route from an exchange to a queue, a stream, or another exchange.

        Raises:
            UnknownExchange, UnknownQueue: one of them does not exist.
            ExclusiveQueue: it belongs to another connection.
        """
        await self._declare("bind", _binding(exchange, destination, key, to_exchange, arguments))

    async def unbind(
        self, exchange: str, destination: str, key: str = "", *, to_exchange: bool = False,
        arguments: Headers = None,
    ) -> bool:  # fmt: skip
        """Delete a binding if it exists, and return whether it did. Raises ExclusiveQueue."""
        binding = _binding(exchange, destination, key, to_exchange, arguments)
        binding.check()
        return await self._delete("unbind", definition=to_plain(binding))

    async def declare_stream(
        self, name: str, *, patterns: str | Sequence[str] = (), **settings: Any
    ) -> None:
        """Create a stream, as `declare_queue` does: it stores what is published to it, or on mesh topics.

        Args:
            settings: fields of StreamDefinition.
        Raises:
            TooManyPatterns: the broker captures as many as it may.
        """
        given = {"name": name, "patterns": _as_names(patterns), **settings}
        await self._declare("declare_stream", read_definition(StreamDefinition, given))

    async def delete_stream(self, name: str) -> bool:
        """Delete a stream if it exists, and return whether it did. Raises UnknownStream: it is a queue."""
        check_key("stream", "name", name)
        return await self._delete("delete_stream", name=name)

    async def delete_cursor(self, stream: str, cursor: str) -> bool:
        """Forget how far a named reader has read, and return whether that was known. A reader that still stores
        this cursor creates it again. Raises UnknownStream."""
        check_key("stream", "name", stream)
        check_name("reader", "cursor", cursor)
        return await self._delete("delete_cursor", stream=stream, cursor=cursor)

    async def set_permission(
        self, cluster: str, *, configure: str = "", write: str = "", read: str = "", capture: str = "",
    ) -> None:  # fmt: skip
        """Set what a cluster may do in this vhost: regular expressions that have to match whole names.

        Args:
            capture: has to match the whole text of each pattern that the cluster declares a stream with, in this vhost and in `/`.
        Raises:
            NoAdministrator: nobody could change permissions any more; the first one must be an administrator's.
            InvalidDefinition: also from an earlier broker, which knows no `capture`, unless it is ".*".
        """
        definition = PermissionDefinition(
            cluster=cluster, configure=configure, write=write, read=read, capture=capture
        )
        definition.check()
        plain = to_plain(definition)
        if capture == ANYTHING:  # To an earlier broker, too, this is what it means to leave it out.
            del plain["capture"]
        await self._channel.call("set_permission", definition=plain)

    async def clear_permission(self, cluster: str) -> bool:
        """Remove a cluster's permission, and return whether it had one."""
        PermissionDefinition(cluster=cluster).check()
        return await self._delete("clear_permission", cluster=cluster)

    async def vhosts(self) -> list[str]:
        """Return the names of all vhosts of the broker."""
        names: list[str] = await self._channel.call("vhosts")
        return names

    async def create_vhost(self, name: str) -> None:
        """Create a vhost with its own log, queues and permissions; `connect(node, vhost=name)` leads there.

        Does nothing if it exists. Raises InvalidDefinition, VhostUnavailable; StoreFull: there is not
        enough space at present; StoreError: it cannot be made.
        """
        check_key("vhost", "name", name)
        await self._channel.call("create_vhost", name=name)

    async def delete_vhost(self, name: str) -> bool:
        """Delete a vhost, everything in it, and its connections. Return whether it existed.

        Raises:
            InUse: it is this connection's vhost, or `/`.
            StoreFailed: it is closed, but still on the disk, and will be opened at the broker's next start.
        """
        check_key("vhost", "name", name)
        return await self._delete("delete_vhost", name=name)

    async def statistics(self) -> dict[str, Any]:
        """Return the counters of each queue and stream, and of the vhost: plain numbers, with units in their names.

        They are read some hundreds at a time, not at one moment: a queue that is declared or deleted meanwhile
        may be in it or not.
        """
        return await self._call_listing("statistics")

    async def bindings(self) -> list[dict[str, Any]]:
        """Return the fields of BindingDefinition of each binding, all of one moment. Unlike an export, this
        includes bindings to queues in memory."""
        found: list[dict[str, Any]] = (await self._call_listing("bindings"))["bindings"]
        return found

    async def export_definitions(self) -> dict[str, Any]:
        """Return all durable definitions, of one moment, as a dict that JSON can hold: see definition_forms.py.

        Raises:
            AccessRefused: this cluster may not configure all of it.
        """
        return await self._call_listing("export_definitions")

    async def import_definitions(self, definitions: Mapping[str, Any]) -> dict[str, int]:
        """Declare all of it or nothing. Return how many of each kind are new. `definitions` must not change until then.

        Raises:
            InvalidDefinition, DefinitionConflict, UnknownQueue, UnknownExchange, BuiltIn,
            TooManyQueues, TooManyPatterns, AccessRefused, ExclusiveQueue, NoAdministrator: an entry is
                wrong, and the error names it; nothing was declared.
            TooLarge, RecordTooLarge: it is more than the broker takes, or its log; nothing was declared.
        """
        given = dict(definitions) if isinstance(definitions, Mapping) else definitions
        self._channel.check_thread()
        # In a thread: very many definitions take most of a second, and this node's heartbeats do not wait for it.
        packed = await trio.to_thread.run_sync(pack_definitions, given, abandon_on_cancel=True)
        new: dict[str, int] = await self._channel.call("import_definitions", definitions=packed)
        return new

    async def publish(
        self, exchange: str, key: str, payload: bytes, *, headers: Headers = None,
        priority: int = 0, ttl: float | None = None, mandatory: bool = False,
        cc: str | Sequence[str] = (), bcc: str | Sequence[str] = (), timeout: float | None = None,
    ) -> None:  # fmt: skip
        """Publish one message. Returns when it is on disk, once, in every queue that it is routed to.

        Args:
            timeout: seconds to wait for that; default: the connection's; inf: no limit.
        Raises:
            Unroutable, QueueFull, MemoryFull, UnknownExchange, AccessRefused, StoreFull: it was not
                stored.
            Unconfirmed: the outcome is unknown. After a timeout the message is still sent for as long as
                this node lives, under its sequence, so that it is stored once; if you publish it again, it
                may be stored twice. A note tells what was certainly refused.
        """
        properties = _properties(exchange, priority, ttl, mandatory, cc, bcc)
        await self._publish(exchange, key, [payload], headers, properties, timeout)

    async def publish_many(
        self, exchange: str, key: str, payloads: Sequence[bytes], *, headers: Headers = None,
        priority: int = 0, ttl: float | None = None, mandatory: bool = False,
        timeout: float | None = None,
    ) -> None:  # fmt: skip
        """Publish messages with one key. Returns when all are on disk. Raises as `publish`; `timeout` is
        for all of them together."""
        properties = _properties(exchange, priority, ttl, mandatory, (), ())
        await self._publish(exchange, key, payloads, headers, properties, timeout)

    def publisher(
        self, name: str | None = None, *, epoch: int | None = None,
        window_bytes: int = WINDOW_BYTES,
    ) -> Publisher:  # fmt: skip
        """Publish without waiting for each confirm: `async with broker.publisher() as p: await p.send(...)`.

        Leaving the block flushes, which raises what was refused, and Unconfirmed if the broker is silent
        for as long as one answer may take.

        Args:
            name: opened again under its name with a later epoch, a publisher replaces the earlier one.
            epoch: default: one later than any the broker has seen of that name, when this first connects.
            window_bytes: how much may be unconfirmed; `send` waits for room.
        Raises:
            InvalidDefinition: an argument is invalid. Publishing raises it, too, if messages were sent under this
                name and epoch before: new ones would be dropped as duplicates. See `numbered_publisher`.
        """
        return Publisher(self._channel, name, epoch, window_bytes)

    def numbered_publisher(
        self, name: str, *, epoch: int = DEFAULT_EPOCH, window_bytes: int = WINDOW_BYTES
    ) -> NumberedPublisher:
        """Publish messages that may have to be sent again: `name` and sequences tell which are stored already.

        Args:
            epoch: a later one starts anew; what was sent under an earlier one no longer counts.
        Raises:
            InvalidDefinition: an argument is invalid.
        """
        return NumberedPublisher(self._channel, name, epoch, window_bytes)

    def consume(
        self, queue: str, *, prefetch: int = 1000, prefetch_bytes: int = 16 << 20,
        priority: int = 0, exclusive: bool = False, no_ack: bool = False, peek: bool = False,
    ) -> Deliveries:  # fmt: skip
        """Consume messages of a queue: `async with broker.consume("jobs") as deliveries`.

        When the block ends, unsettled messages are ready again, for any consumer. Those that had been taken
        from `deliveries` count as returned; if the connection broke, all of them do.

        Args:
            prefetch: how many messages may be unsettled at a time; 0: no limit.
            prefetch_bytes: no more are sent while the unsettled ones have this many bytes; 0: no limit.
            priority: others get nothing while a consumer of higher priority takes more.
            exclusive: nobody else may consume.
            no_ack: messages are settled as they are sent, and lost if this program dies.
            peek: only look: messages unsettled at the end of the block do not count as returned, and no queue
                is deleted because this consumer was its last.
        Raises:
            InvalidDefinition: an argument is invalid.
        Raises, on entering the block:
            UnknownQueue, QueueInUse.
        """
        check_key("consumer", "queue", queue)
        for name, value in (("prefetch", prefetch), ("prefetch_bytes", prefetch_bytes)):
            check_level("consumer", name, value, COUNT_MAX)
        if type(priority) is not int or abs(priority) > COUNT_MAX:
            raise InvalidDefinition("consumer", "priority", priority, "an integer of 64 bits")
        check_flags("consumer", exclusive=exclusive, no_ack=no_ack, peek=peek)
        if peek and no_ack:
            raise InvalidDefinition(
                "consumer", "peek", peek, "false with no_ack, which settles messages"
            )
        settings = {
            "prefetch": prefetch, "prefetch_bytes": prefetch_bytes, "priority": priority,
            "exclusive": exclusive, "no_ack": no_ack, "peek": peek,
        }  # fmt: skip
        return Deliveries(self._channel, queue, settings)

    def read(
        self, stream: str, *, start: str | int | datetime = "next", cursor: str = ""
    ) -> Records:
        """Read messages of a stream: `async with broker.read("audit", start="first") as records`.

        Args:
            start: `first`, `last`, `next`, an offset, or a datetime; one without a zone is local time. The default of
                `mesh-broker read` is `first`.
            cursor: a name under which the broker keeps how far it was read, see `Records.store`; if the
                broker knows it, `start` is ignored.

        Raises:
            ValueError: `start` is none of these.
            InvalidDefinition: `stream` or `cursor` is not a valid name.
        """
        check_key("reader", "stream", stream)
        check_reference("reader", "cursor", cursor)
        check_start(start)
        return Records(self._channel, stream, start, cursor)

    async def _call_listing(self, operation: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for some in read_listing(await self._channel.call(operation)):
            merge_listing(found, some)
            await trio.lowlevel.checkpoint()  # Lets this node's other tasks run meanwhile.
        return found

    async def _declare(self, operation: str, definition: Definition) -> None:
        definition.check()
        await self._channel.call(operation, definition=to_plain(definition))

    async def _delete(self, operation: str, **arguments: Any) -> bool:
        """Return whether it existed. A call repeated after a lost connection may find it deleted by the first."""
        return bool(await self._channel.call(operation, **arguments))

    async def _publish(
        self, exchange: str, key: str, payloads: Sequence[bytes], headers: Headers,
        properties: Properties, timeout: float | None,
    ) -> None:  # fmt: skip
        timeout_s = self._channel.timeout_s
        if timeout is not None:
            timeout_s = checked_wait_s("message", "timeout", timeout)
        publisher, pending = self._own_publisher(), PendingConfirms()
        given = publisher.given(exchange, key, payloads, headers, properties)
        if publisher.hand_over_nowait(given, pending):
            confirmed = await publisher.wait_confirmed(pending, timeout_s)
        else:
            confirmed = False
            with self._channel.within(timeout_s):
                await publisher.hand_over(given, pending)
                confirmed = await publisher.wait_confirmed(pending, inf)
        if confirmed:
            return
        unknown, unsent = publisher.unknown(pending), len(given.payloads) - pending.count
        if not unknown and not unsent:  # The last confirm came in the turn in which the time ended.
            await publisher.wait_confirmed(pending, inf)
            return
        unconfirmed = Unconfirmed(unknown, self._channel.timeout_reason(timeout_s), unsent)
        pending.note_refused(unconfirmed)
        raise unconfirmed

    def _own_publisher(self) -> Publisher:
        if self._publisher is None or self._publisher.ended:
            publisher = self.publisher()
            publisher.start()
            self._publisher = publisher
        return self._publisher


def _binding(
    exchange: str, destination: str, key: str, to_exchange: bool, arguments: Headers
) -> BindingDefinition:
    return BindingDefinition(
        exchange=exchange, destination=destination, key=key, to_exchange=to_exchange,
        # Arguments that are not a mapping, or whose names are not text, are reported by `check`.
        arguments=tuple(sorted(arguments.items(), key=_argument_name))
        if isinstance(arguments, Mapping) else () if arguments is None else arguments,
    )  # fmt: skip


def _argument_name(argument: tuple[Any, Any]) -> str:
    return str(argument[0])


def _properties(
    exchange: str, priority: int, ttl: float | None, mandatory: bool, cc: str | Sequence[str],
    bcc: str | Sequence[str],
) -> Properties:  # fmt: skip
    ttl_us = None
    if ttl is not None:
        if not isinstance(ttl, int | float) or not 0 <= ttl <= TTL_S_MAX:  # Refuses NaN, too.
            allowed = f"a number of seconds of 0 to {TTL_S_MAX}, or None"
            raise InvalidDefinition("message", "ttl", ttl, allowed)
        ttl_us = int(ttl * 1e6)
    return Properties(exchange, priority, ttl_us, mandatory, _as_names(cc), _as_names(bcc))


def _as_names(names: Any) -> tuple[str, ...]:
    """Return the names as a tuple. One text is one name: split into letters it would silently go elsewhere.

    A value that is not iterable, or a dict, is left to the check of the field it is for."""
    if type(names) is tuple:  # As it is by default, for each message.
        return names
    if isinstance(names, str):
        return (names,)
    several = isinstance(names, Iterable) and not isinstance(names, Mapping)
    return tuple(names) if several else names
