"""Gaps of streams: what a reader is told of them, also when those that it has yet to read are merged."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from durable.log.bodies import Missed
from durable.vhost.gaps import Gaps, StreamGap

LANE = 7
FEW = 3
PUBLISHER = bytes(range(16))


def gap(offset: int, messages: int, lane: int = LANE) -> StreamGap:
    return StreamGap(lane, offset, Missed(PUBLISHER, 1, "t", offset, messages))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=40))
def test_a_reader_is_told_once_of_each_message_that_is_missing(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Oracle: the sum of all that were noted."""
    gaps = Gaps()
    noted = told = offset = read_end = 0
    for further, messages, reads in steps:
        offset = max(offset + further, read_end)
        with patch("durable.vhost.gaps.GAPS_MAX", FEW):
            gaps.note(gap(offset, messages))
        noted += messages
        assert gaps.missing(LANE) == gaps.missing_before(LANE, offset + 1) == noted
        assert sum(one.missed.messages for one in gaps.of(LANE)) == noted
        assert len(gaps.of(LANE)) <= FEW
        if reads:
            found = gaps.between(LANE, read_end, offset + 1, told)
            told += sum(one.missed.messages for one in found)
            assert told == found[-1].total == noted
            read_end = offset + 1
            assert not gaps.between(LANE, read_end, read_end + 1, told)


def test_what_is_forgotten_of_one_stream_stays_of_others() -> None:
    gaps = Gaps()
    for lane in (1, 2, 3):
        gaps.note(gap(5, lane, lane))
    gaps.forget(2)
    gaps.forget(2)
    assert [(one.lane, one.total) for one in gaps] == [(1, 1), (3, 3)]
    assert (gaps.of(2), gaps.missing(2), gaps.missing_before(2, 9)) == ((), 0, 0)
    gaps.keep_only({2, 3})
    assert [one.lane for one in gaps] == [3]
    assert gaps
    gaps.clear()
    assert not gaps
