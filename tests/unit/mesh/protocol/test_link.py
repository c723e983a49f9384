from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.frame import CONTROL, DATA, MORE, Frame, Kind, pack_frame, pack_record
from mesh.protocol.hello import Limits
from mesh.protocol.instructions import Instruction
from mesh.protocol.link import (
    CONTROL_QUEUE_BYTES_MAX,
    PIECE_BYTES_MIN,
    RECORD_EXTRA_BYTES,
    Link,
    negotiate_limits,
)
from mesh.protocol.outbox import REQUESTS
from tests.machines import LANES, LIMITS, OTHER, Cable, frames, make_link, take_frames, take_records


def feed(link: Link, *records: bytes, sequence: int = 1, ack_data: int = 0) -> list[bytes]:
    """Let the link receive one data frame; return the bodies it completes."""
    raw = pack_frame(DATA, sequence, 0, ack_data, len(records), list(records))
    return [bytes(data[a:b]) for _, _, data, a, b in link.receive(Frame(raw), len(raw), 0.0)]


def theirs(window: int, frame: int, *, record: int = 1 << 30, reassembly: int = 1 << 30) -> Limits:
    return Limits(window=window, frame_max=frame, record_max=record, reassembly_max=reassembly)


def push(link: Link, ident: int, body: bytes) -> None:
    link.outbox.push(REQUESTS, Kind.REPLY, ident, body)


# Connections


def test_is_up_with_both_lanes_and_stays_up() -> None:
    link = make_link(up=False)
    link.attach(CONTROL, "c", 1)
    assert (link.up, link.connected) == (False, False)
    link.attach(DATA, "d", 1)
    assert (link.up, link.connected) == (True, True)
    assert link.detach("d") is link.data
    assert (link.up, link.connected) == (True, False)
    assert link.detach("d") is None
    assert link.detach("c") is link.control


def test_nothing_leaves_without_a_connection_and_all_leaves_once_there_is_one() -> None:
    link = make_link(up=False)
    push(link, 1, b"data")
    link.send_control(Kind.CANCEL, 2, b"")
    assert take_frames(link) == []
    link.attach(CONTROL, "c", 1)
    assert [frame.lane for frame in take_frames(link)] == [CONTROL]
    link.attach(DATA, "d", 1)
    assert [frame.lane for frame in take_frames(link)] == [DATA]


def test_attach_sends_again_what_the_peer_lacks_and_counts_it() -> None:
    link = make_link()
    for ident in range(3):
        push(link, ident, bytes(1000))
    first = take_frames(link)
    assert [frame.sequence for frame in first] == [1, 2]
    again = [Frame(raw) for raw in link.attach(DATA, "new", 2)]
    assert [frame.sequence for frame in again] == [2]
    assert again[0].data == first[1].data
    statistics = link.statistics()
    assert (statistics.resumes, statistics.frames_sent_again) == (1, 1)


def test_acknowledges_by_an_eighth_of_the_window_that_both_agreed_on() -> None:
    """By its own, which may be larger than all that the peer sends, it would do so by the timer alone."""
    link = make_link(window_bytes=1 << 20)
    link.adopt(negotiate_limits(link.limits, theirs(8192, 2048)))
    feed(link, pack_record(Kind.REPLY, 1, bytes(900)))
    assert not link.needs_ack_now()
    feed(link, pack_record(Kind.REPLY, 2, bytes(100)), sequence=2)
    assert link.needs_ack_now()


def test_limits_both_ends_agreed_on_are_kept() -> None:
    link = make_link(window_bytes=1 << 20, frame_bytes_max=1 << 16, chunk_bytes=1 << 14)
    link.adopt(negotiate_limits(link.limits, theirs(4096, 1024)))
    push(link, 1, bytes(5000))
    left = take_frames(link)
    assert [len(frame.data) <= 1024 for frame in left] == [True] * len(left)
    assert 4096 - 1024 < sum(len(frame.data) for frame in left) <= 4096


