"""Segments that lack records at their end, in the middle of a log: somebody or something cut them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from durable.log.header import SEGMENT_HEADER_BYTES
from spark.errors import CaptureCut, CaptureDamaged, DataLost
from tests.captures import Captured, compacted, of_rows, varied
from tests.stores import flip
from tests.unit.spark.loading import loaded, looked, planned, rows_of


def cut(captured: Captured, number: int, size_bytes: int) -> None:
    file = captured.path / f"msgs.{number:010d}"
    file.write_bytes(file.read_bytes()[:size_bytes])


def cleared(captured: Captured, number: int, at: int) -> None:
    """Zeros from there on, in a file as long as it was."""
    file = captured.path / f"msgs.{number:010d}"
    data = file.read_bytes()
    file.write_bytes(data[:at] + bytes(len(data) - at))


def record_ends(captured: Captured, number: int) -> list[int]:
    """Bytes at which a record ends and another one, that is no seal, begins."""
    segments, reader = captured.log.store.segments, captured.log.store.reader
    (segment,) = (one for one in segments if one.number == number)
    records = reader.read_some(segment.first, segment.end, 1 << 20)
    ends = [SEGMENT_HEADER_BYTES]
    for record in records:
        ends.append(ends[-1] + record.header.total_bytes)
    return ends[1:-1]


@pytest.mark.parametrize("ordering", ["none", "queue"])
@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("where", ["empty", "header", "record"])
def test_a_segment_that_was_cut_is_not_read_as_all_there(
    tmp_path: Path, number: int, where: str, zeros: bool, ordering: str
) -> None:
    """Found: 2101 of 2275 rows and no error, though `mesh-broker verify` told the positions. Then the same where
    the file has its size, and zeros stand where it was cut."""
    captured = varied(tmp_path, 2)
    at = {"empty": 0, "header": SEGMENT_HEADER_BYTES, "record": record_ends(captured, number)[3]}
    captured.close()
    (cleared if zeros else cut)(captured, number, at[where])
    with pytest.raises(CaptureCut, match=r"log positions \d+ to \d+ are missing"):
        loaded(tmp_path, ordering=ordering)
    # Queues are known by their lanes only when the segment with their declarations is gone.
    found, there = (
        Counter(one._replace(queue="", partition=0) for one in messages)
        for messages in (loaded(tmp_path, damaged="skip", ordering=ordering), captured.messages)
    )
    assert found
    assert there - found
    assert not found - there


def test_a_lane_of_which_nothing_else_stands_is_not_read_as_empty(tmp_path: Path) -> None:
    """Found: with `ordering=queue` what belongs to no lane that is known was nobody's to look at."""
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    captured.declare("later", 2)
    captured.publish([1], [b"x" * 1000])
    while captured.segment_of(captured.publish([2], [b"y" * 1000])) < 3:
        pass
    captured.close()
    cut(captured, 1, record_ends(captured, 1)[1])
    for ordering in ("none", "queue"):
        with pytest.raises(CaptureCut):
            loaded(tmp_path, queues="jobs", ordering=ordering)


def test_what_was_cut_off_is_kept_as_one_row(tmp_path: Path) -> None:
    captured = varied(tmp_path, 2)
    captured.close()
    cut(captured, 4, record_ends(captured, 4)[3])
    for ordering in ("none", "queue"):
        rows = [
            row
            for work in planned(tmp_path, ordering=ordering, minPartitions=3)
            for row in rows_of(tmp_path, work, damaged="keep", ordering=ordering, minPartitions=3)
        ]
        assert sum(row["queue"] is None for row in rows) == 1


def test_what_is_freed_or_last_or_being_written_is_not_cut(tmp_path: Path) -> None:
    captured = varied(tmp_path, 2)
    log = looked(captured)
    numbers = [one.number for one in log.contents]
    captured.free(*numbers[3:6])
    loaded(tmp_path)
    for _ in range(60):
        captured.publish([1], [b"x" * 100])
        log.refresh()
        assert not any(one.missing for one in log.contents)
    captured.close()
    cut(captured, log.contents[-1].number, SEGMENT_HEADER_BYTES)
    assert not any(one.missing for one in looked(captured).contents), "as after a power cut"


