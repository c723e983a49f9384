"""How far a trigger goes, against counting one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from spark.capture.advance import advance
from spark.capture.plan import Offsets, Selected, Times
from tests.captures import Captured
from tests.unit.spark.loading import looked


@pytest.mark.parametrize("seed", range(5))
def test_it_stops_before_the_record_that_is_too_much(tmp_path: Path, seed: int) -> None:
    """Goal: at most `rows_max`, but one record at least. Oracle: add up record by record."""
    random, captured = Random(seed), Captured(tmp_path)
    captured.declare("jobs", 1)
    captured.declare("audit", 2, stream=True)
    rows: dict[int, int] = {}
    for _ in range(80):
        lanes, count = random.choice([[1], [2], [1, 2]]), random.randint(1, 9)
        position = captured.publish(lanes, [b"x"] * count)
        rows[position] = count if 1 in lanes else 0
    log = looked(captured)
    table = {1: Offsets("jobs", 0, 0, 1 << 62)}
    for rows_max in (1, 7, 30, 1000):
        position, batches = 1, 0
        while position < log.end:
            selected = Selected(log, table, Times(), position, log.end)
            end = advance(selected, rows_max=rows_max, bytes_max=None)
            taken = [count for one, count in rows.items() if position <= one < end and count]
            assert sum(taken) <= rows_max or len(taken) == 1
            if end < log.end:
                assert sum(taken) + rows[end] > rows_max, "it could have gone further"
            position, batches = end, batches + 1
        assert batches > 1 or rows_max == 1000


def test_bytes_are_those_of_records(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    positions = [captured.publish([1], [b"x" * 60]) for _ in range(10)]
    log = looked(captured)
    selected = Selected(log, {1: Offsets("jobs", 0, 0, 1 << 62)}, Times(), 1, log.end)
    size = 64 + 16 + 64 + len("orders.eu") + 4 + 60
    size += -size % 8
    assert advance(selected, rows_max=None, bytes_max=3 * size) == positions[3]
    assert advance(selected, rows_max=None, bytes_max=3 * size - 1) == positions[2]
    assert advance(selected, rows_max=None, bytes_max=1) == positions[1]


def test_offsets_that_are_not_read_do_not_count(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    positions = [captured.publish([1], [b"x", b"y"]) for _ in range(10)]
    log = looked(captured)
    selected = Selected(log, {1: Offsets("jobs", 0, 7, 1 << 62)}, Times(), 1, log.end)
    assert advance(selected, rows_max=3, bytes_max=None) == positions[5]


def test_what_was_carried_counts_where_it_was_first(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    positions = [captured.publish([1], [b"x" * 50]) for _ in range(60)]
    gone = [one for one in positions if captured.segment_of(one) == 1]
    for position in gone:
        captured.carry(position, 1)
    captured.free(1)
    log = looked(captured)
    selected = Selected(log, {1: Offsets("jobs", 0, 0, 1 << 62)}, Times(), 1, log.end)
    for rows_max in (1, 5, len(gone), len(gone) + 3):
        assert advance(selected, rows_max=rows_max, bytes_max=None) == positions[rows_max]