def test_agreed_limits_are_the_smaller_of_each() -> None:
    assert negotiate_limits(LIMITS, theirs(1 << 30, 1 << 20)) == LIMITS
    small = negotiate_limits(LIMITS, theirs(2048, 1024, record=100_000, reassembly=200_000))
    assert (small.window_bytes, small.frame_bytes_max, small.chunk_bytes) == (2048, 1024, 512)
    assert (small.record_bytes_max, small.reassembly_bytes_max) == (100_000, 200_000)
    assert small.payload_bytes_max == 100_000 - RECORD_EXTRA_BYTES


def test_records_with_no_room_for_a_name_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="for records is too small"):
        negotiate_limits(LIMITS, theirs(1 << 20, 1 << 20, record=RECORD_EXTRA_BYTES - 1))


@pytest.mark.parametrize(("window", "frame"), [(2047, 1024), (1 << 20, 1023), (1, 1), (0, 0)])
def test_limits_that_leave_no_room_are_refused(window: int, frame: int) -> None:
    with pytest.raises(RemoteProtocolError, match="window of"):
        negotiate_limits(LIMITS, theirs(window, frame))


# Sending


def test_never_more_than_the_window_in_flight() -> None:
    link = make_link()
    for ident in range(40):
        push(link, ident, bytes(500))
    left = take_frames(link)
    in_flight = sum(len(frame.data) for frame in left)
    assert LIMITS.window_bytes - LIMITS.frame_bytes_max < in_flight <= LIMITS.window_bytes
    assert link.data.unacked_bytes == in_flight
    assert take_frames(link) == []
    feed(link, sequence=0, ack_data=left[0].sequence)
    assert [frame.sequence for frame in take_frames(link)] == [left[-1].sequence + 1]


def test_control_waits_for_its_own_credit_only() -> None:
    link = make_link()
    for ident in range(40):
        push(link, ident, bytes(500))
    take_frames(link)
    link.send_control(Kind.CANCEL, 7, b"")
    (frame,) = take_frames(link)
    assert (frame.lane, frame.records[0][:3]) == (CONTROL, (Kind.CANCEL, 0, 7))


def test_control_is_never_more_than_its_window_either() -> None:
    link = make_link()
    for ident in range(100):
        link.send_control(Kind.SUBSCRIBE, ident, bytes(200))
    left = take_frames(link)
    assert sum(len(frame.data) for frame in left) <= LIMITS.window_bytes
    assert len(take_records(link)) < 100
    assert take_records(link) == []


@pytest.mark.parametrize("size", [512, 513, 2048, 5000, 100_000])
def test_a_large_control_record_travels_in_pieces(size: int) -> None:
    """Found: one larger than the frame the ends agreed on left in one piece all the same."""
    one, other = make_link(up=False), make_link(up=False)
    cable = Cable(one, other)
    body = bytes(n % 251 for n in range(size))
    one.send_control(Kind.GOSSIP, 0, body)
    cable.flush(0)
    arrived = []
    while cable.wires[0, CONTROL]:
        arrived += cable.carry(0, CONTROL)
        cable.wait(1.0)
        while cable.wires[1, CONTROL]:
            cable.carry(1, CONTROL)
            cable.flush(0)
    assert arrived == [(Kind.GOSSIP, 0, body)]


def test_a_peer_that_never_takes_its_control_records_is_given_up() -> None:
    link = make_link(up=False)
    size = CONTROL_QUEUE_BYTES_MAX // 16
    for ident in range(17):
        assert link.control_overflowed is (ident > 15)
        link.send_control(Kind.GOSSIP, ident, bytes(size))
    assert link.control_overflowed, (
        "the core gives it up; nobody who only wanted to say something crashes"
    )


def test_unsequenced_frames_are_not_kept_and_need_a_connection() -> None:
    link = make_link()
    out: list[Instruction] = []
    link.send_unsequenced(out, [pack_record(Kind.HEARTBEAT, 0, b"\x91\x80")])
    (frame,) = frames(out)
    assert (frame.lane, frame.sequence, len(link.control.unacked)) == (CONTROL, 0, 0)
    link.detach((CONTROL, 0))
    out.clear()
    link.send_unsequenced(out, [])
    assert out == []