def test_copies_stand_for_what_was_cut_off(tmp_path: Path) -> None:
    """Found: what compaction had carried was left out, as if its original stood in what was cut."""
    captured = compacted(tmp_path)
    captured.close()
    whole = loaded(tmp_path, queues="jobs", streams="audit")
    cut(captured, 2, SEGMENT_HEADER_BYTES)
    found = loaded(tmp_path, damaged="skip")
    lost = Counter(whole) - Counter(found)
    carried = {one for one in lost if one.queue == "jobs" and one.sequence // 2 % 3 == 0}
    assert lost
    assert not carried


def test_segments_under_each_others_names_are_damage(tmp_path: Path) -> None:
    """Found: two files changed places, and a plan ended in `ValueError: zip()`."""
    captured = varied(tmp_path, 2)
    captured.close()
    one, other = (captured.path / f"msgs.{number:010d}" for number in (4, 5))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    for ordering in ("none", "queue"):
        with pytest.raises(CaptureDamaged):
            loaded(tmp_path, ordering=ordering)
    found = Counter(loaded(tmp_path, damaged="skip"))
    assert found
    assert not found - Counter(captured.messages)


def test_a_segment_in_which_no_record_is_left_is_damage(tmp_path: Path) -> None:
    captured = varied(tmp_path, 2)
    captured.close()
    file = captured.path / "msgs.0000000004"
    data = file.read_bytes()
    file.write_bytes(data[:SEGMENT_HEADER_BYTES] + b"~" * (len(data) - SEGMENT_HEADER_BYTES))
    for ordering in ("none", "queue"):
        with pytest.raises(CaptureDamaged, match="are damaged"):
            loaded(tmp_path, ordering=ordering)
    assert loaded(tmp_path, damaged="skip")


@pytest.mark.parametrize("ordering", ["none", "queue"])
@pytest.mark.parametrize("where", ["header", "header, zeros", "record, zeros", "in a header"])
def test_a_segment_that_was_cut_before_one_that_was_freed_is_not_read_as_all_there(
    tmp_path: Path, where: str, ordering: str
) -> None:
    """Found: only the segment behind it, where that stood, told that records are missing."""
    captured = varied(tmp_path, 2)
    ends = record_ends(captured, 4)
    captured.close()
    first = looked(captured).contents[3].first
    captured.free(5)
    following = looked(captured).contents[4].first
    at, start = {
        "header": (SEGMENT_HEADER_BYTES, first),
        "header, zeros": (SEGMENT_HEADER_BYTES, first),
        "record, zeros": (ends[2], first + 3),
        "in a header": (ends[2] + 30, first + 3),
    }[where]
    whole = Counter(loaded(tmp_path))
    (cleared if "zeros" in where else cut)(captured, 4, at)
    told = f"log positions {start} to {following - 1} are missing"
    with pytest.raises(CaptureCut, match=told):
        loaded(tmp_path, ordering=ordering)
    found = Counter(loaded(tmp_path, damaged="skip", ordering=ordering))
    assert found < whole


def test_a_segment_that_ends_without_a_seal_for_want_of_room_is_not_cut(tmp_path: Path) -> None:
    """As recovery leaves one on a full disk: the next one is begun, and freed."""
    captured = varied(tmp_path, 2)
    ends = record_ends(captured, 4)
    captured.close()
    captured.free(5)
    for size_bytes in (ends[-1], ends[-1] + 72):
        cut(captured, 4, ends[-1])
        with (captured.path / "msgs.0000000004").open("ab") as file:
            file.truncate(size_bytes)
        assert not any(one.missing for one in looked(captured).contents)
        loaded(tmp_path)


def test_a_queue_whose_deletion_is_cut_off_with_the_end_of_the_log_is_there_again(
    tmp_path: Path,
) -> None:
    """As for a broker that is started on it. Once a snapshot without the queue stands, it stays deleted."""
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    captured.declare("other", 2)
    captured.publish([1], [b"first"])
    file = captured.path / "msgs.0000000001"
    before = len(file.read_bytes().rstrip(b"\0"))
    captured.delete("jobs")
    assert not loaded(tmp_path, queues="other")
    captured.snapshot()
    snapshot = len(file.read_bytes().rstrip(b"\0"))
    captured.publish([2], [b"x"])
    captured.close()
    cleared(captured, 1, (snapshot + 7) // 8 * 8)
    assert loaded(tmp_path) == []
    cleared(captured, 1, (before + 7) // 8 * 8)
    assert [(one.queue, one.value) for one in loaded(tmp_path)] == [("jobs", b"first")]


@pytest.mark.parametrize("zeros", [False, True])
def test_a_segment_that_is_cut_after_the_plan_is_not_read_as_all_there(
    tmp_path: Path, zeros: bool
) -> None:
    """Found: the task that met nothing where records should stand said nothing."""
    captured = varied(tmp_path, 2)
    at = record_ends(captured, 4)[3]
    captured.close()
    (work,) = planned(tmp_path)
    (cleared if zeros else cut)(captured, 4, at)
    with pytest.raises(DataLost, match=rf"msgs\.0000000004: there is nothing from byte {at} on"):
        rows_of(tmp_path, work, damaged="skip")
    found = Counter(of_rows(rows_of(tmp_path, work, failOnDataLoss="false")))
    assert found < Counter(captured.messages)


@pytest.mark.parametrize("more", range(8))
def test_a_segment_that_was_cut_within_8_bytes_and_is_damaged_before_is_searched_to_its_end(
    tmp_path: Path, more: int
) -> None:
    """Found: for ever, unless the file had been cut at a multiple of 8."""
    captured = varied(tmp_path, 2)
    at = record_ends(captured, 4)[3]
    captured.close()
    flip(captured.path / "msgs.0000000004", at + 20)
    cut(captured, 4, at + 200 + more)
    assert looked(captured).contents[3].damaged == [(at, at + 200 + more)]
