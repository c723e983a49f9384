"""Topics of a simulated network: publishers that wait, readers of any speed, and a check of every gap.

Each message carries its number on its (publisher, topic), so a reader knows what is missing and can compare that with
what the mesh reports as lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import trio

from mesh.protocol.inbox import Inbox
from mesh.protocol.interest import BLOCK

from .sim_node import SimNode
from .wire import Network

NUMBER = struct.Struct("<I")


@dataclass(slots=True, eq=False)
class Feed:
    """One topic of one publisher, with the messages that wait to be published, as tasks in `publish` would."""

    publisher: SimNode
    topic: str
    made: int = 0
    made_s: list[float] = field(default_factory=list)
    published: int = 0
    backlog: list[bytes] = field(default_factory=list)

    @property
    def key(self) -> tuple[bytes, str]:
        return self.publisher.id, self.topic

    def add(self, size: int) -> None:
        self.made_s.append(self.publisher.network.now_s)
        self.backlog.append(NUMBER.pack(self.made) + bytes(size))
        self.made += 1

    def push(self) -> None:
        """Publish until a subscriber makes the publisher wait."""
        if self.publisher.core.closing:
            self.backlog.clear()
            return
        done = 0
        try:
            for payload in self.backlog:
                self.publisher.node.publish_nowait(self.topic, payload)
                done += 1
        except trio.WouldBlock:
            pass
        del self.backlog[:done]
        self.published += done


@dataclass(slots=True, eq=False)
class Reader:
    """One subscription, of which one delivery is read every `pause_s` (0: at once)."""

    node: SimNode
    inbox: Inbox
    pause_s: float
    since_s: float
    last: dict[tuple[bytes, str], int] = field(default_factory=dict)
    """Number of the last message read, per stream."""
    broken: dict[bytes, float] = field(default_factory=dict)
    """When the link to a publisher was last given up, at either end."""
    known_s: dict[bytes, float] = field(default_factory=dict)
    """When a publisher was first seen to know of the subscription; what was sent before need not have reached it."""
    delivered: int = 0
    lost: int = 0
    closed: bool = False
    waiting: bool = False


class TopicBook:
    """Every feed and every reader of one network."""

    def __init__(self, network: Network, rng: Random) -> None:
        self._network, self._rng = network, rng
        self.feeds: dict[tuple[SimNode, str], Feed] = {}
        self.readers: list[Reader] = []

    def publish(self, node: SimNode, topic: str, sizes: list[int]) -> None:
        feed = self.feeds.get((node, topic))
        if feed is None:
            feed = self.feeds[node, topic] = Feed(node, topic)
        for size in sizes:
            feed.add(size)
        feed.push()
        node.wake_pump()

    def random_publish(self, node: SimNode, topics: list[str]) -> None:
        rng = self._rng
        topic = rng.choice(topics)
        feed = self.feeds.get((node, topic))
        if feed is not None and len(feed.backlog) > 200:
            return  # A publisher that waits makes nothing new.
        kind = rng.random()
        if kind < 0.7:
            sizes = [rng.randrange(300) for _ in range(rng.choice([1, 1, 5, 40]))]
        else:
            sizes = [rng.choice([2_000, 7_000, 20_000])]
        self.publish(node, topic, sizes)

    def freed(self, node: SimNode) -> None:
        for (publisher, _), feed in self.feeds.items():
            if publisher is node and feed.backlog:
                feed.push()
        node.wake_pump()

    def subscribe(
        self, node: SimNode, pattern: str, policy: str, limit_bytes: int, pause_s: float = 0.0
    ) -> Reader:
        reader: Reader

        def wake() -> None:
            self._schedule(reader)

        inbox = node.core.subscribe(pattern, policy, limit_bytes, wake)
        reader = Reader(node, inbox, pause_s, self._network.now_s)
        self.readers.append(reader)
        node.flush()
        return reader

    def unsubscribe(self, reader: Reader) -> None:
        reader.closed = True
        reader.node.core.unsubscribe(reader.inbox)
        reader.node.flush()

    def link_broke(self, one: bytes, other: bytes) -> None:
        """Record that the link between two nodes was given up, as one of them sees it."""
        for reader in self.readers:
            if reader.node.id == one:
                reader.broken[other] = self._network.now_s
            elif reader.node.id == other:
                reader.broken[one] = self._network.now_s

    def _schedule(self, reader: Reader) -> None:
        if not reader.waiting:
            reader.waiting = True
            reader.node.later("tasks", lambda: self._read(reader), delay_s=reader.pause_s)

    def _read(self, reader: Reader) -> None:
        reader.waiting = False
        if reader.closed or not reader.inbox:
            return
        delivery = reader.node.core.patterns.subscriptions.take(reader.inbox, self._network.now_s)
        if reader.node.core.needs_flush:
            reader.node.wake_pump()
        key = (delivery.sender, delivery.topic)
        numbers = [NUMBER.unpack_from(payload)[0] for payload in delivery.payloads]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "a hole inside"
        self._check_gap(reader, key, numbers[0], delivery.lost)
        reader.last[key] = numbers[-1]
        reader.delivered += len(numbers)
        reader.lost += delivery.lost
        statistics = reader.inbox.statistics()
        if reader.inbox.policy != BLOCK:
            assert statistics.waiting_bytes <= reader.inbox.limit_bytes
        if reader.inbox:
            self._schedule(reader)

    def _check_gap(self, reader: Reader, key: tuple[bytes, str], number: int, lost: int) -> None:
        last = reader.last.get(key)
        who = f"{reader.node.name} {reader.inbox.policy} of {key[1]} by {key[0].hex()[:8]}"
        if last is None:
            return
        missing = number - last - 1
        assert missing >= 0, f"{who}: {number} after {last}, out of order or twice"
        assert missing >= lost, f"{who}: {missing} missing, {lost} counted"
        feed = next(one for one in self.feeds.values() if one.key == key)
        known_s = reader.known_s.get(key[0], float("inf"))
        if not missing or key[0] in reader.broken or feed.made_s[last + 1] < known_s:
            return
        assert missing == lost, f"{who}: {missing} missing after {last}, {lost} counted"
        assert reader.inbox.policy != BLOCK, f"{who}: {lost} lost"

    # Invariants

    def check_now(self) -> None:
        """Record which publishers know of which `block` subscription."""
        now_s = self._network.now_s
        for node in self._network.nodes:
            for link, subscriptions in node.core.patterns.subscribers._remote.items():
                for reader in self.readers:
                    if reader.node.id == link.peer and reader.inbox.ident in subscriptions:
                        reader.known_s.setdefault(node.id, now_s)

    def waits(self, nodes: list[SimNode]) -> list[Feed]:
        """Return the feeds with messages that could not be published yet."""
        return [
            one
            for (node, topic), one in self.feeds.items()
            if node in nodes
            and (one.backlog or node.core.patterns.publisher.streams[topic].payloads)
        ]

    def finish(self, nodes: list[SimNode]) -> None:
        """Publish one more message per feed, so that losses at the end show."""
        for place, feed in enumerate(list(self.feeds.values())):
            if feed.publisher in nodes:  # One by one: the smallest inbox holds just a few.
                self._network.after(0.1 * place, self._last(feed))

    def _last(self, feed: Feed) -> Callable[[], None]:
        return lambda: self.publish(feed.publisher, feed.topic, [8])

    def check_end(self, nodes: list[SimNode]) -> None:
        """Check, after `finish` and some quiet, that nobody waits and every reader has read to the end."""
        assert not self.waits(nodes), self.waits(nodes)
        for reader in self.readers:
            if reader.closed or reader.node not in nodes:
                continue
            assert not reader.inbox, f"unread at {reader.node.name}"
            for feed in self.feeds.values():
                if feed.publisher in nodes and matches(reader.inbox.pattern, feed.topic):
                    last = reader.last.get((feed.publisher.id, feed.topic))
                    who = f"{reader.node.name} {reader.inbox.policy} of {feed.topic} by {feed.publisher.name}"
                    assert last == feed.made - 1, f"{who}: ends with {last} of {feed.made}"
            statistics = reader.inbox.statistics()
            assert (statistics.delivered, statistics.lost) == (reader.delivered, reader.lost)
            assert statistics.waiting_bytes == 0


def matches(pattern: tuple[str, ...], topic: str) -> bool:
    """Return whether a pattern matches: a simple version of interest.py."""
    tokens = topic.split(".")
    if pattern[-1] == ">":
        head = pattern[:-1]
        return len(tokens) > len(head) and all(
            p in ("*", t) for p, t in zip(head, tokens, strict=False)
        )
    return len(tokens) == len(pattern) and all(
        p in ("*", t) for p, t in zip(pattern, tokens, strict=True)
    )
