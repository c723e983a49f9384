"""From a directory to rows, without Spark: options, catalog, plan and the task's reading together."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from durable.errors import DurableError, ForeignStore, NewerFormat, UnknownVhost
from durable.log.checkpoints import Checkpoints, Root
from durable.log.real_disk import RealDisk
from durable.log.record import Draft, Kind, Target
from durable.vhost import changes
from mesh.cli import main
from spark.capture.plan import Times
from spark.capture.query import Query
from spark.errors import CaptureDamaged, DataLost, NoCapture, NothingSelected
from tests.captures import (
    SECOND_US,
    T0_US,
    Captured,
    compacted,
    expected_of,
    jobs_and_audit,
    of_rows,
    publish,
    varied,
)
from tests.logs import LARGE
from tests.stores import flip
from tests.unit.spark.loading import check_one_bit_flipped, loaded, planned, query, rows_of


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", ["1g", "8k", "1"])
def test_every_message_is_read_once_however_it_is_split(
    tmp_path: Path, seed: int, size: str
) -> None:
    captured = varied(tmp_path, seed)
    found = loaded(tmp_path, maxPartitionBytes=size, batchRows=7)
    assert Counter(found) == Counter(captured.messages)
    captured.close()


@pytest.mark.parametrize(("at", "value"), [(8, 1), (12, 0), (13, 9), (64, 1), (3, 3)])
def test_a_group_that_makes_no_sense_is_damaged_and_costs_itself(
    tmp_path: Path, at: int, value: int
) -> None:
    """Written by something else: its checksum is right."""
    captured = Captured(tmp_path, LARGE)
    captured.declare("jobs", 1)
    captured.publish([1], [b"a", b"b"], apart=True)
    (record,) = captured.log.records()[-1:]
    body = bytearray(record.body)
    body[at] = value
    captured.log.write(Draft(Kind.PUBLISH, bytes(body), (Target(1, 2),), 1, grouped=True))
    captured.publish([1], [b"c", b"d"], apart=True)
    captured.close()
    with pytest.raises(CaptureDamaged):
        loaded(tmp_path)
    assert Counter(loaded(tmp_path, damaged="skip")) == Counter(captured.messages)


def test_few_runs_at_a_time_are_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = varied(tmp_path, 4)
    monkeypatch.setattr("spark.capture.columns.TABLE_BYTES_MAX", 1)
    assert Counter(loaded(tmp_path)) == Counter(captured.messages)
    captured.close()


@pytest.mark.parametrize("ordering", ["none", "queue"])
def test_queues_are_in_order_within_a_split(tmp_path: Path, ordering: str) -> None:
    captured = varied(tmp_path, 9)
    works = planned(tmp_path, ordering=ordering, maxPartitionBytes="16k", minPartitions=3)
    assert len(works) >= 3
    of_splits = [of_rows(rows_of(tmp_path, work)) for work in works]
    assert Counter(one for rows in of_splits for one in rows) == Counter(captured.messages)
    lanes = [Counter((one.queue, one.partition) for one in rows) for rows in of_splits]
    for rows in of_splits:
        for lane in {(one.queue, one.partition) for one in rows}:
            offsets = [one.offset for one in rows if (one.queue, one.partition) == lane]
            assert offsets == sorted(offsets)
    together = sum(map(len, lanes))
    assert together == 4 if ordering == "queue" else together > 4
    captured.close()


def test_no_core_is_idle_where_there_is_enough_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = varied(tmp_path, 9)
    found = query(tmp_path)
    selected = found.select()
    assert len(found.works(selected)) == len(found.works(selected, cores=3)) == 1
    monkeypatch.setattr("spark.capture.plan.SPLIT_BYTES_MIN", 1)
    works = found.works(selected, cores=3)
    assert 3 <= len(works) <= 5
    rows = [row for work in works for row in rows_of(tmp_path, work)]
    assert Counter(of_rows(rows)) == Counter(captured.messages)
    captured.close()


def test_selection(tmp_path: Path) -> None:
    captured = varied(tmp_path, 3)
    everything = captured.messages
    low, high = T0_US + 40 * SECOND_US, T0_US + 80 * SECOND_US
    for given, wanted in (
        ({"streams": "audit"}, lambda one: one.queue == "audit"),
        ({"queues": "jobs, other"}, lambda one: one.queue in ("jobs", "other")),
        ({"streams": "audit", "queues": "jobs"}, lambda one: one.queue in ("jobs", "audit")),
        ({"subscribe": "orders.us"}, lambda one: one.topic == "orders.us"),
        ({"subscribe": "orders.>"}, lambda one: one.topic.startswith("orders.")),
        ({"subscribe": "*.b,orders.eu"}, lambda one: one.topic in ("ä.b", "orders.eu")),
        ({"subscribePattern": r"orders\..."}, lambda one: one.topic in ("orders.eu", "orders.us")),
        (
            {"startingTimestamp": low // 1000, "endingTimestamp": high // 1000},
            lambda one: low <= one.time_us < high,
        ),
        ({"startingTimestamp": "2099-01-01"}, lambda one: False),
        (
            {"startingOffsets": '{"jobs": {"0": 13, "1": -1}}', "endingOffsets": '{"jobs": {"0": 40}, "audit": {"0": -2}}'},
            lambda one: one.queue == "other" or ((one.queue, one.partition) == ("jobs", 0) and 13 <= one.offset < 40),
        ),
    ):  # fmt: skip
        found = Counter(loaded(tmp_path, **given))
        assert found == Counter(filter(wanted, everything)), given
    captured.close()


def test_what_compaction_carried_is_read_once_whether_its_original_stands_or_not(
    tmp_path: Path,
) -> None:
    captured = compacted(tmp_path)
    assert Counter(loaded(tmp_path)) == Counter(captured.messages)
    captured.free(1)
    assert Counter(loaded(tmp_path)) == Counter(expected_of(captured, {1}))
    captured.free(2)
    left = expected_of(captured, {1, 2})
    assert 0 < len(left) < len(captured.messages)
    for size in ("1g", "1"):
        assert Counter(loaded(tmp_path, maxPartitionBytes=size)) == Counter(left)
    (work,) = planned(tmp_path, ordering="queue", queues="jobs")
    assert of_rows(rows_of(tmp_path, work)) == [one for one in left if one.queue == "jobs"]
    captured.close()


def test_a_deleted_queue_is_not_read_and_its_successor_begins_anew(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    captured.publish([1], [b"old"])
    captured.define([changes.QUEUE_GONE, "jobs"])
    assert loaded(tmp_path) == []
    captured.declare("jobs", 2)
    captured.publish([2], [b"new"])
    assert [one.value for one in loaded(tmp_path)] == [b"new"]
    captured.close()


def test_what_is_declared_is_taken_from_the_last_snapshot(tmp_path: Path) -> None:
    """A queue that the snapshot leaves out is gone, whatever earlier records say."""
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    captured.declare("gone", 2)
    captured.publish([1, 2], [b"both"])
    captured.define([changes.SNAPSHOT, 3])
    captured.declare("jobs", 1)
    captured.define([changes.SNAPSHOT_END])
    captured.declare("later", 3)
    captured.publish([3], [b"later"])
    assert [(one.queue, one.value) for one in loaded(tmp_path)] == [("jobs", b"both"), ("later", b"later")]  # fmt: skip
    captured.close()


def test_damage_fails_or_is_skipped_or_kept(tmp_path: Path) -> None:
    captured = varied(tmp_path, 1)
    captured.close()
    for at, file in ((700, "msgs.0000000002"), (2000, "msgs.0000000004")):
        flip(captured.path / file, at)
    with pytest.raises(CaptureDamaged, match=r"msgs\.000000000[24]: \d+ bytes at \d+ are damaged"):
        loaded(tmp_path)
    found = loaded(tmp_path, damaged="skip")
    lost = Counter(captured.messages) - Counter(found)
    assert lost
    assert not Counter(found) - Counter(captured.messages)
    assert len({one.sequence for one in lost}) <= 60, "two records"
    (work,) = planned(tmp_path, damaged="keep")
    rows = rows_of(tmp_path, work, damaged="keep")
    kept = [row for row in rows if row["offset"] is None]
    assert len(kept) == 2
    assert len(rows) == len(found) + 2
    assert all(row["value"] and row["topic"] is None for row in kept)


@pytest.mark.parametrize("seed", range(12))
def test_one_bit_flipped_costs_the_record_it_is_in_and_is_noticed(
    tmp_path: Path, seed: int
) -> None:
    check_one_bit_flipped(tmp_path, seed)


def test_lanes_whose_declaration_is_damaged_are_read_under_their_number(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 7)
    captured.declare("other", 8)
    flip(captured.path / "msgs.0000000001", 64 + 70)
    for number in range(60):
        captured.publish([7, 8], [b"%d" % number])
    found = loaded(tmp_path, damaged="skip")
    assert Counter(one.queue for one in found) == {"salvaged.7": 60, "other": 60}
    with pytest.raises(CaptureDamaged):
        loaded(tmp_path)
    captured.close()


@pytest.mark.parametrize("left", ["all", "checkpoint", "messages"])
def test_a_deleted_queue_stays_deleted_when_something_is_damaged(tmp_path: Path, left: str) -> None:
    """Found: its messages came back as `salvaged.1`, for nobody had read of its declaration."""
    captured = Captured(tmp_path)
    captured.declare("secret", 1)
    captured.declare("jobs", 2)
    while captured.segment_of(captured.publish([1, 2], [b"x" * 50])) < 3:
        pass
    captured.delete("secret")
    snapshot = captured.snapshot()
    captured.declare("later", 3)
    damaged = captured.publish([2], [b"damaged"])
    captured.publish([3], [b"later"])
    captured.close()
    if left != "all":
        disk = RealDisk(captured.path)
        files = Checkpoints(disk, captured.store_id, lambda: damaged)
        files.write_root(Root(snapshot, snapshot, b""))
        disk.close()
    if left == "messages":
        captured.free(1)
    file = captured.path / f"msgs.{captured.segment_of(damaged):010d}"
    flip(file, file.read_bytes().index(b"damaged"))
    found = Counter(loaded(tmp_path, damaged="skip"))
    assert {one.queue for one in found} == {"jobs", "later"}
    assert found <= Counter(captured.messages)


def test_a_snapshot_of_which_a_record_is_missing_deletes_nothing(tmp_path: Path) -> None:
    """As at a broker's recovery. Found: the queue that it declared was not read."""
    captured = Captured(tmp_path)
    for lane, name in enumerate(("jobs", "other"), 1):
        captured.declare(name, lane)
    captured.publish([1, 2], [b"both"])
    captured.define([changes.SNAPSHOT, 3])
    captured.declare("jobs", 1)
    captured.declare("other", 2)
    captured.define([changes.SNAPSHOT_END])
    captured.close()
    file = captured.path / "msgs.0000000001"
    flip(file, file.read_bytes().rindex(b"other"))
    assert {one.queue for one in loaded(tmp_path, damaged="skip")} == {"jobs", "other"}


