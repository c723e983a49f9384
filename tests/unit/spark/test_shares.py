"""A batch of a stream that is planned again has the same rows in the same tasks, however the log is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from spark.capture.plan import Offsets, Selected, Times
from spark.capture.progress import Progress, from_json
from spark.capture.shares import share_out
from spark.capture.stored import StoredLog
from tests.captures import Captured, Message, compacted, of_rows, varied
from tests.unit.spark.loading import looked, query

EVERYTHING = 1 << 62


def whole(log: StoredLog, start: int, end: int) -> Selected:
    lanes = {
        number: Offsets(lane.queue, lane.partition, 0, EVERYTHING)
        for number, lane in log.lanes().items()
    }
    return Selected(log, lanes, Times(), start, end)


def tasks(
    captured: Captured, selected: Selected, kept: Progress, **options: str
) -> list[list[Message]]:
    """The rows of each, by what Spark's checkpoint has of the batch."""
    asked = query(captured.data, includeHeaders="true", **options)
    shares = from_json(kept.to_json()).shares
    assert shares is not None
    return [
        of_rows(row for batch in asked.read(one, Times()) for row in batch.to_pylist())
        for one in share_out(selected, shares)
    ]


def kept_of(captured: Captured, selected: Selected, **options: str) -> Progress:
    shares = query(captured.data, includeHeaders="true", **options).shares(selected)
    return Progress("s", selected.end).with_shares(shares)


@pytest.mark.parametrize("ordering", ["none", "queue"])
def test_a_batch_has_the_same_tasks_after_a_restart(tmp_path: Path, ordering: str) -> None:
    """One reader looked often, the other one once, when more had been written."""
    options = {"ordering": ordering, "minPartitions": "3"}
    captured = Captured(tmp_path)
    captured.declare("jobs", 1, 2)
    captured.declare("audit", 3, stream=True)
    live = StoredLog(captured.path)
    for number in range(40):
        captured.publish([1 + number % 3], [b"%d" % number, b"x" * 40])
        live.refresh()
    before = [*captured.messages]
    selected = whole(live, 1, live.end)
    kept = kept_of(captured, selected, **options)
    first = tasks(captured, selected, kept, **options)
    assert [one for one in first if one][1:], "there is more than one task"
    for number in range(60):
        captured.publish([3], [b"%d" % number, b"later" * 10])
    again = tasks(captured, whole(looked(captured), 1, live.end), kept, **options)
    assert again == first
    assert sorted(one for rows in first for one in rows) == sorted(before)


@pytest.mark.parametrize("ordering", ["none", "queue"])
@pytest.mark.parametrize("compact", [False, True])
def test_every_row_is_in_one_task(tmp_path: Path, ordering: str, compact: bool) -> None:
    """Goal: none twice, none left out, wherever it is cut. Oracle: one task."""
    captured = compacted(tmp_path) if compact else varied(tmp_path, 7)
    if compact:
        captured.free(1, 2)
    log = looked(captured)
    options = {"ordering": ordering, "minPartitions": "1"}
    for start in (1, log.start, (log.start + log.end) // 2):
        selected = whole(log, start, log.end)
        alone = tasks(captured, selected, kept_of(captured, selected, **options), **options)
        for count in (2, 5, 40):
            many = {**options, "minPartitions": str(count)}
            found = tasks(captured, selected, kept_of(captured, selected, **many), **many)
            assert sorted(one for rows in found for one in rows) == sorted(
                one for rows in alone for one in rows
            )


def test_what_an_earlier_version_has_kept_says_nothing_of_tasks() -> None:
    kept = {"store": "s", "position": 5}
    assert from_json(kept).shares is None
    assert from_json(kept).to_json() == kept
