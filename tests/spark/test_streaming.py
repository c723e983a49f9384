"""`spark.readStream.format("mesh-capture")`: every message in exactly one batch, over restarts."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.captures import SECOND_US, T0_US, Captured, publish
from tests.spark.frames import Query, one_line_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_each_record_once_over_restarts_and_what_is_declared_meanwhile(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    query = Query(session, captured.data, tmp_path)
    publish(captured, 30)
    query.run()
    assert Counter(query.messages) == Counter(captured.messages)
    captured.declare("late", 3)
    captured.publish([3, 1], [b"late"])
    publish(captured, 5)
    query.run()
    assert Counter(query.messages) == Counter(captured.messages)
    query.run()
    assert Counter(query.messages) == Counter(captured.messages)


def test_a_trigger_takes_no_more_rows_than_it_may(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    publish(captured, 30)
    query = Query(session, captured.data, tmp_path, maxOffsetsPerTrigger="40")
    assert query.run() == 3, "120 rows in records of 4"
    assert Counter(query.messages) == Counter(captured.messages)


def test_from_offsets_and_from_a_time_on(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    publish(captured, 20)
    query = Query(
        session,
        captured.data,
        tmp_path / "offsets",
        startingOffsets='{"jobs": {"0": 31}, "audit": {"0": -1}}',
    )
    query.run()
    publish(captured, 5)
    query.run()
    wanted = [one for one in captured.messages if one.offset >= (31 if one.queue == "jobs" else 40)]
    assert Counter(query.messages) == Counter(wanted)
    time_us = T0_US + 12 * SECOND_US
    timed = Query(session, captured.data, tmp_path / "time", startingTimestamp=str(time_us // 1000))
    del timed.options["startingOffsets"]
    timed.run()
    assert Counter(timed.messages) == Counter(
        one for one in captured.messages if one.time_us >= time_us
    )


def test_what_compaction_carries_comes_once_and_nothing_is_missed(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    """Carried and freed before the query has got there, in the middle of a batch, and afterwards."""
    query = Query(session, captured.data, tmp_path, maxOffsetsPerTrigger="30")
    positions = publish(captured, 60)
    first = [one for one in positions if captured.segment_of(one) == 1]
    second = [one for one in positions if captured.segment_of(one) == 2]
    for position in first[::3]:
        captured.carry(position, 1)
    captured.snapshot()
    captured.free(1)
    query.run()
    carried = {2 * positions.index(one) for one in first[::3]}
    freed = {2 * positions.index(one) for one in first}
    wanted = Counter(
        one
        for one in captured.messages
        if one.sequence // 2 * 2 not in freed
        or (one.queue == "jobs" and one.sequence // 2 * 2 in carried)
    )
    assert Counter(query.messages) == wanted
    for position in second:
        captured.carry(position, 1, 2)
    captured.free(2)
    captured.publish([1], [b"after"])
    query.run()
    assert Counter(query.messages) == wanted + Counter(captured.messages[-1:])


def test_what_was_freed_before_it_was_read_is_a_loss(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    query = Query(session, captured.data, tmp_path)
    captured.publish([1], [b"first"])
    query.run()
    positions = publish(captured, 60)
    captured.snapshot()
    captured.free(1, 2)
    with one_line_with("were freed before they were read"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    standing = {one for one in positions if captured.segment_of(one) > 2}
    wanted = [
        one
        for one in captured.messages
        if one.value == b"first" or positions[(one.sequence - 1) // 2] in standing
    ]
    assert 0 < len(wanted) < len(captured.messages)
    assert Counter(query.messages) == Counter(wanted)


def test_another_store_in_the_same_place_is_noticed(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    publish(captured, 3)
    query = Query(session, captured.data, tmp_path / "home")
    query.run()
    captured.close()
    captured.path.rename(tmp_path / "before")
    captured.path.mkdir()
    other = Captured(captured.data, store_id=b"t" * 16)
    other.declare("jobs", 1)
    other.publish([1], [b"other"])
    with one_line_with("this directory contains another store"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert Counter(query.messages) == Counter(captured.messages + other.messages)


def test_an_older_copy_that_was_put_back_is_noticed_once_it_is_as_long(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    publish(captured, 3)
    put_back = captured.backup(tmp_path / "copy")
    publish(captured, 5)
    query = Query(session, captured.data, tmp_path)
    query.run()
    read = captured.messages.copy()
    put_back()
    publish(captured, 7)
    with one_line_with("contains another record", "an older copy of the directory was restored"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert Counter(query.messages) == Counter(read + captured.messages[len(read) :])


def test_a_stream_follows_a_copy_that_is_made_again_over_the_one_before(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    """As executors elsewhere read it; a segment that was freed meanwhile leaves the copy, too."""
    copy = tmp_path / "copy"
    query = Query(session, copy, tmp_path)
    first = publish(captured, 30)
    shutil.copytree(captured.data, copy)
    query.run()
    for position in first:
        if captured.segment_of(position) == 1:
            captured.carry(position, 1)
    captured.snapshot()
    captured.free(1)
    publish(captured, 30)
    shutil.rmtree(copy)
    shutil.copytree(captured.data, copy)
    query.run()
    assert Counter(query.messages) == Counter(captured.messages)


def test_a_segment_that_was_cut_before_it_was_read_ends_the_query(
    session: SparkSession, captured: Captured, tmp_path: Path
) -> None:
    """Found: the rows that were left came, and nobody was told of those that did not."""
    captured.publish([1], [b"first"])
    query = Query(session, captured.data, tmp_path)
    query.run()
    publish(captured, 60)
    file = captured.path / "msgs.0000000002"
    file.write_bytes(file.read_bytes()[:64])
    with one_line_with("msgs.0000000002: log positions", "missing"):
        query.run()
    query.options["damaged"] = "skip"
    query.run()
    found = Counter(query.messages)
    assert found < Counter(captured.messages)
    assert found[captured.messages[-1]] == 1
