"""Damage counts once, however many tasks and triggers meet it: `offset IS NULL` counts what `keep` keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from durable.log.cipher import as_written
from durable.log.encryption import Encryption
from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.record import HEADER_BYTES, store_seed
from durable.log.scan import Found, scan
from security.files import format_network_secret
from spark.capture import walk
from spark.errors import CaptureDamaged
from tests.captures import Captured, jobs_and_audit, publish
from tests.logs import NEW_SECRET, encryption
from tests.stores import flip
from tests.unit.spark.loading import planned, rows_of
from tests.unit.spark.streams import BATCHES_MAX, reader

LANES = {"ordering": "queue", "minPartitions": 2}
HEADER, BODY = 4, HEADER_BYTES + 50
"""A byte of a record's version, and one of its body."""
LAST, END = -1, -2
"""The last record before the seal, and the same with the seal, so that nothing in the segment follows the damage."""


def damaged_log(data: Path, number: int, byte: int) -> int:
    """Flip a bit in record `number` of the second segment; return how many rows the others make."""
    captured = jobs_and_audit(data)
    publish(captured, 30)
    captured.close()
    file = captured.path / segment_name(2)
    *records, seal = [one.at for one in records_of(captured, 2)]
    if number == END:
        flip(file, seal + HEADER)
    flip(file, records[max(number, LAST)] + byte)
    return len(captured.messages) - 4  # Two messages in two lanes.


def rows_of_stream(data: Path, **given: Any) -> list[dict[str, Any]]:
    stream = reader(data, startingOffsets="earliest", **given)
    rows: list[dict[str, Any]] = []
    start = stream.initialOffset()
    for _ in range(BATCHES_MAX):
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        if end == start:
            return rows
        for split in stream.partitions(start, end):
            rows += [row for batch in stream.read(split) for row in batch.to_pylist()]
        start = end
    raise AssertionError("it goes on and on")


@pytest.mark.parametrize("number", [0, 4, LAST, END])
@pytest.mark.parametrize("byte", [HEADER, BODY])
@pytest.mark.parametrize("given", [{}, LANES], ids=["rows", "lanes"])
def test_damage_is_one_row(tmp_path: Path, given: dict[str, Any], byte: int, number: int) -> None:
    """Found: one for each task with `ordering=queue`, and one for each trigger that ended within the same block; but
    none, and no error either, for damage before a seal if a trigger ended there."""
    count = damaged_log(tmp_path, number, byte)
    works = planned(tmp_path, damaged="keep", **given)
    assert len(works) == (2 if given else 1)
    batch = [row for work in works for row in rows_of(tmp_path, work, damaged="keep", **given)]
    for rows in (
        batch,
        rows_of_stream(tmp_path, damaged="keep", maxOffsetsPerTrigger=1, **given),
        rows_of_stream(tmp_path, damaged="keep", maxPartitionBytes="1k", **given),
    ):
        assert sum(row["offset"] is None for row in rows) == 1
        assert len(rows) == count + 1


@pytest.mark.parametrize("number", [LAST, END])
def test_no_trigger_passes_by_damage_at_the_end_of_a_segment(tmp_path: Path, number: int) -> None:
    """Found: with triggers of one record, four messages less and no error."""
    damaged_log(tmp_path, number, HEADER)
    with pytest.raises(CaptureDamaged):
        rows_of_stream(tmp_path, maxOffsetsPerTrigger=1)


def records_of(captured: Captured, number: int) -> list[Found]:
    """Return the records of a segment, the seal included."""
    content = (captured.path / segment_name(number)).read_bytes()
    found = scan(
        lambda size, at: content[at : at + size], SEGMENT_HEADER_BYTES, len(content),
        seed=store_seed(captured.store_id), decrypt=as_written,
    )  # fmt: skip
    return [one for one in found if isinstance(one, Found)]


@pytest.mark.parametrize("given", [{}, LANES], ids=["rows", "lanes"])
@pytest.mark.parametrize("use", [None, encryption()], ids=["plain", "encrypted"])
def test_no_trigger_passes_by_a_body_that_was_damaged_before_it_was_planned(
    tmp_path: Path, use: Encryption | None, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: where bodies are verified for the plan, in an encrypted or in the last segment, and a trigger ended just
    behind the damaged one, it was in no trigger: four messages less and no error."""
    monkeypatch.setenv("MESH_NETWORK_SECRET", format_network_secret(NEW_SECRET))
    captured = jobs_and_audit(tmp_path, use)
    publish(captured, 8)
    captured.close()
    flip(captured.path / segment_name(1), records_of(captured, 1)[4].at + BODY)
    rows = rows_of_stream(tmp_path, damaged="keep", maxOffsetsPerTrigger=1, **given)
    assert sum(row["offset"] is None for row in rows) == 1
    assert len(rows) == len(captured.messages) - 4 + 1
    with pytest.raises(CaptureDamaged):
        rows_of_stream(tmp_path, maxOffsetsPerTrigger=1, **given)


@pytest.mark.parametrize(("other", "use"), [(2, None), (7, encryption())], ids=["older", "newer"])
def test_a_record_in_the_place_of_another_one_is_told_once_and_hides_no_other(
    tmp_path: Path, other: int, use: Encryption | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: one with an older log position hid the record behind it from a stream, for its length was believed; one
    with a newer position made its damage count there, where no trigger met it."""
    monkeypatch.setattr(walk, "BLOCK_RECORDS", 1)  # The newer one is in another block.
    monkeypatch.setenv("MESH_NETWORK_SECRET", format_network_secret(NEW_SECRET))
    captured = jobs_and_audit(tmp_path, use)
    for number in range(40):
        captured.publish([1, 2], [b"%d" % number * (100 if number in (0, 5) else 10)])
    captured.close()
    file = captured.path / segment_name(1)
    content, records = bytearray(file.read_bytes()), records_of(captured, 1)
    place, moved = records[4], records[other]
    size_bytes = place.end - place.at
    assert moved.end - moved.at > size_bytes
    content[place.at : place.end] = content[moved.at : moved.at + size_bytes]
    file.write_bytes(content)
    rows = rows_of_stream(tmp_path, damaged="keep", maxOffsetsPerTrigger=1)
    assert sum(row["offset"] is None for row in rows) == 1
    if other < 4:  # The length of a newer one is believed.
        assert len(rows) == len(captured.messages) - 2 + 1


def test_a_damaged_seal_is_told_once(tmp_path: Path) -> None:
    """Found: by a batch, and not by a stream with a limit."""
    captured = jobs_and_audit(tmp_path)
    publish(captured, 30)
    captured.close()
    flip(captured.path / segment_name(1), records_of(captured, 1)[-1].at + HEADER_BYTES)
    for given in ({}, {"maxOffsetsPerTrigger": 1}):
        rows = rows_of_stream(tmp_path, damaged="keep", **given)
        assert sum(row["offset"] is None for row in rows) == 1
        assert len(rows) == len(captured.messages) + 1
