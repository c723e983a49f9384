"""An inbox against a plain list of messages, policy by policy, drop by drop."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.protocol import stream_gaps as module
from mesh.protocol.batch import Batch, encode_lost
from mesh.protocol.inbox import Inbox
from mesh.protocol.interest import BLOCK, DROP_NEWEST, DROP_OLDEST, POLICIES
from mesh.protocol.link import Link
from tests.machines import make_batch, make_link

STREAMS = [(publisher * 16, topic) for publisher in (b"p", b"q") for topic in ("t", "u.v")]


HEADER = b"h%d"


@dataclass
class Waiting:
    """Messages of one batch that wait: (sequence, payload), and what the batch itself counts."""

    stream: int
    messages: list[tuple[int, bytes]]
    batch_bytes: int
    whole: bool = True

    def size(self) -> int:
        if self.whole:
            return self.batch_bytes
        return sum(len(payload) + 4 + len(HEADER % n) + 4 for n, payload in self.messages)


@dataclass
class Stream:
    """What was said of one stream, and what came of it."""

    next: int
    first: int | None = None
    position: int | None = None
    delivered: int = 0
    dropped: int = 0
    lost: int = 0
    seen: list[int] = field(default_factory=list)


class InboxMachine(RuleBasedStateMachine):
    """Promises: order within a stream; delivered + dropped + waiting == pushed; gaps are exact."""

    @initialize(policy=st.sampled_from(POLICIES), limit=st.integers(1, 600), late=st.booleans())
    def start(self, policy: str, limit: int, late: bool) -> None:
        self.policy, self.limit = policy, limit
        self.woken = self.pushed = 0
        self.inbox = Inbox(1, ("t",), policy, limit, self.wake, in_flight_bytes=1 << 30)
        self.waiting: list[Waiting] = []
        self.streams = [Stream(next=1000 if late else 0) for _ in STREAMS]
        self.links = [make_link(), make_link()]
        self.owed: dict[Link, int] = {}
        self.senders: dict[int, Link | None] = {}

    def wake(self) -> None:
        self.woken += 1

    @rule(
        stream=st.integers(0, 3), sizes=st.lists(st.integers(0, 60), min_size=1, max_size=8),
        link=st.sampled_from([0, 1, None]),
    )  # fmt: skip
    def push(self, stream: int, sizes: list[int], link: int | None) -> None:
        one = self.streams[stream]
        publisher, topic = STREAMS[stream]
        payloads = [bytes([n % 256]) * size for n, size in enumerate(sizes, one.next)]
        headers = [HEADER % n for n in range(one.next, one.next + len(sizes))]
        batch = make_batch(one.next, payloads, publisher=publisher, topic=topic, headers=headers)
        came = Waiting(stream, list(enumerate(payloads, one.next)), batch.size_bytes)
        one.first = one.next if one.first is None else one.first
        one.next += len(sizes)
        self.pushed += len(sizes)
        woken, was_empty = self.woken, not self.waiting
        self.make_room(came)
        if came.messages:
            self.waiting.append(came)
            self.senders[id(came)] = None if link is None else self.links[link]
        self.inbox.push(batch, None if link is None else self.links[link])
        if came.messages and was_empty:
            assert self.woken == woken + 1

    def make_room(self, came: Waiting) -> None:
        """Drop until all fits: the dumb way, one message at a time."""

        def excess() -> int:
            return sum(one.size() for one in self.waiting) + came.size() - self.limit

        def drop(victim: Waiting, place: int) -> None:
            if victim.whole:
                victim.whole = False  # Without the rest of its batch it may fit already.
            else:
                victim.messages.pop(place)
                self.streams[victim.stream].dropped += 1

        if self.policy == DROP_NEWEST:
            while excess() > 0 and came.messages:
                drop(came, -1)
        if self.policy == DROP_OLDEST:
            while excess() > 0 and self.waiting:
                drop(self.waiting[0], 0)
                if not self.waiting[0].messages:
                    self.waiting.pop(0)
            while excess() > 0 and came.messages:
                drop(came, 0)

    @rule(stream=st.integers(0, 3), count=st.integers(1, 5), told=st.booleans())
    def lose_at_the_publisher(self, stream: int, count: int, told: bool) -> None:
        """Messages that never come; a note of it may."""
        one = self.streams[stream]
        publisher, topic = STREAMS[stream]
        if told:
            one.first = one.next if one.first is None else one.first
            lost = encode_lost(publisher, 1, one.next, 0, topic.encode(), count)
            self.inbox.push(Batch(lost), None)
        if told or one.first is not None:  # Else nobody could know.
            one.next += count

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        delivery, dumb = self.inbox.take(), self.waiting.pop(0)
        publisher, topic = STREAMS[dumb.stream]
        one = self.streams[dumb.stream]
        sequences = [sequence for sequence, _ in dumb.messages]
        assert (delivery.sender, delivery.topic) == (publisher, topic)
        assert delivery.payloads == [payload for _, payload in dumb.messages]
        assert delivery.sequence == sequences[0]
        assert delivery.headers == [HEADER % sequence for sequence in sequences]
        position = one.first if one.position is None else one.position
        assert position is not None
        assert delivery.lost == sequences[0] - position, "just what is missing before it"
        one.position = sequences[-1] + 1
        one.delivered += len(sequences)
        one.lost += delivery.lost
        link = self.senders.pop(id(dumb))
        if self.policy == BLOCK and link is not None:
            self.owed[link] = self.owed.get(link, 0) + dumb.batch_bytes
        assert self.inbox.owed_bytes == self.owed

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "inbox"):
            return
        statistics = self.inbox.statistics()
        waiting = sum(len(one.messages) for one in self.waiting)
        assert statistics.dropped == sum(one.dropped for one in self.streams)
        assert statistics.delivered + statistics.dropped + waiting == self.pushed
        assert statistics.delivered == sum(one.delivered for one in self.streams)
        assert statistics.lost == sum(one.lost for one in self.streams)
        assert statistics.waiting_bytes == sum(one.size() for one in self.waiting)
        assert self.policy == BLOCK or statistics.waiting_bytes <= self.limit
        assert self.policy != BLOCK or statistics.dropped == 0
        assert bool(self.inbox) == bool(self.waiting)


TestInbox = InboxMachine.TestCase


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["epoch", "epoch", "take"]),
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 40), min_size=1, max_size=6)),
    ),
    max_size=80,
)
"""The publisher begins an epoch; the reader takes; so many are lost on the way, and then some come."""


@given(policy=st.sampled_from(POLICIES), limit=st.sampled_from([70, 200, 600, 3000]), steps=STEPS)
def test_all_that_is_missing_of_however_many_epochs_is_told(
    policy: str, limit: int, steps: list[str | tuple[int, list[int]]]
) -> None:
    """Drops and gaps: each once, and nothing else, with the message of one more epoch at the latest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EPOCHS_MAX", 2)
        check_losses(policy, limit, steps)


def check_losses(policy: str, limit: int, steps: list[str | tuple[int, list[int]]]) -> None:
    inbox = Inbox(1, ("t",), policy, limit, lambda: None)
    epoch = 1
    following = gaps = pushed = 0
    for step in steps:
        if step == "epoch":
            epoch, following = epoch + 1, 0
        elif step == "take":
            if inbox:
                inbox.take()
        else:
            assert isinstance(step, tuple)
            gap, sizes = step
            if following:  # Before the first nobody could know.
                gaps, following = gaps + gap, following + gap
            inbox.push(make_batch(following, [bytes(size) for size in sizes], epoch=epoch), None)
            following, pushed = following + len(sizes), pushed + len(sizes)
    while inbox:
        inbox.take()
    inbox.push(make_batch(0, [b""], epoch=epoch + 1), None)
    inbox.take()
    statistics = inbox.statistics()
    assert statistics.delivered + statistics.dropped == pushed + 1
    assert statistics.lost == statistics.dropped + gaps
