"""The reader of a stream, without Spark: where it begins, how far it goes, what it calls a loss."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.types import StructType

from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.record import HEADER_BYTES, MAGIC, TARGET_BYTES
from security.files import format_network_secret
from spark.capture.options import read_options
from spark.capture.splits import arrow_schema
from spark.capture.stored import StoredLog
from spark.errors import ContradictoryOptions, DataLost
from tests.captures import SECOND_US, T0_US, Captured, Message, jobs_and_audit, publish
from tests.logs import NEW_SECRET, encryption
from tests.stores import flip, secret_file
from tests.unit.spark.loading import looked
from tests.unit.spark.streams import Stream


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    return jobs_and_audit(tmp_path)


def failing_sync(log: StoredLog) -> bool:
    return False


@pytest.mark.parametrize("lossy", ["true", "false"])
def test_a_sync_that_fails_is_no_loss_and_nothing_comes_twice(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, lossy: str
) -> None:
    """Found: the log was said to end before what had been read, or that was read again."""
    publish(captured, 6)
    stream = Stream(captured.data, startingOffsets="earliest", failOnDataLoss=lossy)
    stream.run()
    with monkeypatch.context() as patch:
        patch.setattr(StoredLog, "sync", failing_sync)
        assert stream.run() == 0
    stream.run()
    assert Counter(stream.messages) == Counter(captured.messages)
    stream.restart(failOnDataLoss=lossy, syncTail="false")
    publish(captured, 3)
    stream.run()
    publish(captured, 1)
    stream.run()
    assert Counter(stream.messages) == Counter(captured.messages[:-4]), "without the last commit"


def test_a_log_that_has_become_shorter_is_a_loss(captured: Captured) -> None:
    publish(captured, 6)
    stream = Stream(captured.data, startingOffsets="earliest")
    stream.run()
    read = captured.messages.copy()
    captured.cut_last()
    stream.restart()
    with pytest.raises(DataLost, match=r"the log ends at log position 8, but was already .* to 9"):
        stream.run()
    stream.restart(failOnDataLoss="false")
    stream.run()
    assert Counter(stream.messages) == Counter(read), "the rest is not read again"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("more", [0, 2, 20])
def test_a_commit_that_was_seen_and_was_never_synced_may_be_another_one(
    captured: Captured, more: int, restarts: bool
) -> None:
    """Found: on a mounted file system, where the broker's machine lost its power, a stream that lived on
    looked for what followed in the middle of the new records, and found none."""
    publish(captured, 6)
    stream = Stream(captured.data, startingOffsets="earliest", syncTail="false")
    stream.run()
    captured.cut_last()
    for number in range(more):
        captured.publish([1, 2], [b"of another length" * number, b"%d" % number])
    if restarts:
        stream.restart(syncTail="false")
    stream.run()
    wanted = captured.messages[:-4] if more else captured.messages
    assert Counter(stream.messages) == Counter(wanted), "without the last commit"


@pytest.mark.parametrize("sync", ["true", "false"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_what_a_kill_leaves_of_a_commit_is_read_once_and_the_rest_gives_way_to_other_records(
    tmp_path: Path, encrypted: bool, sync: str
) -> None:
    """A stream sees the torn commit, and lives on while a restart clears its end and other records get its log
    positions. Each cut is in another part of the two records."""
    use, given = None, {"syncTail": sync}
    if encrypted:
        secret = secret_file(tmp_path / "secret", format_network_secret(NEW_SECRET))
        use, given = encryption(), given | {"mesh.network_secret_file": str(secret)}
    whole: set[int] = set()
    for written_bytes in (0, 4, 60, HEADER_BYTES, 250, 420, 500, 600, 4000):
        captured = jobs_and_audit(tmp_path / str(written_bytes), use)
        captured.publish([1, 2], [b"first" * 20])
        stream = Stream(captured.data, startingOffsets="earliest", **given)
        for number in range(2):
            captured.publish([1, 2], [b"%d" % number * 100], durable=False)
        captured.kill(written_bytes)
        stream.run()
        captured.restart(use)
        whole.add(len(captured.messages))
        stream.run()
        for number in range(3):
            captured.publish([1, 2], [b"other" * (10 + 20 * number)])
            stream.run()
        if sync == "false":
            captured.publish([1], [b"last"])
            stream.run()
            captured.messages.pop()
        assert Counter(stream.messages) == Counter(captured.messages), written_bytes
        captured.close()
    assert whole == {2, 4, 6}, "none of the two records, one, both"


@pytest.mark.parametrize("sync", ["true", "false"])
@pytest.mark.parametrize("after", [0, 30, 58, 59, 60, 1000])
def test_from_a_time_on(captured: Captured, sync: str, after: int) -> None:
    """Found: behind the end of what was synced, an untrue loss."""
    for number in range(60):
        captured.publish([1, 2], [b"%d" % number], durable=number < 50)
    captured.log.commit()
    time_us = T0_US + (after + 1) * SECOND_US
    stream = Stream(captured.data, startingTimestamp=time_us // 1000, syncTail=sync)
    stream.run()
    publish(captured, 3)
    stream.run()
    done = captured.messages if sync == "true" else captured.messages[:-4]
    assert Counter(stream.messages) == Counter(one for one in done if one.time_us >= time_us)


def test_from_a_time_on_what_was_carried_comes_too(captured: Captured) -> None:
    """Found: 92 of the 120 rows that a batch of the same time has, and no error."""
    positions = publish(captured, 60)
    first = [one for one in positions if captured.segment_of(one) == 1]
    for position in first:
        captured.carry(position, 1, 2)
    captured.snapshot()
    captured.free(1)
    for after in (0, 3, len(first) + 3):
        time_us = T0_US + (after + 1) * SECOND_US
        stream = Stream(captured.data, startingTimestamp=time_us // 1000)
        stream.run()
        assert Counter(stream.messages) == Counter(
            one for one in captured.messages if one.time_us >= time_us
        )


def test_in_another_store_older_messages_than_asked_for_do_not_come_either(tmp_path: Path) -> None:
    """Found: all of them came, for its place in the log was forgotten, and the time with it."""
    time_us = T0_US + 4 * SECOND_US
    streams: list[Stream] = []
    for store in (b"a" * 16, b"b" * 16):
        captured = Captured(tmp_path / "data", store_id=store)
        captured.declare("jobs", 1)
        for number in range(6):
            captured.publish([1], [store[:1] + b"%d" % number])
        captured.close()
        if not streams:
            given = {"startingTimestamp": time_us // 1000, "failOnDataLoss": "false"}
            streams.append(Stream(captured.data, **given))
        (stream,) = streams
        stream.run()
        expected = [one.value for one in captured.messages if one.time_us >= time_us]
        assert [one.value for one in stream.messages] == expected
        stream.messages.clear()
        shutil.rmtree(captured.data)


def store(data: Path, name: str, count: int) -> list[Message]:
    """Another store in place of what is there; its messages."""
    shutil.rmtree(data, ignore_errors=True)
    captured = Captured(data, store_id=name.encode() * 16)
    captured.declare("jobs", 1)
    for number in range(count):
        captured.publish([1], [f"{name}{number}".encode()])
    captured.close()
    return captured.messages


@pytest.mark.parametrize("count", [3, 6, 9])
def test_a_batch_planned_of_another_store_has_nothing_of_this_one(
    tmp_path: Path, count: int
) -> None:
    """Found: the first rows of the new store came with that batch, and again with the next."""
    data = tmp_path / "data"
    before = store(data, "a", 6)
    stream = Stream(
        data, startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger=2
    )
    stream.step()
    planned = stream.plan()
    after = store(data, "b", count)
    stream.restart(failOnDataLoss="false")
    stream.take(planned)
    stream.run()
    assert stream.messages == before[:2] + after
    stream.restart()
    stream.at, other = planned, stream.at
    with pytest.raises(DataLost, match="this directory contains another store"):
        stream.take(planned)
    stream.take(other)


@pytest.mark.parametrize("limit", [1, 10, 1000])
def test_a_batch_may_end_at_a_record_whose_segment_was_freed(
    captured: Captured, limit: int
) -> None:
    """Found: an untrue loss, on every log that had been compacted at its front."""
    positions = publish(captured, 60)
    first, second = (
        [one for one in positions if captured.segment_of(one) == number] for number in (1, 2)
    )
    for position in first:
        captured.carry(position, 1, 2)
    captured.snapshot()
    captured.free(1)
    stream = Stream(captured.data, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
    if limit < 1000:
        stream.step()
        assert stream.at["position"] in first
        stream.restart(maxOffsetsPerTrigger=limit)
    stream.run()
    assert Counter(stream.messages) == Counter(captured.messages)
    other = Stream(captured.data, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
    captured.free(2)
    with pytest.raises(DataLost, match=f"positions {second[0]} to {second[-1]} were freed"):
        other.run()


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 3}, {"maxBytesPerTrigger": 200}])
def test_a_record_that_was_carried_for_each_lane_by_itself_is_one_all_the_same(
    captured: Captured, limit: dict[str, int]
) -> None:
    """Found: a batch with two copies of the first record was too large, and the stream stood still."""
    positions = publish(captured, 60)
    for position in positions:
        if captured.segment_of(position) == 1:
            captured.carry(position, 1)
            captured.carry(position, 2)
    captured.snapshot()
    captured.free(1)
    stream = Stream(captured.data, startingOffsets="earliest", **limit)
    stream.run()
    assert Counter(stream.messages) == Counter(captured.messages)


def ahead_of_a_copy(tmp_path: Path, seen: int) -> tuple[Captured, Callable[[], None], Stream]:
    """A directory, what puts a copy back that is older by so many messages, and a stream that has read all."""
    captured = jobs_and_audit(tmp_path / "data")
    publish(captured, 10)
    put_back = captured.backup(tmp_path / "copy")
    publish(captured, seen)
    stream = Stream(captured.data, startingOffsets="earliest")
    stream.run()
    return captured, put_back, stream


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("more", [2, 20, 60])
@pytest.mark.parametrize("seen", [1, 20, 50])
def test_an_older_copy_that_was_put_back_is_a_loss_however_long_it_is_by_now(
    tmp_path: Path, seen: int, more: int, restarts: bool
) -> None:
    """Found: the stream went on in the middle of other records, and missed all before them."""
    captured, put_back, stream = ahead_of_a_copy(tmp_path, seen)
    read = captured.messages.copy()
    put_back()
    publish(captured, more)
    if restarts:
        stream.restart()
    told = "contains another record" if more >= seen else "the log ends at"
    with pytest.raises(DataLost, match=rf"{told}.* an older copy of the directory was restored"):
        stream.run()
    stream.restart(failOnDataLoss="false")
    stream.run()
    assert Counter(stream.messages) == Counter(read + captured.messages[len(read) :])
    behind = publish(captured, 3)
    stream.restart()
    stream.run()
    assert stream.at["position"] == behind[-1] + 1, "what had been lost is told once"


def test_an_older_copy_is_a_loss_before_anything_was_read(tmp_path: Path) -> None:
    captured = jobs_and_audit(tmp_path / "data")
    put_back = captured.backup(tmp_path / "copy")
    publish(captured, 3)
    stream = Stream(captured.data, startingOffsets="latest")
    put_back()
    publish(captured, 5)
    stream.restart()
    with pytest.raises(DataLost, match="contains another record"):
        stream.run()


def test_a_copy_that_is_older_still_is_another_loss(tmp_path: Path) -> None:
    """Of what a log that had become shorter ends with, the stream keeps the last record, too."""
    captured = jobs_and_audit(tmp_path / "data")
    publish(captured, 3)
    put_back_first = captured.backup(tmp_path / "first")
    publish(captured, 3)
    put_back_second = captured.backup(tmp_path / "second")
    publish(captured, 3)
    stream = Stream(captured.data, startingOffsets="earliest", failOnDataLoss="false")
    stream.run()
    put_back_second()
    stream.run()
    assert stream.at["position"] == 9
    put_back_first()
    publish(captured, 5)
    stream.restart()
    with pytest.raises(DataLost, match="log position 8 contains another record"):
        stream.run()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("seen", "told"), [(12, True), (13, False), (14, True)])
def test_an_older_copy_is_a_loss_where_the_segment_of_the_last_record_was_freed(
    tmp_path: Path, seen: int, told: bool, restarts: bool
) -> None:
    """What followed the record in its segment is missing. Where nothing did, nobody can tell."""
    captured, put_back, stream = ahead_of_a_copy(tmp_path, seen)
    put_back()
    publish(captured, 100)
    captured.snapshot()
    following = stream.at["position"]
    number = captured.segment_of(following - 1)
    assert (captured.segment_of(following) == number) == told
    captured.free(number)
    if restarts:
        stream.restart()
    if told:
        with pytest.raises(DataLost, match=rf"positions {following} to .* were freed"):
            stream.run()
    else:
        assert stream.run()


@pytest.mark.parametrize("lossy", ["true", "false"])
def test_an_older_copy_under_a_stream_that_lives_on_is_looked_at_anew(
    tmp_path: Path, lossy: str
) -> None:
    """Segments that were complete, and have been seen whole, are others now."""
    captured = jobs_and_audit(tmp_path / "data")
    publish(captured, 10)
    put_back = captured.backup(tmp_path / "copy")
    publish(captured, 100)
    stream = Stream(
        captured.data, startingOffsets="earliest", maxOffsetsPerTrigger=30 * 4, failOnDataLoss=lossy
    )
    stream.step()
    read = captured.messages[: 30 * 4]
    put_back()
    for number in range(100):
        captured.publish([1, 2], [b"of another length", b"%d" % number])
    if lossy == "false":
        stream.run()
        assert Counter(stream.messages) == Counter(read + captured.messages[30 * 4 :])
    else:
        with pytest.raises(DataLost, match="contains another record"):
            stream.plan()


def test_where_the_last_record_is_damaged_or_freed_nothing_is_said_of_another_one(
    captured: Captured,
) -> None:
    positions = publish(captured, 60)
    stream = Stream(captured.data, startingOffsets="earliest")
    stream.run()
    file = captured.path / segment_name(captured.segment_of(positions[-1]))
    at = file.read_bytes().rindex(MAGIC)
    publish(captured, 60)
    flip(file, at + 40)
    stream.run()
    assert Counter(stream.messages) == Counter(captured.messages), "it was read before"
    behind = publish(captured, 60)
    captured.snapshot()
    captured.free(*range(1, captured.segment_of(behind[0])))
    stream.restart()
    stream.run()
    assert Counter(stream.messages) == Counter(captured.messages)


def test_a_checkpoint_of_an_earlier_version_goes_on(captured: Captured) -> None:
    publish(captured, 6)
    stream = Stream(captured.data, startingOffsets="earliest")
    stream.run()
    del stream.at["last"]
    stream.restart()
    assert not stream.run()
    publish(captured, 3)
    stream.run()
    assert "last" in stream.at
    assert Counter(stream.messages) == Counter(captured.messages)


def test_a_stream_is_told_once_what_was_cut_off_before_what_was_freed(
    captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    positions = publish(captured, 60)
    captured.free(2)
    file = captured.path / segment_name(1)
    file.write_bytes(file.read_bytes()[:SEGMENT_HEADER_BYTES])
    at_end = Stream(captured.data)
    stream = Stream(
        captured.data, startingOffsets="earliest", damaged="skip", maxOffsetsPerTrigger=20
    )
    assert stream.run() > 3
    left = [positions.index(one) for one in positions if captured.segment_of(one) > 2]
    assert {one.sequence // 2 for one in stream.messages} == {*left}
    assert len([one for one in caplog.messages if "damaged parts" in one]) == 1
    publish(captured, 3)
    assert at_end.run()


def test_a_segment_that_was_cut_behind_the_header_of_a_record_is_counted(
    captured: Captured,
) -> None:
    """Found: an IndexError. The record was said to be damaged, up to where it would have ended."""
    positions = publish(captured, 60)
    at = looked(captured).contents[1].marks[0].at
    file = captured.path / segment_name(2)
    size_bytes = at + HEADER_BYTES + 2 * TARGET_BYTES + 4
    file.write_bytes(file.read_bytes()[:size_bytes])
    assert looked(captured).contents[1].damaged == [(at, size_bytes)]
    stream = Stream(
        captured.data, startingOffsets="earliest", damaged="skip", maxOffsetsPerTrigger=20
    )
    stream.run()
    left = [positions.index(one) for one in positions if captured.segment_of(one) != 2]
    assert {one.sequence // 2 for one in stream.messages} == {*left}


def test_a_column_that_is_asked_for_twice_is_a_line() -> None:
    """Found: the task failed with a stack of Java's alone."""
    twice = StructType().add("queue", "string").add("topic", "string").add("queue", "string")
    with pytest.raises(ContradictoryOptions, match=r"^schema: column queue appears twice$"):
        arrow_schema(twice, read_options({"path": "data"}))
