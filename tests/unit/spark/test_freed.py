"""A query from an offset on, in a log of which segments were freed: every offset it misses is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from durable.cli import main
from spark.capture.catalog import ATTEMPTS
from spark.capture.stored import StoredLog
from spark.errors import DataLost, InvalidOption
from tests.captures import Captured
from tests.stores import flip
from tests.unit.spark.loading import loaded, planned, rows_of
from tests.unit.spark.streams import Stream

EVERYTHING = 180


def written(data: Path) -> tuple[Captured, list[int]]:
    """90 records of two messages each, in segments of about 14; where each of them is."""
    captured = Captured(data)
    captured.declare("jobs", 1)
    captured.declare("other", 2)
    positions = [captured.publish([1], [b"%d" % one, b"x" * 50]) for one in range(EVERYTHING // 2)]
    return captured, positions


def offsets_in(captured: Captured, positions: list[int], segment: int) -> list[int]:
    found = [at for at, one in enumerate(positions) if captured.segment_of(one) == segment]
    return [*range(2 * found[0], 2 * found[-1] + 2)]


def read(captured: Captured, start: int, how: str, **given: Any) -> list[int]:
    asked = {"startingOffsets": f'{{"jobs": {{"0": {start}}}}}', "queues": "jobs", **given}
    if how == "batch":
        return sorted(one.offset for one in loaded(captured.data, **asked))
    stream = Stream(captured.data, **asked)
    stream.run()
    return sorted(one.offset for one in stream.messages)


@pytest.fixture
def freeing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Captured, list[int]], None]:
    """A broker that frees one of these segments whenever the log has been refreshed."""

    def free(captured: Captured, numbers: list[int]) -> None:
        refresh = StoredLog.refresh

        def refreshed(log: StoredLog) -> None:
            refresh(log)
            if numbers:
                captured.free(numbers.pop(0))

        monkeypatch.setattr(StoredLog, "refresh", refreshed)

    return free


both = pytest.mark.parametrize("how", ["batch", "stream"])


@both
def test_an_old_message_that_was_carried_hides_no_loss(tmp_path: Path, how: str) -> None:
    """Found: of the copies, too, only the least offset was looked at, and 26 were missing without a word."""
    captured, positions = written(tmp_path)
    gone = offsets_in(captured, positions, 1)
    captured.carry(positions[0], 1)
    captured.snapshot()
    captured.free(1)
    with pytest.raises(DataLost, match=f"offsets 2 to {gone[-1]} of 'jobs' were freed"):
        read(captured, 2, how)
    after = list(range(gone[-1] + 1, EVERYTHING))
    assert read(captured, gone[-1] + 1, how) == after
    assert read(captured, 1, how, failOnDataLoss="false") == [1, *after]


@both
def test_a_segment_freed_in_the_middle_is_told(tmp_path: Path, how: str) -> None:
    """Found: it was not; compaction frees what is mostly settled, not only what is oldest."""
    captured, positions = written(tmp_path)
    gone = offsets_in(captured, positions, 2)
    captured.carry(positions[gone[4] // 2], 1)
    captured.snapshot()
    captured.free(2)
    told = f"offsets {gone[0]} to {gone[3]} of 'jobs' and {len(gone) - 6} later ones were freed"
    with pytest.raises(DataLost, match=told):
        read(captured, 2, how)
    assert read(captured, gone[-1] + 1, how) == list(range(gone[-1] + 1, EVERYTHING))
    if how == "batch":
        ending = f'{{"jobs": {{"0": {gone[0]}}}}}'
        assert read(captured, 2, how, endingOffsets=ending) == list(range(2, gone[0]))


@both
def test_what_was_carried_whole_is_no_loss(tmp_path: Path, how: str) -> None:
    captured, positions = written(tmp_path)
    for position in positions:
        if captured.segment_of(position) <= 2:
            captured.carry(position, 1)
    captured.snapshot()
    captured.free(1, 2)
    assert read(captured, 3, how) == list(range(3, EVERYTHING))


@both
def test_what_was_freed_before_a_log_was_salvaged_is_told(tmp_path: Path, how: str) -> None:
    """Found: it was not, for a salvaged log has no hole in its log positions."""
    captured, positions = written(tmp_path / "old")
    gone = offsets_in(captured, positions, 1)
    captured.snapshot()
    captured.free(1)
    captured.close()
    assert main(["salvage", str(tmp_path / "old"), "--to", str(tmp_path / "new")]) == 0
    captured.data = tmp_path / "new"
    with pytest.raises(DataLost, match=f"offsets 2 to {gone[-1]} of 'jobs' were freed"):
        read(captured, 2, how)
    after = list(range(gone[-1] + 1, EVERYTHING))
    assert read(captured, gone[-1] + 1, how) == after
    assert read(captured, 2, how, failOnDataLoss="false") == after


@both
def test_what_is_damaged_was_not_freed(tmp_path: Path, how: str) -> None:
    captured, positions = written(tmp_path)
    flip(captured.path / "msgs.0000000003", 200)
    captured.snapshot()
    captured.free(1)
    start = offsets_in(captured, positions, 1)[-1] + 1
    assert len(read(captured, start, how, damaged="skip")) == EVERYTHING - start - 2


@both
def test_a_queue_of_which_nothing_stands_ends_where_the_snapshot_says(
    tmp_path: Path, how: str
) -> None:
    """Found: a job that bookmarks offsets was refused its own, with failOnDataLoss=false, too."""
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    captured.declare("other", 2)
    positions = [captured.publish([1], [b"%d" % one, b"x" * 50]) for one in range(20)]
    for one in range(60):
        captured.publish([2], [b"%d" % one * 50])
    captured.snapshot()
    assert read(captured, 40, how) == []
    captured.free(*range(1, captured.segment_of(positions[-1]) + 1))
    for lossy in ("true", "false"):
        assert read(captured, 40, how, failOnDataLoss=lossy) == []
    with pytest.raises(InvalidOption, match="want at most 40, which is its end"):
        read(captured, 41, how)
    with pytest.raises(DataLost, match="offsets 38 to 39 of 'jobs' were freed"):
        read(captured, 38, how)
    assert read(captured, 38, how, failOnDataLoss="false") == []
    captured.publish([1], [b"later"])
    assert read(captured, 40, how) == [40]
    with pytest.raises(DataLost, match="offsets 39 to 39 of 'jobs' were freed"):
        read(captured, 39, how)


def anew(captured: Captured, how: str) -> list[int]:
    if how == "batch":
        return sorted(one.offset for one in loaded(captured.data, failOnDataLoss="false"))
    stream = Stream(captured.data, startingOffsets="earliest", failOnDataLoss="false")
    stream.run()
    return sorted(one.offset for one in stream.messages)


Freeing = Callable[[Captured, list[int]], None]


@both
def test_a_segment_freed_while_a_plan_is_made(tmp_path: Path, how: str, freeing: Freeing) -> None:
    """Found: a bare FileNotFoundError, from wherever definitions or times were to be read."""
    captured, positions = written(tmp_path)
    captured.snapshot()
    left = list(range(offsets_in(captured, positions, 2)[-1] + 1, EVERYTHING))
    freeing(captured, [1, 2])
    assert anew(captured, how) == left


def test_a_segment_freed_while_a_time_is_looked_for(tmp_path: Path, freeing: Freeing) -> None:
    captured, positions = written(tmp_path)
    captured.snapshot()
    gone = offsets_in(captured, positions, 2)
    freeing(captured, [2])
    time_us = captured.messages[gone[3]].time_us
    stream = Stream(captured.data, startingTimestamp=time_us // 1000)
    stream.run()
    assert [one.offset for one in stream.messages] == list(range(gone[-1] + 1, EVERYTHING))


def test_a_segment_freed_while_a_batch_of_a_restarted_stream_is_planned(
    tmp_path: Path, freeing: Freeing
) -> None:
    captured, positions = written(tmp_path)
    stream = Stream(captured.data, startingOffsets="earliest")
    end = stream.reader.latestOffset(stream.at, stream.reader.getDefaultReadLimit())
    captured.snapshot()
    stream.restart(failOnDataLoss="false")
    freeing(captured, [1])
    splits = stream.reader.partitions(stream.at, end)
    rows = [row for one in splits for batch in stream.reader.read(one) for row in batch.to_pylist()]
    assert min(row["offset"] for row in rows) == offsets_in(captured, positions, 1)[-1] + 1


@both
def test_segments_that_are_freed_for_ever_end_the_query(
    tmp_path: Path, how: str, freeing: Freeing
) -> None:
    captured, segments = Captured(tmp_path), 2 * ATTEMPTS + 2
    for number in range(1, segments + 1):  # In each of them something is declared.
        captured.declare(f"jobs.{number}", number)
        while captured.segment_of(captured.publish([number], [b"x" * 200])) <= number:
            pass
    freeing(captured, list(range(1, segments)))
    with pytest.raises(DataLost, match=f"freed {ATTEMPTS} times while they were counted") as caught:
        anew(captured, how)
    assert "failOnDataLoss" not in str(caught.value), "it was given, and spares nobody this"


def test_a_task_that_was_told_to_go_on_is_not_told_how(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: its log advised failOnDataLoss=false in each line, whose query had it."""
    captured, _ = written(tmp_path)
    captured.snapshot()
    (work,) = planned(tmp_path)
    captured.free(1)
    assert rows_of(tmp_path, work, failOnDataLoss="false")
    (told,) = caplog.messages
    assert told.startswith("msgs.0000000001 was freed before it was read")
    assert "failOnDataLoss" not in told
