"""A snapshot that stands twice in the log, one of its records damaged."""

from __future__ import annotations

import pytest

from durable.vhost.changes import LANES, QUEUE, SNAPSHOT, SNAPSHOT_END, Change
from spark.capture.lanes import Lane, Lanes

SNAPSHOT_RECORDS: list[Change] = [
    [SNAPSHOT, 3],
    [QUEUE, [2], {"name": "b"}],
    [LANES, [[2, 5, b""]]],
    [SNAPSHOT_END],
]


@pytest.mark.parametrize("lost", [None, *range(2 * len(SNAPSHOT_RECORDS))])
def test_either_copy_of_a_snapshot_says_what_there_is(lost: int | None) -> None:
    lanes = Lanes()
    lanes.apply([QUEUE, [1], {"name": "a"}], 1)
    for at, change in enumerate(2 * SNAPSHOT_RECORDS):
        if at != lost:
            lanes.apply(change, 2 + at)
    lanes.adopt([1, 2])
    assert (lanes.has_snapshot, lanes.next_offsets) == (True, {2: 5})
    assert lanes.all() == {2: Lane("b", 0, is_stream=False)}
