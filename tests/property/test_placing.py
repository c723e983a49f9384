"""Placing all at once where there is room for anything, against placing one by one; and the room that compaction has."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from durable.errors import StoreBusy, StoreFull
from durable.log.compaction import FULL_SHARE
from durable.log.config import LogConfig
from durable.log.header import SEGMENT_HEADER_BYTES
from durable.log.placing import AheadState, Backlog, Place, Placer, WritePoint
from durable.log.record import Draft, Kind
from durable.log.segments import Segment, Segments
from durable.log.spares import CARRIER, Spare
from mesh.errors import TooLarge

CONFIG = LogConfig(segment_bytes=4096, reserve_bytes=512, free_bytes_min=0)
KINDS = (Kind.PUBLISH, Kind.ACKS, Kind.DEFINITIONS, Kind.CAPTURE, Kind.MOVED)

drafts = st.builds(
    Draft, st.sampled_from(KINDS), st.integers(0, 900).map(bytes), patient=st.booleans(),
    snapshot=st.booleans(),
)  # fmt: skip


class OneByOne(Placer):
    """As if there were no place here."""

    def _place_here(self, drafts: object, sizes: object) -> list[Place]:
        raise AssertionError

    def _ordinary_end(self, point: WritePoint) -> int:
        end = super()._ordinary_end(point)
        return end if self.fitting else -1

    fitting = False

    def _fits(self, *arguments: object) -> bool:
        self.fitting = True
        try:
            return super()._fits(*arguments)  # type: ignore[arg-type]
        finally:
            self.fitting = False


def whole(count: int) -> Segments:
    """Segments that are there, before the one being written."""
    found = Segments()
    for number in range(count):
        found.add(Segment(number - count, 1, CONFIG.segment_bytes))
    return found


def outcome(placer: Placer, appended: list[Draft], leave: bool) -> object:
    try:
        places = placer.place(appended, leave=leave and placer.can_leave)
    except (TooLarge, StoreBusy, StoreFull) as error:
        return type(error), placer.write_point, placer.ahead
    return (
        places, placer.write_point, placer.ahead, placer.spares.small, placer.spares.carrier,
        placer.spares._assigned, placer.append_bytes_max,
    )  # fmt: skip


@given(
    at=st.integers(SEGMENT_HEADER_BYTES // 8, CONFIG.segment_bytes // 8).map(lambda n: 8 * n),
    capacity_bytes=st.sampled_from((CONFIG.segment_bytes, 2048)),
    sealed=st.booleans(), ahead=st.sampled_from(AheadState), kept=st.integers(0, 2000),
    spares=st.lists(
        st.sampled_from((Spare(1, 2048), Spare(2, 3000), Spare(CARRIER, CONFIG.segment_bytes))),
        max_size=3, unique=True,
    ),
    backlog=st.builds(Backlog, many_letters=st.booleans(), moved_bytes=st.integers(0, 2000)),
    leave=st.booleans(), segments=st.sampled_from((0, 3)),
    appends=st.lists(st.lists(drafts, min_size=1, max_size=4), max_size=4),
)  # fmt: skip
@example(
    at=2000, capacity_bytes=2048, sealed=False, ahead=AheadState.REFUSED, kept=600, spares=[],
    backlog=Backlog(), leave=False, segments=0, appends=[[Draft(Kind.ACKS, b"")]],
)  # fmt: skip
def test_all_at_once_is_as_one_by_one(
    at: int, capacity_bytes: int, sealed: bool, ahead: AheadState, kept: int, spares: list[Spare],
    backlog: Backlog, leave: bool, segments: int, appends: list[list[Draft]],
) -> None:  # fmt: skip
    placers: list[Placer] = []
    for kind in (Placer, OneByOne):
        point = WritePoint(3, 1, min(at, capacity_bytes), capacity_bytes, 7, sealed)
        placer = kind(CONFIG, point, whole(segments), ahead_ready=True, spares=spares)
        placer.ahead, placer.backlog = ahead, backlog
        placer.keep_for_snapshot(kept)
        placers.append(placer)
    for appended in appends:
        assert outcome(placers[0], appended, leave) == outcome(placers[1], appended, leave)


ACK = Draft(Kind.ACKS, b"")
acks = st.integers(0, 300).map(lambda size: [Draft(Kind.ACKS, bytes(size))])
publishes = st.integers(0, 900).map(lambda size: [Draft(Kind.PUBLISH, bytes(size))])
letters = publishes.map(lambda drafts: [*drafts, ACK])


@given(
    at=st.integers(SEGMENT_HEADER_BYTES // 8, CONFIG.segment_bytes // 8).map(lambda n: 8 * n),
    sealed=st.booleans(), kept=st.integers(0, 600), has_carrier=st.booleans(),
    many_letters=st.booleans(), segments=st.integers(0, 3), share=st.sampled_from((0.5, FULL_SHARE)),
    turns=st.lists(st.tuples(st.lists(acks | publishes | letters, max_size=3), st.integers(0, 900))),
)  # fmt: skip
def test_what_is_carried_forward_on_a_full_disk_has_the_room_that_was_told(
    at: int, sealed: bool, kept: int, has_carrier: bool, many_letters: bool, segments: int, share: float,
    turns: list[tuple[list[list[Draft]], int]],
) -> None:  # fmt: skip
    """Goal: the segment that dead letters give way to does not meet StoreFull each time, whatever is appended in between,
    but for a tenth of the room in acks. Oracle: the room as it was told at first."""
    point = WritePoint(3, 1, at, CONFIG.segment_bytes, 7, sealed)
    spares = [Spare(CARRIER, CONFIG.segment_bytes)] if has_carrier else []
    others = whole(segments)
    for one in others:
        one.references = 1
    placer = Placer(CONFIG, point, others, ahead_ready=False, spares=spares)
    placer.spares.had_small, placer.backlog.many_letters = True, many_letters
    placer.ahead = AheadState.REFUSED
    placer.keep_for_snapshot(kept)
    room = placer.carried_bytes_max
    moved_left, acks_left = share * room, (1 - FULL_SHARE) * room
    drafts: list[Draft] = []
    for _, size in turns:  # The last one takes all that is left.
        if moved_left < ACK.size_bytes:
            break
        most = int(moved_left - ACK.size_bytes) // 8 * 8
        drafts.append(Draft(Kind.MOVED, bytes(most if most <= 900 else min(size, most))))
        moved_left -= drafts[-1].size_bytes
    for number, draft in enumerate(drafts):
        placer.backlog.moved_bytes = sum(one.size_bytes for one in drafts[number:])
        for appended in turns[number][0]:
            acks_left -= sum(one.size_bytes for one in appended if one.kind == Kind.ACKS)
            if acks_left >= 0:
                with suppress(StoreFull):
                    placer.place(appended)
        placer.place([draft])
