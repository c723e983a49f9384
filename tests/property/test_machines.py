"""Oracles for the pure machines: each beside a version so dumb that it is obviously right."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from itertools import combinations
from math import sqrt
from random import Random
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesh.protocol.balancer import Candidate, choose_of_two
from mesh.protocol.batch import Batch, batch_pieces
from mesh.protocol.frame import CONTROL, DATA, Frame, Kind
from mesh.protocol.inbox import Inbox
from mesh.protocol.instructions import Instruction
from mesh.protocol.interest import BLOCK, POLICIES, Interest
from mesh.protocol.link import Link, LinkLimits
from mesh.protocol.membership import Change, Membership, State
from mesh.protocol.outbox import Outbox
from mesh.protocol.tunnel import TunnelEnd

LIMITS = LinkLimits(
    window_bytes=8192, frame_bytes_max=2048, chunk_bytes=512, outbox_bytes=1 << 20,
    record_bytes_max=1 << 20, reassembly_bytes_max=1 << 20, ack_delay_s=0.05,
)  # fmt: skip


def make_link(*, dialled: bool = True, **limits: Any) -> Link:
    return Link(b"p" * 16, "x", b"k" * 16, dialled=dialled, limits=replace(LIMITS, **limits))


# Interest

tokens = st.sampled_from(["a", "b", "c"])
topics = st.lists(tokens, min_size=1, max_size=4).map(tuple)
patterns = st.builds(
    lambda body, tail: (*body, ">") if tail or not body else tuple(body),
    st.lists(st.sampled_from(["a", "b", "c", "*"]), max_size=4), st.booleans(),
)  # fmt: skip


def dumb_match(pattern: tuple[str, ...], topic: tuple[str, ...]) -> bool:
    if pattern[-1] == ">":
        head = pattern[:-1]
        return len(topic) > len(head) and all(p in ("*", t) for p, t in zip(head, topic, strict=False))  # fmt: skip
    return len(pattern) == len(topic) and all(p in ("*", t) for p, t in zip(pattern, topic, strict=True))  # fmt: skip


@given(st.lists(st.tuples(patterns, st.booleans()), max_size=20), topics)
def test_interest_agrees_with_a_dumb_matcher(
    steps: list[tuple[tuple[str, ...], bool]], topic: tuple[str, ...]
) -> None:
    """Goal: match what was added and not removed. Oracle: a list, asked pattern by pattern."""
    trie: Interest[int] = Interest()
    listed: list[tuple[tuple[str, ...], int]] = []
    for number, (pattern, remove) in enumerate(steps):
        if remove and listed:
            gone = listed.pop(number % len(listed))
            trie.remove(*gone)
        else:
            trie.add(pattern, number)
            listed.append((pattern, number))
    dumb = sorted(number for pattern, number in listed if dumb_match(pattern, topic))
    assert sorted(trie.match(".".join(topic))) == dumb


# Links


class LinkPair(RuleBasedStateMachine):
    """Two ends of a link whose connections break at any moment, losing what was on its way.

    Invariant: delivered is a prefix of sent, in both directions; never more than the window in
    flight; after a last repair and enough turns, everything has arrived.
    """

    @initialize()
    def start(self) -> None:
        self.ends = (make_link(dialled=True), make_link(dialled=False))
        self.sent: tuple[list[bytes], list[bytes]] = ([], [])
        self.got: tuple[list[bytes], list[bytes]] = ([], [])
        self.wire: dict[tuple[int, int], deque[bytes]] = {}
        self.conn = 0
        self.now_s = 0.0
        for lane in (CONTROL, DATA):
            self.reconnect(lane)

    def reconnect(self, lane: int) -> None:
        self.conn += 1
        conn = (lane, self.conn)
        expects = [end.lane(lane).expected for end in self.ends]
        self.wire = {key: value for key, value in self.wire.items() if key[1] // 2 != lane}
        for side in (0, 1):
            self.wire[side, 2 * lane] = deque(self.ends[side].attach(lane, conn, expects[1 - side]))

    def carry_out(self, side: int) -> None:
        out: list[Instruction] = []
        end = self.ends[side]
        end.flush(out)
        if end.ack_due_s is not None and end.ack_due_s <= self.now_s:
            end.send_unsequenced(out, [])
        for item in out:
            assert isinstance(item, tuple)
            lane, _ = cast("tuple[int, int]", item[0])
            self.wire[side, 2 * lane].append(item[1])

    @rule(side=st.sampled_from([0, 1]), size=st.integers(0, 1500))
    def send(self, side: int, size: int) -> None:
        body = len(self.sent[side]).to_bytes(4, "little") + bytes(size)
        self.sent[side].append(body)
        self.ends[side].outbox.push("requests", Kind.REPLY, len(self.sent[side]), body)
        self.carry_out(side)

    @rule(side=st.sampled_from([0, 1]), lane=st.sampled_from([CONTROL, DATA]))
    def deliver(self, side: int, lane: int) -> None:
        queue = self.wire[side, 2 * lane]
        if queue:
            data = queue.popleft()
            receiver = self.ends[1 - side]
            for kind, _, buffer, start, end in receiver.receive(Frame(data), len(data), self.now_s):
                assert kind == Kind.REPLY
                self.got[1 - side].append(bytes(buffer[start:end]))
            if receiver.needs_ack_now():
                receiver.ack_due_s = self.now_s
            self.carry_out(1 - side)

    @rule(lane=st.sampled_from([CONTROL, DATA]))
    def break_and_resume(self, lane: int) -> None:
        for end in self.ends:
            end.lane(lane).conn = None
        self.reconnect(lane)
        for side in (0, 1):
            self.carry_out(side)

    @rule()
    def time_passes(self) -> None:
        self.now_s += 0.1
        for side in (0, 1):
            self.carry_out(side)

    @invariant()
    def delivered_is_a_prefix(self) -> None:
        for side in (0, 1):
            assert self.got[1 - side] == self.sent[side][: len(self.got[1 - side])]
            assert self.ends[side].data.unacked_bytes <= LIMITS.window_bytes

    def teardown(self) -> None:
        if not hasattr(self, "ends"):
            return
        for _ in range(3000):
            self.time_passes()
            for side in (0, 1):
                for lane in (CONTROL, DATA):
                    self.deliver(side, lane)
            if all(len(self.got[1 - side]) == len(self.sent[side]) for side in (0, 1)):
                return
        raise AssertionError("something never arrived")


TestLinkPair = LinkPair.TestCase


def test_control_never_waits_behind_data() -> None:
    """With the data window full and megabytes waiting, a control record still leaves at once."""
    link = make_link()
    for lane in (CONTROL, DATA):
        link.attach(lane, (lane, 1), 1)
    link.outbox.push("requests", Kind.REPLY, 1, bytes(100_000))
    out: list[Instruction] = []
    link.flush(out)
    assert link.outbox, "the window is full"
    out.clear()
    link.send_control(Kind.CANCEL, 7, b"")
    link.flush(out)
    (sent,) = out
    assert isinstance(sent, tuple)
    assert [record[0] for record in Frame(sent[1]).records] == [Kind.CANCEL]


# Tunnels


class TunnelPair(RuleBasedStateMachine):
    """A writer and a reader: delivered is a prefix of sent, credit never negative, window kept."""

    @initialize(window=st.sampled_from([1, 3, 4, 1000]), granted=st.sampled_from([1, 2, 5, 20]))
    def start(self, window: int, granted: int) -> None:
        """The writer uses `window` of what the reader grants: what may wait for one link is bounded."""
        self.window = window
        link = make_link(outbox_bytes=window)
        self.writer = TunnelEnd(link, 1, "x/y", opener=True, window_bytes=10)
        self.reader = TunnelEnd(make_link(), 1, "x/y", opener=False, window_bytes=window * granted)
        self.writer.accepted(window * granted)
        self.flight: deque[bytes] = deque()
        self.credits: deque[int] = deque()
        self.words: deque[int] = deque()
        self.sent: list[bytes] = []
        self.got: list[bytes] = []

    @rule(share=st.integers(0, 1000))
    def send_some(self, share: int) -> None:
        self.send(self.window * share // 1000)

    def send(self, size: int) -> None:
        if self.writer.may_send(size):
            part = bytes([len(self.sent) % 251]) * size
            self.writer.note_sent(size)
            self.sent.append(part)
            self.flight.append(part)
        elif wanted := self.writer.request_credit(size):
            self.words.append(wanted)

    @rule()
    def word_arrives(self) -> None:
        """On the other lane: before the parts or after them."""
        if self.words:
            self.reader.peer_blocked(self.words.popleft())
            self._pay()

    @rule()
    def arrive(self) -> None:
        if self.flight:
            self.reader.received(self.flight.popleft())

    @rule()
    def read(self) -> None:
        if self.reader.readable:
            self.got.append(self.reader.read())
            self._pay()

    def _pay(self) -> None:
        if self.reader.credit_due:
            self.credits.append(self.reader.take_owed())

    @rule()
    def credit_arrives(self) -> None:
        if self.credits:
            self.writer.credited(self.credits.popleft())

    @invariant()
    def promises(self) -> None:
        assert self.got == self.sent[: len(self.got)]
        assert 0 <= self.writer.credit_bytes <= self.window
        unread = sum(max(1, len(part)) for part in self.sent[len(self.got) :])
        assert unread <= self.window

    def teardown(self) -> None:
        if not hasattr(self, "writer"):
            return
        for size in (0, 1, self.window * 3 // 4, self.window):
            sent = len(self.sent)
            for _ in range(2):
                self.send(size)  # Or says what it waits for.
                while self.words:
                    self.word_arrives()
                while self.flight:
                    self.arrive()
                while self.reader.readable:
                    self.read()
                while self.credits:
                    self.credit_arrives()
                assert self.got == self.sent
            assert len(self.sent) > sent, "credit came back: it does not leak away"


TestTunnelPair = TunnelPair.TestCase


# Inbox


@given(
    st.sampled_from(POLICIES), st.integers(100, 3000),
    st.lists(st.one_of(st.none(), st.lists(st.integers(0, 60), min_size=1, max_size=12)), max_size=40),
)  # fmt: skip
def test_inbox_accounts_for_every_message(
    policy: str, limit: int, steps: list[list[int] | None]
) -> None:
    """Goal: pushed == delivered + dropped + waiting, in order, gaps exact. Oracle: the numbers."""
    inbox = Inbox(1, ("t",), policy, limit, lambda: None)
    pushed = delivered = position = 0

    def take() -> None:
        nonlocal delivered, position
        delivery = inbox.take()
        assert delivery.sequence == position + delivery.lost
        position = delivery.sequence + len(delivery.payloads)
        delivered += len(delivery.payloads)

    for sizes in steps:
        if sizes is None:
            if inbox:
                take()
            continue
        payloads = [bytes(size) for size in sizes]
        data = b"".join(batch_pieces(b"p" * 16, 1, pushed, 0, b"t", payloads)[0])
        inbox.push(Batch(data), None)
        pushed += len(payloads)
        statistics = inbox.statistics()
        assert policy == BLOCK or statistics.waiting_bytes <= limit
    while inbox:
        take()
    statistics = inbox.statistics()
    assert delivered + statistics.dropped == pushed
    assert statistics.delivered == delivered
    assert policy != BLOCK or statistics.dropped == 0
    assert statistics.lost + (pushed - position) == statistics.dropped


# Membership


@given(st.lists(st.tuples(st.sampled_from(["hear", "lose", "back", "wait", "left", "link"]), st.floats(0, 3)), max_size=40))  # fmt: skip
def test_membership_agrees_with_a_dumb_version(steps: list[tuple[str, float]]) -> None:
    """Oracle: the state follows from two times alone, when the path was lost and who spoke last."""
    changes: list[Change] = []
    table = Membership(stalled_s=3.0, suspect_grace_s=0.5, dead_after_s=3.0, changed=changes.append)
    node, now_s = b"n" * 16, 0.0
    member = table.linked(node, ("x",), (), now_s)
    heard_s, lost_s, dead, left = 0.0, None, False, False
    for what, wait_s in steps:
        if what == "wait":
            now_s += wait_s
            table.tick(now_s)
            dead = dead or (lost_s is not None and now_s - lost_s >= 3.0 and not left)
        elif what == "hear" and lost_s is None and not left and not dead:
            table.heard(member, now_s)
            heard_s = now_s
        elif what == "lose" and not left and lost_s is None and not dead:
            table.path_lost(node, now_s)
            lost_s = now_s
        elif what == "back" and lost_s is not None and not left and not dead:
            table.path_back(node, now_s)
            heard_s, lost_s = now_s, None
        elif what == "left":
            table.gone(node, State.LEFT, "left")
            left = True
        elif what == "link" and (dead or left):
            member = table.linked(node, ("x",), (), now_s)
            heard_s, lost_s, dead, left = now_s, None, False, False
        table.tick(now_s)
        if left:
            dumb = State.LEFT
        elif dead:
            dumb = State.DEAD
        elif lost_s is not None and now_s - lost_s >= 0.5:
            dumb = State.SUSPECT
        elif lost_s is None and now_s - heard_s >= 3.0:
            dumb = State.STALLED
        else:
            dumb = member.state if lost_s is not None else State.ALIVE
        assert member.state is dumb
    assert changes[0].kind == "joined"


# Balancer


members = st.builds(
    lambda outstanding, queue, service_ms: Candidate(
        b"", make_link(), outstanding, queue, service_ms / 1000
    ),
    st.integers(0, 20), st.integers(0, 20), st.integers(0, 500),
)  # fmt: skip


def waits_s(one: Candidate, other: Candidate) -> float:
    """Until `one` would answer: what it holds, and this one, each as long as they took so far.

    Whoever has not been asked yet takes as long as the other.
    """
    return (one.outstanding + one.queue + 1) * (one.service_s or other.service_s or 1e-6)


@given(st.tuples(members, members), st.integers(0, 1000))
def test_of_two_the_balancer_takes_the_one_that_would_answer_sooner(
    pair: tuple[Candidate, Candidate], seed: int
) -> None:
    one, other = pair
    chosen = choose_of_two(pair, Random(seed))
    spurned = other if chosen is one else one
    assert waits_s(chosen, spurned) <= waits_s(spurned, chosen)


DRAWS = 2000


@given(
    st.lists(members.filter(lambda one: one.service_s > 0), min_size=1, max_size=8,
             unique_by=lambda one: waits_s(one, one)),
    st.integers(0, 1000),
)  # fmt: skip
def test_the_balancer_draws_two_and_no_more(candidates: list[Candidate], seed: int) -> None:
    """Not always the best, which all callers would storm at once: of n, it is among the two in 2 of n.

    Oracle: of all pairs, those in which the one of this rank is the better. Six standard deviations.
    """
    rng, count = Random(seed), len(candidates)
    picks = Counter(id(choose_of_two(candidates, rng)) for _ in range(DRAWS))
    ranked = sorted(candidates, key=lambda one: waits_s(one, one))
    pairs = list(combinations(range(count), 2))
    for rank, candidate in enumerate(ranked):
        share = sum(better == rank for better, _ in pairs) / len(pairs) if pairs else 1.0
        spread = 6 * sqrt(DRAWS * share * (1 - share))
        assert abs(picks[id(candidate)] - DRAWS * share) <= spread


# Outbox


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000)), max_size=30),
    st.integers(600, 4000), st.integers(1, 10_000),
)  # fmt: skip
def test_the_outbox_keeps_order_within_flows_and_loses_nothing(
    pushes: list[tuple[int, int]], limit: int, reassembly: int
) -> None:
    outbox = Outbox(limit_bytes=1 << 20, chunk_bytes=512, reassembly_bytes=reassembly)
    for number, (flow, size) in enumerate(pushes):
        outbox.push(flow, Kind.REPLY, number, bytes([number]) * size)
    bodies: dict[int, bytes] = {}
    finished: list[int] = []
    while outbox:
        parts, count = outbox.take(limit)
        assert sum(map(len, parts)) <= max(limit, 512 + 16)
        from mesh.protocol.frame import pack_frame

        frame = Frame(pack_frame(DATA, 1, 0, 0, count, parts))
        for _, flags, ident, start, end in frame.records:
            bodies[ident] = bodies.get(ident, b"") + bytes(frame.data[start:end])
            if not flags:
                finished.append(ident)
            begun = [n for n in bodies if n not in finished]
            assert len(begun) <= 1 or sum(len(bodies[n]) for n in begun) <= reassembly
    assert outbox.size_bytes == 0
    assert bodies == {n: bytes([n]) * size for n, (_, size) in enumerate(pushes)}
    for flow in range(4):
        mine = [n for n in finished if pushes[n][0] == flow]
        assert mine == sorted(mine)
