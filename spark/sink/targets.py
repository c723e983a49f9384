"""Where messages go: topics of the mesh, or a broker. Both get slices of `Messages`, in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import trio

import durable
import mesh
from durable.client.connection import Connection
from durable.client.numbered_publisher import NumberedPublisher
from durable.errors import BrokerLost
from durable.protocol.properties import Properties

from .errors import Unreachable
from .messages import Address, Messages
from .numbering import Ints
from .options import QUEUES, TOPICS, SinkOptions
from .report import Counts

PUBLISHERS_MAX = 256
"""Publishers open at a time in one task, each of which is a tunnel. The least recently used one is closed first."""
GAPS_MAX = 400
"""Gaps in one publisher's sequences before it waits until all is on disk. A broker remembers 1,000 holes, which
include messages still missing, and those being sent again unchanged."""
WAITING_BYTES_MAX = 4 << 20
"""How much may wait for one member before sending waits: slow subscribers slow a replay, but lose none of it on
this side."""
DISCOVERY_S = 0.5
"""How long to wait until members and their subscriptions are found, as `mesh publish` does."""


class Target(ABC):
    """Takes messages. Once `finish` has returned, `counts` tell what became of them."""

    def __init__(self) -> None:
        self.counts = Counts()

    @abstractmethod
    async def send(self, messages: Messages, sequences: Ints, low: int, high: int) -> None:
        """Send rows [`low`, `high`). Raises MeshError if not all of them were sent."""

    @abstractmethod
    async def finish(self) -> None:
        """Return when everything has arrived. Raises MeshError if it did not, or was refused."""


@asynccontextmanager
async def open_target(
    node: mesh.Node, options: SinkOptions, publisher: str
) -> AsyncGenerator[Target]:
    """Open the target that the options name; `publisher` is the name of this task's publisher, for numbers by row.

    Raises:
        Unreachable: there is nobody to send to.
    """
    if options.to == TOPICS:
        await find_members(node, options.timeout_s)
        yield TopicsTarget(node, options.timeout_s)
        return
    broker = await find_broker(node, options)
    async with AsyncExitStack() as stack:
        yield BrokerTarget(broker, options, publisher, stack)


async def find_broker(node: mesh.Node, options: SinkOptions) -> Connection:
    """Return a connection to the options' broker, which has answered. Raises Unreachable."""
    broker = durable.connect(
        node, cluster=options.broker, vhost=options.vhost, timeout=options.timeout_s
    )
    try:
        await broker.vhosts()
    except BrokerLost as error:
        raise Unreachable(f"broker {options.broker!r}", str(error)) from None
    return broker


async def find_members(node: mesh.Node, timeout_s: float) -> None:
    """Wait until there are members and their subscriptions are known. Raises Unreachable."""
    if node.members():
        return
    with node.within(timeout_s):
        async for _ in node.watch():
            if node.members():
                break
    if not node.members():
        problems = "; ".join(node.problems().values()) or "check keys and seeds with `mesh doctor`"
        raise Unreachable("the mesh", f"no members found within {timeout_s:g} s: {problems}")
    await trio.sleep(DISCOVERY_S)


class TopicsTarget(Target):
    """Publishes to topics: at most once, in order for each topic."""

    def __init__(self, node: mesh.Node, timeout_s: float) -> None:
        super().__init__()
        self._node, self._timeout_s = node, timeout_s
        self._publishing_before = node.statistics().publishing

    async def send(self, messages: Messages, sequences: Ints, low: int, high: int) -> None:
        payloads, headers = messages.payloads, messages.headers
        found, which = np.unique(messages.address_index[low:high], return_inverse=True)
        # Addresses that differ only in other fields have the same topic, whose rows must keep their order.
        topics = [messages.addresses[at].key for at in found.tolist()]
        numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
        if len(numbers) == 1:
            await self._node.publish_many(
                topics[0], payloads[low:high], headers=headers and headers[low:high]
            )
        else:
            number_of = np.array([numbers[topic] for topic in topics])[which]
            order = np.argsort(number_of, kind="stable") + low
            edges = np.cumsum(np.bincount(number_of))
            for topic, group in zip(numbers, np.split(order, edges[:-1]), strict=True):
                rows = group.tolist()
                await self._node.publish_many(
                    topic, [payloads[row] for row in rows],
                    headers=headers and [headers[row] for row in rows],
                )  # fmt: skip
        self.counts.sent += high - low
        await self._node.wait_sent(WAITING_BYTES_MAX)

    async def finish(self) -> None:
        with self._node.within(self._timeout_s) as scope:
            await self._node.wait_sent()
        if scope.cancelled_caught:
            raise Unreachable(
                "a member", f"it has not accepted everything within {self._timeout_s:g} s"
            )
        now, before = self._node.statistics().publishing, self._publishing_before
        self.counts.nobody = now.nobody - before.nobody
        self.counts.dropped = now.dropped - before.dropped