def test_a_command_whose_segment_is_freed_names_its_own_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Found: it named failOnDataLoss only, which no command has."""
    captured = varied(tmp_path, 2)
    (work,) = planned(tmp_path)
    captured.free(2)
    capture = ["capture", "cat", str(tmp_path), "--payload"]
    with monkeypatch.context() as patch:
        patch.setattr(Query, "works", lambda *_: [work])
        assert main(capture) == 1
    told = capsysbinary.readouterr().err
    assert told.count(b"\n") == 1
    assert (
        b"to read what is left, set failOnDataLoss=false, or run `mesh capture` or `mesh replay` again"
        in told
    )
    assert main(capture) == 0
    captured.close()


def test_a_segment_freed_after_the_plan(tmp_path: Path) -> None:
    captured = varied(tmp_path, 2)
    (work,) = planned(tmp_path)
    captured.free(2)
    with pytest.raises(DataLost, match=r"msgs\.0000000002 was freed before it was read"):
        rows_of(tmp_path, work)
    found = Counter(of_rows(rows_of(tmp_path, work, failOnDataLoss="false")))
    assert found
    assert found < Counter(captured.messages)
    captured.close()


def carried_from(captured: Captured, positions: list[int], freed: set[int]) -> list[int]:
    """Whatever of these stands in such segments is carried behind them, and they are freed."""
    while captured.segment_of(captured.snapshot()) in freed:
        pass
    gone = [one for one in positions if captured.segment_of(one) in freed]
    copies = [captured.carry(one, lane) for one in gone for lane in (1, 2)]
    captured.snapshot()
    captured.free(*freed)
    return copies


@pytest.mark.parametrize("ordering", ["none", "queue"])
@pytest.mark.parametrize("size", ["1g", "600"])
def test_what_was_carried_of_a_segment_that_is_freed_after_the_plan_is_read(
    tmp_path: Path, size: str, ordering: str
) -> None:
    """Found: all of it was skipped, and a stream never came back to it."""
    given = {"failOnDataLoss": "false", "ordering": ordering, "maxPartitionBytes": size}
    captured = jobs_and_audit(tmp_path)
    positions = publish(captured, 60)
    works = planned(tmp_path, **given)
    copies = carried_from(captured, positions[1:], {1, 2})
    lost = Counter(one for one in captured.messages if one.sequence < 2)

    def check() -> None:
        found = [of_rows(rows_of(tmp_path, work, **given)) for work in works]
        assert Counter(chain(*found)) == Counter(captured.messages) - lost

    check()
    works = planned(tmp_path, **given)
    carried_from(captured, positions[1:] + copies, set(map(captured.segment_of, copies)))
    check()
    captured.close()


@pytest.mark.parametrize("lossy", ["true", "false"])
def test_a_machine_without_the_directory_is_no_loss(tmp_path: Path, lossy: str) -> None:
    """Found: an executor that it is not mounted on said of each segment that it was freed, and with
    failOnDataLoss=false read nothing."""
    varied(tmp_path / "data", 2).close()
    (work,) = planned(tmp_path / "data")
    found = query(tmp_path / "data", failOnDataLoss=lossy)
    (tmp_path / "data").rename(tmp_path / "away")
    with pytest.raises(NoCapture, match="data: no such directory on this machine"):
        list(found.read(work, Times()))
    (tmp_path / "data").mkdir()
    with pytest.raises(NoCapture, match="data: not a broker's directory"):
        list(found.read(work, Times()))


def test_a_segment_that_is_not_for_this_user_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: of a task, a stack without one of our errors in it."""

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    varied(tmp_path, 2).close()
    (work,) = planned(tmp_path)
    monkeypatch.setattr("spark.capture.reading.segment_file", refuse)
    with pytest.raises(NoCapture, match=r"not readable by this user: .*msgs"):
        list(query(tmp_path).read(work, Times()))