def test_touching_a_lane_says_nothing_on_it_if_it_is_there() -> None:
    link = make_link()
    out: list[Instruction] = []
    for conn in ((DATA, 0), (CONTROL, 0), (DATA, 1)):
        link.send_empty_frame(conn, out)
    assert [(frame.lane, frame.sequence, frame.records) for frame in frames(out)] == [
        (DATA, 0, []), (CONTROL, 0, []),
    ]  # fmt: skip
    link.detach((DATA, 0))
    out.clear()
    link.send_empty_frame((DATA, 0), out)
    assert out == []


def test_ids_are_never_given_twice() -> None:
    link = make_link()
    assert [link.new_id() for _ in range(3)] == [1, 2, 3]


# Receiving


def test_delivers_once_in_order_and_wants_the_acknowledgement_repeated() -> None:
    link = make_link()
    assert feed(link, pack_record(Kind.REPLY, 1, b"one")) == [b"one"]
    assert link.ack_due_s == LIMITS.ack_delay_s
    assert feed(link, pack_record(Kind.REPLY, 1, b"one")) == []
    assert link.ack_due_s == 0.0, "it was sent again, so our acknowledgement got lost"
    assert link.statistics().duplicates_dropped == 1


def test_a_gap_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="frame 2 instead of 1"):
        feed(make_link(), sequence=2)


@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.REQUEST, Kind.TUNNEL_DATA, Kind.GOSSIP])
def test_what_no_window_bounds_is_refused(kind: Kind) -> None:
    """A link half up kept all of it, 80 MB where the window was 64 KB."""
    link = make_link()
    assert len(feed(link, pack_record(Kind.HEARTBEAT, 0, b"\x91\x80"), sequence=0)) == 1
    with pytest.raises(RemoteProtocolError, match="unsequenced records"):
        feed(link, pack_record(kind, 1, b"body"), sequence=0)


def test_every_frame_acknowledges_both_lanes() -> None:
    link = make_link()
    feed(link)
    push(link, 1, b"")
    (frame,) = take_frames(link)
    assert (frame.ack_control, frame.ack_data) == (0, 1)
    assert link.ack_due_s is None
    assert link.data.ack_pending_bytes == 0


