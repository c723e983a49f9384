"""Two links joined by connections that are lost at any time, with all they carried.

Oracle: lists of what was sent, flow by flow.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.protocol.frame import CONTROL, DATA, Frame, Kind
from tests.machines import LANES, LIMITS, Cable, make_link

FLOWS = ("requests", "topics", 7)
KINDS = {"requests": Kind.REPLY, "topics": Kind.BATCH, 7: Kind.TUNNEL_DATA, "control": Kind.GOSSIP}
sides, lanes = st.sampled_from([0, 1]), st.sampled_from(LANES)
sizes = st.one_of(st.integers(0, 600), st.integers(600, 5000))


class LinkPair(RuleBasedStateMachine):
    """Promises: what is delivered is a prefix of what was sent, in every flow; nothing twice;

    never more than a window in flight; a resume sends just what is missing; and honest ends never
    take each other for liars, whatever is lost and whichever lane comes back first.
    """

    @initialize()
    def start(self) -> None:
        self.cable = Cable(make_link(up=False), make_link(up=False, dialled=False))
        self.sent: dict[tuple[int, object], list[bytes]] = {}
        self.got: dict[tuple[int, object], int] = {}
        self.number = 0

    def body(self, size: int) -> bytes:
        self.number += 1
        return self.number.to_bytes(4, "little") + bytes([self.number % 251]) * size

    @rule(side=sides, flow=st.sampled_from(FLOWS), size=sizes)
    def send(self, side: int, flow: object, size: int) -> None:
        body = self.body(size)
        self.sent.setdefault((side, flow), []).append(body)
        link = self.cable.links[side]
        link.outbox.push(flow, KINDS[flow], self.number, body[4:], prefix=body[:4])
        self.cable.flush(side)

    @rule(side=sides, size=sizes)
    def send_control(self, side: int, size: int) -> None:
        body = self.body(size)
        self.sent.setdefault((side, "control"), []).append(body)
        self.cable.links[side].send_control(Kind.GOSSIP, 0, body)
        self.cable.flush(side)

    @rule(side=sides, lane=lanes)
    def carry(self, side: int, lane: int) -> None:
        for kind, _, body in self.cable.carry(side, lane):
            flow = next(name for name, one in KINDS.items() if one == kind)
            place = self.got.get((side, flow), 0)
            assert self.sent[side, flow][place] == body, "in order, whole, and not twice"
            self.got[side, flow] = place + 1
        self.cable.flush(1 - side)

    @rule(side=sides, count=st.integers(1, 8))
    def carry_many(self, side: int, count: int) -> None:
        for _ in range(count):
            self.carry(side, DATA)

    @rule(lane=lanes)
    def pull(self, lane: int) -> None:
        self.cable.pull(lane)

    @rule(lane=lanes)
    def plug(self, lane: int) -> None:
        self.cable.pull(lane)
        missing = []
        for side, link in enumerate(self.cable.links):
            received = self.cable.links[1 - side].lane(lane).expected
            kept = link.lane(lane).unacked
            missing.append([(n, raw) for n, raw in kept if n >= received])
        fresh_from = [link.lane(lane).next_sequence for link in self.cable.links]
        self.cable.plug(lane)
        for side in (0, 1):
            wire = list(self.cable.wires[side, lane])
            again = wire[: len(missing[side])]
            assert again == [raw for _, raw in missing[side]]
            fresh = [Frame(raw).sequence for raw in wire[len(again) :]]
            assert all(n == 0 or n >= fresh_from[side] for n in fresh), "and then only new ones"

    @precondition(lambda self: hasattr(self, "cable"))
    @rule(seconds=st.sampled_from([0.01, 0.06, 1.0]))
    def wait(self, seconds: float) -> None:
        self.cable.wait(seconds)

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "cable"):
            return
        for link in self.cable.links:
            for lane in (link.control, link.data):
                assert lane.unacked_bytes == sum(len(raw) for _, raw in lane.unacked)
                assert lane.unacked_bytes <= LIMITS.window_bytes
                assert lane.ack_pending_bytes <= LIMITS.window_bytes
                sequences = [sequence for sequence, _ in lane.unacked]
                first = lane.next_sequence - len(sequences)
                assert sequences == list(range(first, lane.next_sequence))

    def teardown(self) -> None:
        """Once both lanes are there to stay, everything arrives."""
        if not hasattr(self, "cable"):
            return
        for lane in LANES:
            self.plug(lane)
        for _ in range(5000):
            if {key: len(sent) for key, sent in self.sent.items()} == self.got:
                break
            self.wait(0.06)
            for side in (0, 1):
                for lane in LANES:
                    self.carry(side, lane)
        else:
            raise AssertionError("something never arrived")
        assert all(link._pieces_bytes == 0 and not link._pieces for link in self.cable.links)


TestLinkPair = LinkPair.TestCase


class TestLanes:
    """What the machine's oracle rests on: the cable itself loses and repeats as it says."""

    def test_a_pulled_lane_loses_what_it_carried(self) -> None:
        cable = Cable(make_link(up=False), make_link(up=False))
        cable.links[0].outbox.push("a", Kind.REPLY, 1, b"x")
        cable.flush(0)
        cable.pull(DATA)
        assert not cable.wires[0, DATA]
        cable.links[0].send_control(Kind.CANCEL, 1, b"")
        cable.flush(0)
        assert len(cable.wires[0, CONTROL]) == 1
        cable.plug(DATA)
        assert len(cable.wires[0, DATA]) == 1
