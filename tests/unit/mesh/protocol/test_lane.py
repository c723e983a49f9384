from __future__ import annotations

import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.frame import DATA
from mesh.protocol.lane import Lane


def sent(*frames: bytes) -> Lane:
    lane = Lane(DATA, 100)
    for frame in frames:
        lane.keep(frame)
    return lane


def test_credit_is_what_the_window_leaves() -> None:
    lane = sent(b"x" * 30, b"y" * 50)
    assert (lane.credit_bytes(), lane.unacked_bytes, lane.next_sequence) == (20, 80, 3)
    lane.acknowledge(1)
    assert lane.credit_bytes() == 50
    lane.acknowledge(2)
    assert (lane.credit_bytes(), list(lane.unacked)) == (100, [])


def test_acknowledgements_are_cumulative_and_old_ones_change_nothing() -> None:
    lane = sent(b"a", b"b", b"c")
    for through in (2, 2, 0):
        lane.acknowledge(through)
        assert ([sequence for sequence, _ in lane.unacked], lane.unacked_bytes) == ([3], 1)


def test_acknowledging_what_was_never_sent_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="frame 3, but only 2 were sent"):
        sent(b"a", b"b").acknowledge(3)


def test_is_acked() -> None:
    lane = sent(b"a", b"b", b"c")
    lane.acknowledge(1)
    assert [lane.is_acked(sequence) for sequence in range(4)] == [False, True, False, False]
    lane.acknowledge(3)
    assert [lane.is_acked(sequence) for sequence in range(5)] == [False, True, True, True, False]


def test_accepts_each_frame_once_and_in_order() -> None:
    lane = Lane(DATA, 100)
    assert lane.accept(1, 10)
    assert not lane.accept(1, 10), "seen before"
    assert lane.accept(2, 7)
    assert (lane.expected, lane.ack_pending_bytes) == (3, 17), "a duplicate counts once"
    with pytest.raises(RemoteProtocolError, match="frame 4 instead of 3"):
        lane.accept(4, 1)


def test_resumes_with_just_what_is_missing() -> None:
    lane = sent(b"a", b"b", b"c")
    assert lane.resume(1) == [b"a", b"b", b"c"]
    assert lane.resume(3) == [b"c"]
    assert lane.unacked_bytes == 1, "what the peer expects next acknowledges all before it"
    assert lane.resume(4) == []


@pytest.mark.parametrize("expects", [0, 1, 5])
def test_cannot_resume_what_was_forgotten_or_never_sent(expects: int) -> None:
    lane = sent(b"a", b"b", b"c")
    lane.acknowledge(1)
    with pytest.raises(
        RemoteProtocolError, match=f"expects frame {expects}, but only 2 to 3 are kept"
    ):
        lane.resume(expects)
    assert lane.unacked_bytes == 2, "a refused resume changes nothing"


def test_a_fresh_lane_resumes_from_one_only() -> None:
    assert Lane(DATA, 1).resume(1) == []
    for expects in (0, 2):
        with pytest.raises(RemoteProtocolError):
            Lane(DATA, 1).resume(expects)