@pytest.mark.parametrize("damaged", ["fail", "skip", "keep"])
def test_another_store_after_the_plan_is_a_loss_and_no_damage(tmp_path: Path, damaged: str) -> None:
    """Found: its segments passed for damaged ones, so with `skip` nothing was read and nothing said."""
    varied(tmp_path / "data", 2).close()
    (work,) = planned(tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    other = Captured(tmp_path / "data", store_id=b"t" * 16)
    other.declare("jobs", 1)
    other.close()
    with pytest.raises(
        DataLost, match=r"msgs\.0000000001 belongs to another store than when this was planned"
    ):
        rows_of(tmp_path / "data", work, damaged=damaged)
    assert not rows_of(tmp_path / "data", work, damaged=damaged, failOnDataLoss="false")


def test_offsets_that_are_gone_or_not_there_yet(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    for number in range(100):
        captured.publish([1], [b"%d" % number])
    captured.snapshot()
    captured.free(1)
    first = loaded(tmp_path)[0].offset
    assert first > 0
    with pytest.raises(DataLost, match=f"offsets 0 to {first - 1} of 'jobs' were freed"):
        loaded(tmp_path, startingOffsets='{"jobs": {"0": 0}}')
    found = loaded(tmp_path, startingOffsets='{"jobs": {"0": 0}}', failOnDataLoss="false")
    assert [one.offset for one in found] == list(range(first, 100))
    assert loaded(tmp_path, startingTimestamp=T0_US // 1000) == found, "a time names no message"
    with pytest.raises(DurableError, match="want at most 100, which is its end"):
        loaded(tmp_path, startingOffsets='{"jobs": {"0": 101}}')
    captured.close()


def test_a_torn_tail_is_not_read(tmp_path: Path) -> None:
    captured = Captured(tmp_path, LARGE)
    captured.declare("jobs", 1)
    for number in range(20):
        captured.publish([1], [b"%d" % number] * 3)
    captured.close()
    file = captured.path / "msgs.0000000001"
    content = file.read_bytes()
    end = len(content.rstrip(b"\0"))
    for cut in range(end - 130, end, 7):
        file.write_bytes(content[:cut] + bytes(len(content) - cut))
        found = loaded(tmp_path)
        assert found == captured.messages[: len(found)]
        assert len(found) in (54, 57)


def test_what_is_no_capture(tmp_path: Path) -> None:
    """Found: of a vhost whose log is not there, or not yet: "no vhost '/': did you mean '/'?"."""
    for name, error, match in (
        ("nowhere", NoCapture, "no such directory"),
        ("no\nwhere", NoCapture, r"^'.*no\\nwhere': no such directory"),
        ("empty", NoCapture, "there is no `vhosts` in it"),
        ("hollow", UnknownVhost, "no vhost '/': existing vhosts: none$"),
        ("cut off", UnknownVhost, "no vhost '/': existing vhosts: none$"),
        ("unused", NoCapture, "no broker has stored anything here"),
        ("foreign", ForeignStore, "it contains photo.jpg"),
    ):
        data = tmp_path / name
        log = data / "vhosts/42099b4af021e53fd8fd4e056c2568d7c2e3ffa8/log"
        if "where" not in name:
            data.mkdir()
        if name == "hollow":
            (data / "vhosts").mkdir()
        if name in ("cut off", "unused", "foreign"):
            log.mkdir(parents=True)
            (log.parent / "vhost").write_text("/")
        if name == "cut off":
            log.rmdir()
        if name == "foreign":
            (log / "photo.jpg").write_bytes(b"x")
        with pytest.raises(error, match=match) as caught:
            loaded(data)
        assert "\n" not in str(caught.value)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    from zlib import crc32

    from durable.log.header import CHECKED_FROM, CHECKSUM_AT

    captured = varied(tmp_path, 1)
    captured.close()
    file = captured.path / "msgs.0000000002"
    content = bytearray(file.read_bytes())
    content[8] = 2
    checksum = crc32(content[CHECKED_FROM:64], crc32(content[:CHECKSUM_AT]))
    content[CHECKSUM_AT:CHECKED_FROM] = checksum.to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(NewerFormat, match=r"msgs\.0000000002 has format version 2"):
        loaded(tmp_path)


def test_names_that_are_not_there(tmp_path: Path) -> None:
    captured = varied(tmp_path, 1)
    for given, match in (
        (
            {"streams": "audi"},
            "no stream 'audi' has messages in this log: did you mean 'audit'?",
        ),
        ({"queues": "audit"}, "no queue 'audit'"),
        ({"startingOffsets": '{"nobody": {"0": 1}}'}, "no queue or stream 'nobody'"),
        ({"startingOffsets": '{"nobody": {}}'}, "no queue or stream 'nobody'"),
        ({"startingOffsets": '{"jobs": {"5": 1}}'}, "no partition 5 of 'jobs'"),
    ):
        with pytest.raises(NothingSelected) as caught:
            loaded(tmp_path, **given)
        assert match in str(caught.value)
    with pytest.raises(UnknownVhost):
        loaded(tmp_path, vhost="tenant")
    captured.close()
