"""A log while it is being written, and what of it is known to be on stable storage."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from durable.log.committing import Write
from durable.log.header import SEGMENT_HEADER_BYTES
from tests.captures import SECOND_US, T0_US, Captured
from tests.logs import LARGE
from tests.stores import flip
from tests.unit.spark.loading import looked


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    found = Captured(tmp_path, LARGE)
    found.declare("jobs", 1)
    return found


def end_of(captured: Captured) -> int:
    return len((captured.path / "msgs.0000000001").read_bytes().rstrip(b"\0"))


def test_a_commit_is_known_to_be_stable_when_a_later_one_says_so(captured: Captured) -> None:
    captured.publish([1], [b"first"])
    log = looked(captured)
    assert (log.end, log.synced_end) == (3, 2), "the last commit is valid, and perhaps not synced"
    captured.publish([1], [b"second"])
    captured.publish([1], [b"third"])
    log.look()
    assert (log.end, log.synced_end) == (5, 4)
    assert log.sync()


def test_a_commit_of_several_records_is_known_as_a_whole(captured: Captured) -> None:
    for number in range(5):
        captured.publish([1], [b"%d" % number], durable=False)
    captured.log.commit()
    log = looked(captured)
    assert (log.end, log.synced_end) == (7, 2)


def test_what_is_half_written_is_not_there_and_comes_later(captured: Captured) -> None:
    """The bytes of a commit appear one after the other; at each of them the log is looked at."""
    captured.publish([1], [b"first" * 20])
    for number in range(2):
        captured.publish([1], [b"%d" % number * 50], durable=False)
    commit = captured.log.committer.begin(0.0)
    assert commit is not None
    (write,) = (step for step in commit.steps if isinstance(step, Write))
    data = b"".join(map(bytes, write.pieces))
    log = looked(captured)
    ends = [log.end]
    with (captured.path / "msgs.0000000001").open("r+b") as file:
        for index in range(len(data)):
            file.seek(write.at + index)
            file.write(data[index : index + 1])
            file.flush()
            log.look()
            ends.append(log.end)
    assert ends == sorted(ends)
    assert set(ends) == {3, 4, 5}
    assert log.spans()[1].messages == 3
    assert ends.index(5) > len(data) - 8, "with its last byte, but for padding"


def test_damage_that_was_on_stable_storage_does_not_stop_the_reader(captured: Captured) -> None:
    captured.publish([1], [b"first" * 20])
    at = end_of(captured) - 20
    captured.publish([1], [b"second"])
    captured.publish([1], [b"third"])
    flip(captured.path / "msgs.0000000001", at)
    log = looked(captured)
    assert log.end == 5
    assert [one.end - one.at for one in log.contents[0].damaged] == [64 + 16 + 184]


def test_damage_at_the_end_is_the_end(captured: Captured) -> None:
    captured.publish([1], [b"first"])
    captured.publish([1], [b"second" * 20])
    flip(captured.path / "msgs.0000000001", end_of(captured) - 20)
    assert looked(captured).end == 3


def test_looking_again_reads_only_what_is_new(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    for number in range(40):
        captured.publish([1], [b"%d" % number])
    log = looked(captured)
    before = log.contents[0]
    assert before.complete
    flip(captured.path / "msgs.0000000001", 100)
    captured.publish([1], [b"more"])
    log.look()
    assert log.contents[0] is before
    assert log.spans()[1].messages == 41


def test_absent_positions(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    for number in range(120):
        captured.publish([1], [b"%d" % number])
    log = looked(captured)
    assert log.absent(1, log.end) == []
    firsts = [one.first for one in log.contents]
    assert len(firsts) >= 5
    captured.free(1, 3)
    log.look()
    assert log.absent(1, log.end) == [(1, firsts[1]), (firsts[2], firsts[3])]
    assert log.absent(firsts[2] + 1, firsts[2] + 3) == [(firsts[2] + 1, firsts[2] + 3)]
    assert log.absent(firsts[3], firsts[3] + 1) == []
    assert log.absent(log.end - 1, log.end + 2) == [(log.end, log.end + 2)]


def test_the_position_of_a_time(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    positions = [captured.publish([1], [b"x"]) for _ in range(60)]
    log = looked(captured)
    for number, position in enumerate(positions):
        assert log.position_at(T0_US + (number + 1) * SECOND_US) == position
    assert log.position_at(0) == positions[0]
    assert log.position_at(T0_US + 61 * SECOND_US) == log.end


def test_the_position_of_a_time_of_which_only_copies_stand(tmp_path: Path) -> None:
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    positions = [captured.publish([1], [b"x"]) for _ in range(60)]
    gone = [one for one in positions if captured.segment_of(one) == 1]
    for position in gone[::-2]:
        captured.carry(position, 1)
    captured.free(1)
    log = looked(captured)
    standing = {*gone[::-2], *positions[len(gone) :]}
    for number, position in enumerate(positions):
        found = log.position_at(T0_US + (number + 1) * SECOND_US)
        assert found == min(one for one in standing if one >= position)


def test_the_last_record_is_told_the_same_for_ever(captured: Captured) -> None:
    """It stands in checkpoints: told otherwise, every stream would say that its log is another one."""
    position = captured.publish([1], [b"first"])
    captured.publish([1], [b"second"])
    assert looked(captured).last_before(position + 1) == (position, "1ddeaaa71b4b3632")


def test_a_seal_is_no_record_where_the_next_one_is_damaged(tmp_path: Path) -> None:
    """It has the log position of the next one, which would be another than had been read there."""
    captured = Captured(tmp_path)
    captured.declare("jobs", 1)
    positions = [captured.publish([1], [b"%d" % number]) for number in range(60)]
    first = next(one for one in positions if captured.segment_of(one) == 2)
    flip(captured.path / "msgs.0000000002", SEGMENT_HEADER_BYTES + 40)
    found = looked(captured).last_before(first + 1)
    assert found is not None
    assert found.position == first - 1
