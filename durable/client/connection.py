"""What programs hold of a broker: declare, publish, consume, read.

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
from mesh.protocol.batch import NUMBERS_END

from ..definition_checks import (
    COUNT_MAX,
    check_cluster_name,
    check_flags,
    check_key,
    check_level,
    check_name,
    check_reference,
    wait_s,
)
from ..definition_forms import read, to_plain
from ..definitions import (
    BindingDefinition,
    Definition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from ..errors import InvalidDefinition, Unconfirmed
from ..protocol.definition_bytes import pack_definitions
from ..protocol.listing import put_behind, read_listing
from ..protocol.properties import TTL_S_MAX, Properties
from .channel import Channel
from .deliveries import Deliveries
from .numbered import EPOCH, NumberedPublisher
from .publisher import Publisher
from .records import PLACES, Records
from .sending import Handed

WINDOW_BYTES = 8 << 20
Headers = Mapping[str, Any] | None


def connect(
    node: Node, *, cluster: str = "broker", vhost: str = "/", timeout: float = 30.0
) -> Connection:
    """A broker's vhost, for as long as the node lives. Connects with the first use.

    Make one and keep it: one that was used has its tunnels until then, whoever lets go of it.

    Args:
        timeout: seconds that any one answer may take, a restart of the broker included; inf: for ever.
    Raises:
        InvalidDefinition: `cluster` or `vhost` is no name, or `timeout` no time.
        TypeError: `node` is none, as `mesh.join(...)` without `async with`.
    """
    if not isinstance(node, Node):
        raise TypeError(f"node: want what `async with mesh.join(...) as node` gives, got {node!r}")
    check_cluster_name("connection", "cluster", cluster)
    check_name("connection", "vhost", vhost)
    return Connection(Channel(node, cluster, vhost, wait_s("connection", "timeout", timeout)))


class Connection:
    """Made by `connect`. Its calls raise BrokerLost when there is no answer in time, AccessRefused,
    and what each of them says."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._publisher: Publisher | None = None

    def __repr__(self) -> str:
        return f"<Connection to {self._channel.cluster} vhost {self._channel.vhost!r}>"

    async def declare_queue(self, name: str, **settings: Any) -> None:
        """Make a queue, or make sure that it is as asked.

        Args:
            settings: fields of QueueDefinition.
        Raises:
            DefinitionConflict: it is there and differs; the error says in what.
            InvalidDefinition: a setting is wrong, or there is none of this name; which one was meant.
        """
        await self._declare("declare_queue", read(QueueDefinition, {"name": name, **settings}))

    async def delete_queue(
        self, name: str, *, if_empty: bool = False, if_unused: bool = False
    ) -> int | None:
        """The number of messages it had; None: it was not there. Raises InUse; UnknownQueue: it is a stream."""
        check_key("queue", "name", name)
        check_flags("queue", if_empty=if_empty, if_unused=if_unused)
        ready: int | None = await self._channel.call(
            "delete_queue", name=name, if_empty=if_empty, if_unused=if_unused
        )
        return ready

    async def purge_queue(self, name: str) -> int:
        """Drop what is ready; how many it was. Raises UnknownQueue; StoreFull: all of it stays, or some."""
        check_key("queue", "name", name)
        return int(await self._channel.call("purge_queue", name=name))

    async def declare_exchange(self, name: str, **settings: Any) -> None:
        """As `declare_queue`. Args: fields of ExchangeDefinition."""
        await self._declare(
            "declare_exchange", read(ExchangeDefinition, {"name": name, **settings})
        )

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> bool:
        """Nothing happens when it is not there; whether it was. Raises InUse."""
        check_key("exchange", "name", name)
        check_flags("exchange", if_unused=if_unused)
        return await self._end("delete_exchange", name=name, if_unused=if_unused)

    async def bind(
        self, exchange: str, destination: str, key: str = "", *, to_exchange: bool = False,
        arguments: Headers = None,
    ) -> None:  # fmt: skip
        """Route from an exchange to a queue, a stream, or another exchange.

        Raises:
            UnknownExchange, UnknownQueue: one of them is not there.
            ExclusiveQueue: it is another connection's.
        """
        await self._declare("bind", _binding(exchange, destination, key, to_exchange, arguments))

    async def unbind(
        self, exchange: str, destination: str, key: str = "", *, to_exchange: bool = False,
        arguments: Headers = None,
    ) -> bool:  # fmt: skip
        """Nothing happens when there is no such binding; whether there was one. Raises ExclusiveQueue."""
        binding = _binding(exchange, destination, key, to_exchange, arguments)
        binding.check()
        return await self._end("unbind", definition=to_plain(binding))

    async def declare_stream(
        self, name: str, *, patterns: str | Sequence[str] = (), **settings: Any
    ) -> None:
        """Keep what is published on mesh topics, or to the stream itself. As `declare_queue`.

        Args:
            settings: fields of StreamDefinition.
        Raises:
            TooManyPatterns: the broker captures as many as it may.
        """
        given = {"name": name, "patterns": _several(patterns), **settings}
        await self._declare("declare_stream", read(StreamDefinition, given))

    async def delete_stream(self, name: str) -> bool:
        """Nothing happens when it is not there; whether it was. Raises UnknownStream: it is a queue."""
        check_key("stream", "name", name)
        return await self._end("delete_stream", name=name)

    async def delete_cursor(self, stream: str, cursor: str) -> bool:
        """Forget how far a named reader came. Nothing happens when it is not there; whether it was. A
        reader that still stores it puts it back. Raises UnknownStream."""
        check_key("stream", "name", stream)
        check_name("reader", "cursor", cursor)
        return await self._end("delete_cursor", stream=stream, cursor=cursor)

    async def set_permission(
        self, cluster: str, *, configure: str = "", write: str = "", read: str = ""
    ) -> None:
        """What a cluster may do in this vhost: patterns that whole names must match.

        Raises NoAdministrator: nobody could change it any more. The first is for who administers.
        """
        definition = PermissionDefinition(
            cluster=cluster, configure=configure, write=write, read=read
        )
        await self._declare("set_permission", definition)

    async def clear_permission(self, cluster: str) -> bool:
        """Whether anything had been said of it."""
        PermissionDefinition(cluster=cluster).check()
        return await self._end("clear_permission", cluster=cluster)

    async def vhosts(self) -> list[str]:
        """Names of all vhosts of the broker."""
        names: list[str] = await self._channel.call("vhosts")
        return names

    async def create_vhost(self, name: str) -> None:
        """A log, queues and permissions of its own; `connect(node, vhost=name)` leads there.

        Nothing happens when it is there. Raises InvalidDefinition, VhostUnavailable; StoreFull: there
        is no space for it, not now; StoreError: it cannot be made.
        """
        check_key("vhost", "name", name)
        await self._channel.call("create_vhost", name=name)

    async def delete_vhost(self, name: str) -> bool:
        """With everything in it, and with the connections to it; whether it was there.

        Raises:
            InUse: it is this one, or `/`.
            StoreFailed: nobody gets at it, but it is on the disk still; the broker's next start has it.
        """
        check_key("vhost", "name", name)
        return await self._end("delete_vhost", name=name)

    async def statistics(self) -> dict[str, Any]:
        """Per queue, stream and for the vhost: plain numbers, units in their names.

        Of hundreds, not of one moment: what is declared or deleted meanwhile may be there or not.
        """
        return await self._listed("statistics")

    async def bindings(self) -> list[dict[str, Any]]:
        """Fields of BindingDefinition of each, unlike in an export those to queues in memory, too. All
        of one moment."""
        found: list[dict[str, Any]] = (await self._listed("bindings"))["bindings"]
        return found

    async def export_definitions(self) -> dict[str, Any]:
        """All that is declared and lasts, at one moment, as a dict that JSON can hold: see
        definition_forms.py.

        Raises:
            AccessRefused: this cluster may not configure all of it.
        """
        return await self._listed("export_definitions")

    async def import_definitions(self, definitions: Mapping[str, Any]) -> dict[str, int]:
        """Declare all of it or nothing; how many of each kind were not there before.

        Raises:
            InvalidDefinition, DefinitionConflict, UnknownQueue, UnknownExchange, BuiltIn,
            TooManyQueues, TooManyPatterns, AccessRefused, ExclusiveQueue, NoAdministrator: what is wrong with
                which entry; nothing was declared.
            TooLarge, RecordTooLarge: all of it is more than the broker takes, or its log; nor was anything.
        """
        given = dict(definitions) if isinstance(definitions, Mapping) else definitions
        packed = pack_definitions(given)
        new: dict[str, int] = await self._channel.call("import_definitions", definitions=packed)
        return new

    async def publish(
        self, exchange: str, key: str, payload: bytes, *, headers: Headers = None,
        priority: int = 0, ttl: float | None = None, mandatory: bool = False,
        cc: str | Sequence[str] = (), bcc: str | Sequence[str] = (), timeout: float | None = None,
    ) -> None:  # fmt: skip
        """Publish one message; returns when it is on disk, once, in every queue it is routed to.

        Args:
            timeout: seconds to wait for that; default: the connection's; inf: for ever.
        Raises:
            Unroutable, QueueFull, MemoryFull, UnknownExchange, AccessRefused, StoreFull: it was not
                stored.
            Unconfirmed: unknown. After a timeout it goes on being sent for as long as this node
                lives, under its own sequence, so that it is stored once; published again it may
                be stored twice. A note tells what was refused for certain.
        """
        properties = _properties(exchange, priority, ttl, mandatory, cc, bcc)
        await self._publish(exchange, key, [payload], headers, properties, timeout)

    async def publish_many(
        self, exchange: str, key: str, payloads: Sequence[bytes], *, headers: Headers = None,
        priority: int = 0, ttl: float | None = None, mandatory: bool = False,
        timeout: float | None = None,
    ) -> None:  # fmt: skip
        """Publish messages with one key; returns when all are on disk. Raises as `publish`, and
        `timeout` is for all of them together."""
        properties = _properties(exchange, priority, ttl, mandatory, (), ())
        await self._publish(exchange, key, payloads, headers, properties, timeout)

    def publisher(
        self, name: str | None = None, *, epoch: int | None = None,
        window_bytes: int = WINDOW_BYTES,
    ) -> Publisher:  # fmt: skip
        """Pipelined publishing: `async with broker.publisher() as p: await p.send(...)`.

        Leaving the block flushes: it raises Unconfirmed where the broker says nothing for as long as
        one answer may take, and what is refused.

        Args:
            name: a publisher that comes back under its name, with a later epoch, replaces itself.
            epoch: default: a later one than the broker has seen of that name, when this connects first.
            window_bytes: what may be unconfirmed; `send` waits for room.
        Raises:
            InvalidDefinition: one of these cannot be. So raises what publishes where messages of that name
                and epoch were sent before: these would pass for those. See `numbered_publisher`.
        """
        return Publisher(self._channel, name, epoch, window_bytes)

    def numbered_publisher(
        self, name: str, *, epoch: int = EPOCH, window_bytes: int = WINDOW_BYTES
    ) -> NumberedPublisher:
        """For what may have to be done again: `name` and sequences say what has been stored before.

        Args:
            epoch: a later one begins anew; what came under an earlier one is forgotten.
        Raises:
            InvalidDefinition: one of these cannot be.
        """
        return NumberedPublisher(self._channel, name, epoch, window_bytes)

    def consume(
        self, queue: str, *, prefetch: int = 1000, prefetch_bytes: int = 16 << 20,
        priority: int = 0, exclusive: bool = False, no_ack: bool = False, peek: bool = False,
    ) -> Deliveries:  # fmt: skip
        """Messages of a queue: `async with broker.consume("jobs") as deliveries`.

        When the block has ended, what was not settled is ready again, for whoever comes next. What of
        it had been taken from `deliveries` counts as returned; where the connection broke, all of it.

        Args:
            prefetch: messages that may be unsettled at a time; 0: no limit.
            prefetch_bytes: none is sent any more while those have so many bytes.
            priority: others get nothing while a consumer of higher priority takes more.
            exclusive: nobody else may consume.
            no_ack: messages are settled as they are sent: lost when this program dies.
            peek: to look only: nothing that is unsettled when the block ends counts as returned, and no queue
                goes because this consumer was its last.
        Raises:
            InvalidDefinition: one of these cannot be.
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
            raise InvalidDefinition("consumer", "peek", peek, "false with no_ack, which settles")
        settings = {
            "prefetch": prefetch, "prefetch_bytes": prefetch_bytes, "priority": priority,
            "exclusive": exclusive, "no_ack": no_ack, "peek": peek,
        }  # fmt: skip
        return Deliveries(self._channel, queue, settings)

    def read(
        self, stream: str, *, start: str | int | datetime = "next", cursor: str = ""
    ) -> Records:
        """Messages of a stream: `async with broker.read("audit", start="first") as records`.

        Args:
            start: `first`, `last`, `next`, an offset, or a datetime; one without a zone is local.
            cursor: a name under which the broker keeps how far it was read, see `Records.store`;
                when it knows one, `start` does not matter.
        Raises:
            ValueError: `start` is none of these.
            InvalidDefinition: `stream` or `cursor` is no name.
        """
        check_key("reader", "stream", stream)
        check_reference("reader", "cursor", cursor)
        if not (
            isinstance(start, datetime)
            or start in PLACES
            or (type(start) is int and start in range(NUMBERS_END))
        ):
            raise ValueError(
                f"start is {start!r}, want first, last, next, an offset of 0 or more, or a datetime"
            )
        return Records(self._channel, stream, start, cursor)

    async def _listed(self, operation: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for some in read_listing(await self._channel.call(operation)):
            put_behind(found, some)
            await trio.lowlevel.checkpoint()  # Others of this node have their turn, too.
        return found

    async def _declare(self, operation: str, definition: Definition) -> None:
        definition.check()
        await self._channel.call(operation, definition=to_plain(definition))

    async def _end(self, operation: str, **arguments: Any) -> bool:
        """Whether what it ends was there. Asked again after a broken connection it may not be any more."""
        return bool(await self._channel.call(operation, **arguments))

    async def _publish(
        self, exchange: str, key: str, payloads: Sequence[bytes], headers: Headers,
        properties: Properties, timeout: float | None,
    ) -> None:  # fmt: skip
        timeout_s = self._channel.timeout_s
        if timeout is not None:
            timeout_s = wait_s("message", "timeout", timeout)
        publisher, handed = self._own_publisher(), Handed()
        given = publisher.given(exchange, key, payloads, headers, properties)
        if publisher.hand_over_nowait(given, handed):
            confirmed = await publisher.wait_confirmed(handed, timeout_s)
        else:
            confirmed = False
            with self._channel.within(timeout_s):
                await publisher.hand_over(given, handed)
                confirmed = await publisher.wait_confirmed(handed, inf)
        if confirmed:
            return
        unsent = len(given.payloads) - handed.count
        unconfirmed = Unconfirmed(
            publisher.unknown(handed), self._channel.silence(timeout_s), unsent
        )
        handed.note_refused(unconfirmed)
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
        # What is no mapping, or has names that are none, is told by its check.
        arguments=tuple(sorted(arguments.items(), key=_name_of))
        if isinstance(arguments, Mapping) else () if arguments is None else arguments,
    )  # fmt: skip


def _name_of(argument: tuple[Any, Any]) -> str:
    return str(argument[0])


def _properties(
    exchange: str, priority: int, ttl: float | None, mandatory: bool, cc: str | Sequence[str],
    bcc: str | Sequence[str],
) -> Properties:  # fmt: skip
    ttl_us = None
    if ttl is not None:
        if not isinstance(ttl, int | float) or not 0 <= ttl <= TTL_S_MAX:  # NaN is not, either.
            allowed = f"a number of seconds of 0 to {TTL_S_MAX}, or None"
            raise InvalidDefinition("message", "ttl", ttl, allowed)
        ttl_us = int(ttl * 1e6)
    return Properties(exchange, priority, ttl_us, mandatory, _several(cc), _several(bcc))


def _several(names: Any) -> tuple[str, ...]:
    """One text is one name: as letters it would go elsewhere, and nobody would be told.

    What is neither text nor several is left to the check of where it goes."""
    if isinstance(names, str):
        return (names,)
    return tuple(names) if isinstance(names, Iterable) else names