def test_much_unacknowledged_is_acknowledged_at_once() -> None:
    link = make_link()
    body = bytes(LIMITS.window_bytes // 8 - 100)
    feed(link, pack_record(Kind.REPLY, 1, body))
    assert not link.needs_ack_now()
    feed(link, pack_record(Kind.REPLY, 2, bytes(100)), sequence=2)
    assert link.needs_ack_now()


def test_more_than_the_window_is_refused() -> None:
    link = make_link()
    body = bytes(2000)
    with pytest.raises(RemoteProtocolError, match="the window is 8192"):
        for sequence in range(1, 6):
            feed(link, pack_record(Kind.REPLY, sequence, body), sequence=sequence)
    assert link.data.expected == 6, "four fit, the fifth did not"


def test_what_the_greeting_acknowledged_is_not_counted_again() -> None:
    """Found: after a resume the peer has its whole window again, and using it was held against it.

    The control lane was still away, so that no frame could acknowledge anything meanwhile.
    """
    link = make_link()
    for sequence in (1, 2):
        feed(link, pack_record(Kind.REPLY, sequence, bytes(1900)), sequence=sequence)
    for lane in LANES:
        link.detach((lane, 0))
    link.attach(DATA, "data again", 1)
    for sequence in range(3, 7):
        feed(link, pack_record(Kind.REPLY, sequence, bytes(1900)), sequence=sequence)
    assert link.data.expected == 7


# Pieces


PIECE = bytes(PIECE_BYTES_MIN)


def test_pieces_become_one_record_and_others_may_come_between() -> None:
    link = make_link()
    got = feed(
        link, pack_record(Kind.REPLY, 1, PIECE, MORE), pack_record(Kind.REPLY, 2, b"whole"),
        pack_record(Kind.REQUEST, 1, b"other kind"), pack_record(Kind.REPLY, 1, b"end"),
    )  # fmt: skip
    assert got == [b"whole", b"other kind", PIECE + b"end"]
    assert feed(link, pack_record(Kind.REPLY, 1, b"again"), sequence=2) == [b"again"]


def test_a_record_that_is_whole_counts_no_longer() -> None:
    link = make_link(reassembly_bytes_max=2 * PIECE_BYTES_MIN)
    for sequence in range(1, 9):
        piece, rest = pack_record(Kind.REPLY, 7, PIECE, MORE), pack_record(Kind.REPLY, 7, b"x")
        assert feed(link, piece, rest, sequence=sequence) == [PIECE + b"x"]


@pytest.mark.parametrize("ident", [lambda n: 1, lambda n: n], ids=["one record", "many records"])
def test_unfinished_records_are_bounded_together(ident: Callable[[int], int]) -> None:
    link = make_link(reassembly_bytes_max=4 * PIECE_BYTES_MIN)
    with pytest.raises(
        RemoteProtocolError,
        match=f"{5 * PIECE_BYTES_MIN} bytes of unfinished records, the limit is {4 * PIECE_BYTES_MIN}",
    ):
        for n in range(1, 6):
            feed(link, pack_record(Kind.REPLY, ident(n), PIECE, MORE), sequence=n)
    assert link.data.expected == 6


def test_a_small_piece_does_not_keep_the_frame_it_came_in() -> None:
    """A large one does, and is not copied."""
    link, beside, frames = make_link(window_bytes=1 << 20), bytes(50_000), 12
    tracemalloc.start()
    try:
        for n in range(1, frames + 1):
            piece = pack_record(Kind.REPLY, 1, PIECE, MORE)
            feed(link, piece, pack_record(Kind.REPLY, 2, beside), sequence=n)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert frames * len(PIECE) < kept_bytes < frames * len(beside) / 10


def test_a_record_over_its_limit_is_refused() -> None:
    link = make_link(record_bytes_max=2 * PIECE_BYTES_MIN)
    for n in (1, 2):
        feed(link, pack_record(Kind.REPLY, 1, PIECE, MORE), sequence=n)
    with pytest.raises(RemoteProtocolError, match="record of more than 1024 bytes"):
        feed(link, pack_record(Kind.REPLY, 1, b"x"), sequence=3)


def test_a_small_first_piece_makes_the_limit_no_larger() -> None:
    """Found: pieces were counted as if each were as small as the first one."""
    link = make_link(record_bytes_max=8 * PIECE_BYTES_MIN)
    feed(link, pack_record(Kind.REPLY, 1, PIECE, MORE))
    with pytest.raises(RemoteProtocolError, match="record of more than 4096 bytes"):
        feed(link, pack_record(Kind.REPLY, 1, 8 * PIECE, MORE), sequence=2)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES_MIN - 1])
def test_crumbs_are_refused(size: int) -> None:
    """Found: empty or tiny pieces cost a peer nothing and us a list entry, or a record, each."""
    with pytest.raises(RemoteProtocolError, match="piece of"):
        feed(make_link(), pack_record(Kind.REPLY, 1, bytes(size), MORE))


def test_statistics_count_frames_and_bytes() -> None:
    link = make_link()
    feed(link, pack_record(Kind.REPLY, 1, b"abc"))
    push(link, 1, b"abcd")
    push(link, 2, bytes(100))
    left = take_frames(link)
    push(link, 3, b"")
    statistics = link.statistics()
    assert (statistics.peer, statistics.cluster, statistics.dialled) == (OTHER, "shop", True)
    assert (statistics.frames_received, statistics.bytes_received) == (1, 32 + 16 + 3)
    assert (statistics.frames_sent, statistics.bytes_sent) == (1, len(left[0].data))
    assert (statistics.unacked_bytes, statistics.outbox_bytes) == (len(left[0].data), 16)
    assert "up=True" in repr(link)
