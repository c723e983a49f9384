"""Subscriptions that share, as they come, go and are read at any time: each message is in one of them, or
told once to be missing; and read as `Sharing` says, each topic is in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mesh.protocol.batch import encode_lost
from mesh.protocol.frame import Kind
from mesh.protocol.inbox import Delivery, Inbox
from mesh.protocol.interest import DROP_NEWEST
from mesh.protocol.sharing import Sharing, overlap
from tests.machines import ME, OTHER, make_batch
from tests.property.test_interest import matches
from tests.unit.mesh.protocol.patterns_bench import Bench

TOPICS = ("a", "b.c")
PATTERNS = ("a", "*", ">", "b.*")

Stream = tuple[bytes, str]


@dataclass(eq=False)
class Reader:
    """Of one subscription, and what it has taken and may not give yet."""

    inbox: Inbox
    taken: Delivery | None = None

    @property
    def ended(self) -> bool:
        return not self.inbox and self.taken is None

    def wants(self, topic: str) -> bool:
        return matches(self.inbox.pattern, topic)


class SharingMachine(RuleBasedStateMachine):
    @initialize(limit=st.sampled_from([250, 1000, 1 << 20]))
    def start(self, limit: int) -> None:
        self.bench, self.sharing, self.limit = Bench(), Sharing(), limit
        self.running: list[Reader] = []
        self.left: list[Reader] = []
        self.all: list[Reader] = []
        self.next: dict[str, int] = dict.fromkeys(TOPICS, 0)
        """Of the other node: the sequence of what it publishes next."""
        self.own: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self.position: dict[Stream, int] = {}
        """Up to where all is read or told to be missing; of streams of which somebody knows."""
        self.knows: dict[Stream, list[Reader]] = {}
        self.arrived = self.read = 0
        for pattern in PATTERNS[:3]:
            self.subscribe(pattern)

    # Coming and going

    @rule(pattern=st.sampled_from(PATTERNS))
    def subscribe(self, pattern: str) -> None:
        reader = Reader(self.bench.subscribe(pattern, DROP_NEWEST, self.limit))
        after = [one.inbox for one in self.left]
        self.bench.patterns.subscriptions.share(reader.inbox, self.sharing, after)
        self.running.append(reader)
        self.all.append(reader)
        self._go_on(self.left)

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 9))
    def leave(self, place: int) -> None:
        reader = self.running.pop(place % len(self.running))
        self.bench.patterns.subscriptions.unsubscribe(reader.inbox)
        self.bench.patterns.subscriptions.hand_over(reader.inbox)
        self.left.append(reader)
        self._go_on([reader])

    def _go_on(self, left: list[Reader]) -> None:
        for stream, readers in self.knows.items():
            first = self._first(stream[1])
            if first is not None and any(one in left for one in readers):
                readers.append(first)

    def _first(self, topic: str) -> Reader | None:
        return next((one for one in self.running if one.wants(topic)), None)

    @rule()
    def forget(self) -> None:
        """Those that have ended: where nobody else knows of a stream, it begins anew."""
        self.left = [one for one in self.left if not one.ended]
        for stream, readers in list(self.knows.items()):
            if not any(one in self.running or one in self.left for one in readers):
                del self.knows[stream], self.position[stream]

    # Messages

    def _comes(self, stream: Stream, sequence: int, count: int) -> None:
        if (first := self._first(stream[1])) is not None:
            self.knows.setdefault(stream, []).append(first)
            self.position.setdefault(stream, sequence)
            self.arrived += count

    @rule(
        topic=st.sampled_from(TOPICS), count=st.integers(1, 4), lost=st.sampled_from([0, 0, 1, 3]),
        told=st.booleans(),
    )  # fmt: skip
    def publish(self, topic: str, count: int, lost: int, told: bool) -> None:
        first = self.next[topic]
        if lost and told:
            note = encode_lost(OTHER, 1, first, 0, topic.encode(), lost)
            self._comes((OTHER, topic), first, 0)
            self.bench.record(Kind.BATCH, 0, note)
        first += lost
        self.next[topic] = first + count
        self._comes((OTHER, topic), first, count)
        batch = make_batch(first, [b"x" * 20] * count, topic=topic)
        self.bench.record(Kind.BATCH, 0, bytes(batch.raw()))

    @rule(topic=st.sampled_from(TOPICS))
    def publish_own(self, topic: str) -> None:
        if self._first(topic) is not None:  # Else nobody wants it, and it has no number.
            self._comes((ME, topic), self.own[topic], 1)
            self.own[topic] += 1
        self.bench.publish(topic, b"own")

    # Reading

    @precondition(lambda self: self.all)
    @rule(place=st.integers(0, 9), times=st.integers(1, 4))
    def take(self, place: int, times: int) -> None:
        readable = [one for one in self.all if not one.ended]
        for _ in range(times if readable else 0):
            self._take(readable[place % len(readable)])

    def _take(self, reader: Reader) -> None:
        if reader.taken is None and reader.inbox:
            reader.taken = reader.inbox.take()
        if reader.taken is None or self._waits(reader, reader.taken.topic):
            return
        delivery, reader.taken = reader.taken, None
        stream = (delivery.sender, delivery.topic)
        assert delivery.sequence - delivery.lost == self.position[stream]
        self.position[stream] = delivery.sequence + len(delivery)
        self.read += len(delivery)

    def _waits(self, reader: Reader, topic: str) -> bool:
        earlier = (one for one in self.left if one.inbox.ident < reader.inbox.ident)
        return any(one.wants(topic) and not one.ended for one in earlier)

    def teardown(self) -> None:
        if not hasattr(self, "all"):
            return
        while left := [one for one in self.all if not one.ended]:
            before = sum(one.taken is None for one in left), self.read
            for one in left:
                self._take(one)
            assert before != (sum(one.taken is None for one in left), self.read), "all wait"
        dropped = sum(one.inbox.statistics().dropped for one in self.all)
        assert self.read + dropped == self.arrived, "each is there once"


patterns = st.lists(st.sampled_from("ab*"), min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([(*tokens,), (*tokens[1:], ">")])
)


@given(patterns, patterns)
def test_patterns_overlap_that_have_a_topic_in_common(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    tokens = [".".join(some) for count in range(1, 5) for some in product("abc", repeat=count)]
    common = any(matches(one, topic) and matches(other, topic) for topic in tokens)
    assert overlap(one, other) == overlap(other, one) == common


TestSharing = SharingMachine.TestCase
TestSharing.settings = settings(stateful_step_count=60)
