"""A log while it is being written, and what of it is known to be on stable storage."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from durable.log.committing import Write
from durable.log.config import LogConfig
from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.real_disk import RealFile
from tests.captures import SECOND_US, T0_US, Captured
from tests.logs import LARGE
from tests.stores import flip
from tests.unit.spark.loading import looked

ROOMY = LogConfig(segment_bytes=16 << 20, reserve_bytes=0, free_bytes_min=0)
KIB, MIB = b"x" * 1024, 1 << 20


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    found = Captured(tmp_path, LARGE)
    found.declare("jobs", 1)
    return found


def end_of(captured: Captured) -> int:
    return len((captured.path / "msgs.0000000001").read_bytes().rstrip(b"\0"))


def clear(file: Path, at: int, end: int) -> None:
    """Zeros there, and what was never written stays so."""
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes(end - at))


def test_a_commit_is_known_to_be_stable_when_a_later_one_says_so(captured: Captured) -> None:
    captured.publish([1], [b"first"])
    log = looked(captured)
    assert (log.end, log.synced_end) == (3, 2), "the last commit is valid, and perhaps not synced"
    captured.publish([1], [b"second"])
    captured.publish([1], [b"third"])
    log.refresh()
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
            log.refresh()
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


@pytest.mark.parametrize("later", [1, 2])
def test_damage_is_known_by_whatever_later_record_says_that_it_was_stable(
    captured: Captured, later: int
) -> None:
    """Found: only the next record was asked, and one of the same commit does not know."""
    at = end_of(captured)
    for number in range(4):
        captured.publish([1], [b"%d" % number * 50], durable=False)
    captured.log.commit()
    for _ in range(later):
        captured.publish([1], [b"later"])
    flip(captured.path / "msgs.0000000001", at + 150)
    log = looked(captured)
    assert log.end == 6 + later
    assert [one.at for one in log.contents[0].damaged] == [at // 8 * 8 + 8]
    assert log.spans()[1].messages == 3 + later


def test_damage_in_the_last_commit_alone_is_the_end_until_a_later_one_follows(
    captured: Captured,
) -> None:
    captured.publish([1], [b"first"])
    at = end_of(captured)
    for number in range(3):
        captured.publish([1], [b"%d" % number * 50], durable=False)
    captured.log.commit()
    flip(captured.path / "msgs.0000000001", at + 150)
    log = looked(captured)
    assert (log.end, log.contents[0].damaged) == (3, []), "it may just be being written"
    captured.publish([1], [b"later"])
    log.refresh()
    assert (log.end, len(log.contents[0].damaged)) == (7, 1)


@pytest.mark.parametrize("kib", [9, 300, 3000])
def test_zeros_where_records_stood_do_not_end_the_log(tmp_path: Path, kib: int) -> None:
    """Found: a page of zeros did, whatever stood behind it."""
    captured = Captured(tmp_path, ROOMY)
    captured.declare("jobs", 1)
    captured.publish([1], [b"first"])
    at, positions = end_of(captured), [captured.publish([1], [KIB]) for _ in range(kib)]
    end = end_of(captured)
    captured.publish([1], [b"later"])
    clear(captured.path / "msgs.0000000001", at, end)
    log = looked(captured)
    assert log.end == positions[-1] + 2
    assert len(log.contents[0].damaged) == 1
    assert log.spans()[1].messages == 2


@pytest.mark.parametrize("kib", [9, 300])
def test_a_last_segment_whose_front_is_lost_is_there(tmp_path: Path, kib: int) -> None:
    """Found: with its header and its first page it was taken for one that had not been begun."""
    captured = Captured(tmp_path, ROOMY)
    captured.declare("jobs", 1)
    while captured.segment_of(captured.publish([1], [KIB * 100])) == 1:
        pass
    for _ in range(kib // 100 + 1):
        position = captured.publish([1], [KIB * 100])
    clear(captured.path / segment_name(2), 0, kib << 10)
    log = looked(captured)
    assert log.end == position + 1
    assert log.contents[-1].number == 2


def test_what_is_written_while_the_rest_is_searched_is_no_damage(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commits come after the first look at where they stand, and before what follows is read."""
    captured.publish([1], [b"first"])
    log = looked(captured)
    at, pread = log.contents[0].end_at, RealFile.pread

    def read(self: RealFile, size_bytes: int, start: int) -> bytes:
        data = pread(self, size_bytes, start)
        if start == at and len(captured.messages) == 1:
            captured.publish([1], [b"second"])
            captured.publish([1], [b"third"])
        return data

    monkeypatch.setattr(RealFile, "pread", read)
    log.refresh()
    assert log.contents[0].damaged == []
    log.refresh()
    assert (log.end, log.contents[0].damaged) == (5, [])


@pytest.mark.parametrize("holes", [True, False])
def test_looking_at_an_idle_log_reads_little_however_much_is_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holes: bool
) -> None:
    """Also where the file system does not tell what was never written: there the first look reads all of it."""
    captured = Captured(tmp_path, ROOMY)
    captured.declare("jobs", 1)
    while captured.segment_of(captured.publish([1], [KIB * 100])) == 1:
        pass
    pread, sizes = RealFile.pread, list[int]()

    def read(self: RealFile, size_bytes: int, at: int) -> bytes:
        sizes.append(size_bytes)
        return pread(self, size_bytes, at)

    monkeypatch.setattr(RealFile, "pread", read)
    if not holes:
        monkeypatch.setattr(RealFile, "data_end", lambda self: self.size_bytes)
    log = looked(captured)
    for _ in range(5):
        sizes.clear()
        log.refresh()
        assert sum(sizes) < 3 * MIB
    assert holes or (captured.path / segment_name(3)).stat().st_size == 16 * MIB


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
    log.refresh()
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
    log.refresh()
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
