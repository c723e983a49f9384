"""Segments whose header is damaged, behind others that were freed: records tell where they begin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from durable.log.header import SEGMENT_HEADER_BYTES
from durable.log.record import HEADER_BYTES
from spark.errors import CaptureDamaged, DataLost
from tests.captures import Captured, Message, compacted, expected_of, jobs_and_audit, publish
from tests.stores import flip
from tests.unit.spark.loading import loaded, looked
from tests.unit.spark.streams import Stream


def damage_header(captured: Captured, number: int) -> None:
    flip(captured.path / f"msgs.{number:010d}", 40)


def damage_front(captured: Captured, number: int) -> None:
    """Its header, and that of its first record."""
    damage_header(captured, number)
    flip(captured.path / f"msgs.{number:010d}", SEGMENT_HEADER_BYTES + HEADER_BYTES - 30)


@pytest.mark.parametrize("ordering", ["none", "queue"])
@pytest.mark.parametrize("freed", [{1, 2}, {2}])
def test_copies_of_what_was_freed_are_read(tmp_path: Path, freed: set[int], ordering: str) -> None:
    """Found: 639 of 10,337 rows were missing without a word, as if their originals stood in the segment behind."""
    captured = compacted(tmp_path)
    captured.close()
    captured.free(*freed)
    damage_header(captured, 3)
    assert Counter(loaded(tmp_path, ordering=ordering)) == Counter(expected_of(captured, freed))


@pytest.mark.parametrize("freed", [{1, 2}, {2}])
def test_copies_of_what_was_freed_are_read_where_the_first_record_is_damaged_too(
    tmp_path: Path, freed: set[int]
) -> None:
    captured = compacted(tmp_path)
    first = looked(captured).contents[2].first
    captured.close()
    captured.free(*freed)
    damage_front(captured, 3)
    with pytest.raises(CaptureDamaged):
        loaded(tmp_path)
    lost = {message for message in captured.messages if message.sequence // 2 == first - 3}
    assert lost
    found = Counter(loaded(tmp_path, damaged="skip"))
    assert found == Counter(one for one in expected_of(captured, freed) if one not in lost)


def test_copies_of_what_was_cut_off_are_read_where_the_next_header_is_damaged(
    tmp_path: Path,
) -> None:
    captured = compacted(tmp_path)
    captured.close()
    file = captured.path / "msgs.0000000002"
    file.write_bytes(file.read_bytes()[:SEGMENT_HEADER_BYTES])
    expected = loaded(tmp_path, damaged="skip")
    damage_header(captured, 3)
    assert Counter(loaded(tmp_path, damaged="skip")) == Counter(expected)


def test_a_stream_is_told_what_was_freed_before_it(tmp_path: Path) -> None:
    """Found: it was not; that seemed to stand in the segment whose header is damaged."""
    captured = jobs_and_audit(tmp_path)
    positions = publish(captured, 60)
    stream = Stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert stream.step()
    captured.snapshot()
    captured.close()
    last = looked(captured).contents[1].end - 1
    captured.free(1, 2)
    damage_header(captured, 3)
    stream.restart()
    with pytest.raises(DataLost, match=f"log positions {positions[1]} to {last} were freed"):
        stream.run()
    left = [one for one in captured.messages if one.sequence // 2 > last - positions[0]]
    stream.restart(failOnDataLoss="false")
    stream.messages.clear()
    stream.run()
    assert Counter[Message](stream.messages) == Counter(left)


def test_a_store_whose_first_segments_were_freed_and_whose_headers_are_there_is_whole(
    tmp_path: Path,
) -> None:
    captured = compacted(tmp_path)
    captured.close()
    captured.free(1, 2)
    log = looked(captured)
    assert log.start == log.contents[0].first > 1
    damage_header(captured, 3)
    again = looked(captured)
    assert again.start == log.start
    assert not any(one.lossy for one in again.contents)