@dataclass(slots=True)
class OpenPublisher:
    """An open publisher."""

    publisher: NumberedPublisher
    stack: AsyncExitStack
    next_sequence: int = 0
    """The sequence after the last one it was given."""
    gaps: int = 0
    """Gaps in its sequences since all of them were on disk."""

    async def prepare_for(self, sequence: int) -> None:
        """Prepare for `sequence` as the next one: flush if it makes too many gaps. Raises what `flush` raises."""
        if sequence != self.next_sequence:
            self.gaps += 1
        if self.gaps > GAPS_MAX:
            await self.publisher.flush()
            self.gaps = 1


class BrokerTarget(Target):
    """Publishes to queues, streams or exchanges: stored once, in order for each queue and partition of origin."""

    def __init__(
        self, broker: Connection, options: SinkOptions, publisher: str, stack: AsyncExitStack
    ) -> None:
        super().__init__()
        self._broker, self._options, self._publisher = broker, options, publisher
        self._stack = stack
        self._open_publishers: OrderedDict[str, OpenPublisher] = OrderedDict()

    async def send(self, messages: Messages, sequences: Ints, low: int, high: int) -> None:
        which, addresses = messages.address_index, messages.addresses
        breaks = (np.diff(which[low:high]) != 0) | (np.diff(sequences[low:high]) != 1)
        edges = [low, *(np.flatnonzero(breaks) + low + 1).tolist(), high]
        by_offset = messages.offsets is not None
        for start, end in pairwise(edges):
            address = addresses[int(which[start])]
            opened = await self._open_publisher(
                self._publisher_name(address) if by_offset else self._publisher
            )
            if by_offset:
                known = self._stored_before_floor(
                    opened.publisher, int(sequences[start]), end - start
                )
                self.counts.duplicates += known
                start += known
            if start < end:
                await self._send_run(opened, messages, address, int(sequences[start]), start, end)

    def _publisher_name(self, address: Address) -> str:
        options, lane = self._options, address.lane
        lane_id = options.lanes.get(lane)
        return f"{options.id}/{lane}" if lane_id is None else f"{options.id}/{lane}/{lane_id}"

    def _stored_before_floor(self, publisher: NumberedPublisher, first: int, count: int) -> int:
        """Return how many messages from `first` on are certainly stored, although the broker has forgotten the holes
        there. An attempt leaves at most GAPS_MAX holes behind the first message that it did not store, and the
        next attempt starts with that one, so all before the remembered holes is stored. Without `mandatory`,
        dropped messages leave more holes: then 0, so all are sent, which raises SequenceLost."""
        return min(count, max(0, publisher.known.floor - first)) if self._options.mandatory else 0

    async def _send_run(
        self,
        opened: OpenPublisher,
        messages: Messages,
        address: Address,
        first: int,
        start: int,
        end: int,
    ) -> None:
        options, headers = self._options, messages.headers
        # A captured queue has one partition for each priority.
        priority = address.partition if options.replay and options.to == QUEUES else 0
        await opened.prepare_for(first)
        stored = await opened.publisher.send(
            first, address.exchange, address.key, messages.payloads[start:end],
            headers=headers and headers[start:end],
            properties=Properties(
                address.exchange, priority=priority, mandatory=options.mandatory
            ),
        )  # fmt: skip
        opened.next_sequence = first + end - start
        if stored < end - start and first < opened.publisher.known.end:
            await opened.publisher.flush()  # Late messages are on disk before there are more holes.
        self.counts.sent += end - start - stored
        self.counts.duplicates += stored

    async def _open_publisher(self, name: str) -> OpenPublisher:
        found = self._open_publishers.get(name)
        if found is not None:
            self._open_publishers.move_to_end(name)
            return found
        if len(self._open_publishers) >= PUBLISHERS_MAX:
            _, oldest = self._open_publishers.popitem(last=False)
            await oldest.stack.aclose()  # Returns when all of it is on disk.
        stack = await self._stack.enter_async_context(AsyncExitStack())
        publisher = await stack.enter_async_context(self._broker.numbered_publisher(name))
        opened = self._open_publishers[name] = OpenPublisher(publisher, stack)
        return opened

    async def finish(self) -> None:
        for opened in self._open_publishers.values():
            await opened.publisher.flush()
