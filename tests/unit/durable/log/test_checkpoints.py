"""Checkpoint files: the old one, the new one, or none; never a mixture, whenever the power goes.

Oracle: a dict of what was written last, and what was being written when the power went.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from durable.log.checkpoint import Unusable, directory_name
from durable.log.checkpoints import ROOT_NAME, Checkpoint, Checkpoints, Root
from durable.log.disk import Directory
from durable.log.faulty_disk import Faults, FaultyDisk, PowerCut
from durable.log.memory_disk import Folder, MemoryDisk, Volume
from durable.log.real_disk import RealDirectory
from tests.logs import STORE_ID, PlainLog, definitions

SEEDS = 12
NAMES = ("jobs", "mail", "täglich/neu")


def open_in(disk: Directory, end: int = 1000, store_id: bytes = STORE_ID) -> Checkpoints:
    return Checkpoints(disk, store_id, lambda: end)


def checkpoint(name: str, position: int, text: str = "") -> Checkpoint:
    """Large enough for several sectors, so that a power cut can tear it."""
    enq = f"enq {name} {position} {text} ".encode() * 60
    return Checkpoint(name, 7, position, enq, f"ack {position} {text} ".encode() * 90)


def folder_of(volume: Volume, name: str) -> Folder:
    return volume.folders.seen["queues"].folders.seen[directory_name(name)]


def test_what_was_written_comes_back() -> None:
    volume = Volume()
    found = open_in(MemoryDisk(volume))
    assert (found.read("jobs", 7), found.read_root(), found.digests()) == (None, None, [])
    written = [checkpoint(name, 9) for name in NAMES]
    found.write_all(written)
    found.write_root(Root(12, 5, b"more"))
    again = open_in(MemoryDisk(volume))
    assert [again.read(name, 7) for name in NAMES] == written
    assert again.read_root() == Root(12, 5, b"more")
    assert again.digests() == sorted(directory_name(name) for name in NAMES)
    assert not again.unusable
    again.write_all([checkpoint("jobs", 10)])
    assert again.read("jobs", 7) == checkpoint("jobs", 10)
    assert sorted(folder_of(volume, "jobs").seen) == ["ack", "enq"]


def test_a_root_finds_the_room_that_was_made_for_it() -> None:
    volume = Volume()
    found = open_in(MemoryDisk(volume))
    found.write_root(Root(9, 5, b"all"))
    for extra in (b"more than before" * 99, b"less"):
        found.reserve_root(extra, b"")
        assert found.read_root() != Root(12, 5, extra)
        volume.capacity_bytes = volume.used_bytes
        found.write_root(Root(12, 5, extra))
        assert open_in(MemoryDisk(volume)).read_root() == Root(12, 5, extra)
        volume.capacity_bytes *= 2


def test_a_file_that_cannot_be_read_is_as_good_as_none() -> None:
    """Found: the broker did not start, for a file that it can do without."""
    volume, faults = Volume(), Faults()
    found = open_in(MemoryDisk(volume))
    found.write_all([checkpoint("jobs", 9)])
    found.write_root(Root(12, 5, b""))
    again = open_in(FaultyDisk(volume, faults))
    faults.read_error = errno.EIO
    assert (again.read("jobs", 7), again.read_root()) == (None, None)
    assert again.unusable[Unusable.UNREADABLE] == 2
    assert list(again.acks(known=["jobs"])) == []
    assert list(again.acks(known=[])) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_what_may_be_all_that_is_left_of_settlements_has_to_be_read(code: int) -> None:
    """Found: without a descriptor for a moment, messages that had been acked came back for good."""
    volume, faults = Volume(), Faults()
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 9)])
    again = open_in(FaultyDisk(volume, faults))
    faults.read_error = code
    with pytest.raises(OSError, match="ack") as error:
        list(again.acks())
    assert error.value.errno == code
    faults.read_error = None
    assert list(again.acks()) == [checkpoint("jobs", 9).ack]


def test_what_somebody_else_has_put_there_stays_and_is_in_nobodys_way(tmp_path: Path) -> None:
    """Found: each checkpoint ended where it removed a file for a directory, so no segment was freed."""
    files = open_in(RealDirectory(tmp_path))
    files.write_all([checkpoint("jobs", 9), checkpoint("mail", 9)])
    folder = tmp_path / "queues"
    (folder / ".DS_Store").write_text("a file")
    (folder / "old").mkdir()
    (folder / "old" / "enq").write_text("a copy")
    assert files.remove_others(["jobs"]) == 1
    assert list(files.acks()) == [checkpoint("jobs", 9).ack]
    assert not files.unusable
    assert sorted(os.listdir(folder)) == sorted([".DS_Store", "old", directory_name("jobs")])


def test_what_somebody_else_has_put_to_a_queue_outlives_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: a directory there kept every checkpoint from being finished, and no space was given back; a
    file there was deleted."""
    files = open_in(RealDirectory(tmp_path))
    files.write_all([checkpoint("jobs", 9), checkpoint("mail", 9)])
    folder = tmp_path / "queues" / directory_name("mail")
    (folder / "old").mkdir()
    (folder / "notes.txt").touch()
    for position in range(2):
        files.write_all([checkpoint("mail", position)])
        assert files.read("mail", 7) == checkpoint("mail", position)
        files.remove_others(["jobs"])
        assert sorted(one.name for one in folder.iterdir()) == ["notes.txt", "old"]
    assert caplog.messages == [
        f"{folder} was not deleted: it contains notes.txt, old, not of this broker"
    ]
    assert files.read("mail", 7) is None
    assert files.read("jobs", 7) == checkpoint("jobs", 9)


def test_removed_ones_are_gone() -> None:
    volume = Volume()
    found = open_in(MemoryDisk(volume))
    found.write_all(checkpoint(name, 9) for name in NAMES)
    others = [name for name in NAMES if name != "jobs"]
    assert [found.remove_others(others) for _ in range(2)] == [1, 0]
    assert found.remove_others(["mail", "never there"]) == 1
    assert found.digests() == [directory_name("mail")]
    left = open_in(MemoryDisk(volume.after_power_cut(Random(0))))
    assert [left.read(name, 7) is not None for name in NAMES] == [False, True, False]


def test_a_root_that_was_dropped_does_not_come_back_after_a_power_cut() -> None:
    """What it says has to be there may have been freed by then."""
    volume = Volume()
    files = open_in(MemoryDisk(volume))
    files.write_root(Root(5, 3, b"", b""))
    files.drop_root(4)
    for seed in range(20):
        assert ROOT_NAME not in volume.after_power_cut(Random(seed)).seen


def damage_a_bit(volume: Volume) -> None:
    folder_of(volume, "jobs").seen["ack"].seen[200] ^= 4


def cut_it(volume: Volume) -> None:
    del folder_of(volume, "jobs").seen["enq"].seen[-1:]


def empty_it(volume: Volume) -> None:
    del folder_of(volume, "jobs").seen["enq"].seen[:]


def swap_them(volume: Volume) -> None:
    files = folder_of(volume, "jobs").seen
    files["enq"], files["ack"] = files["ack"], files["enq"]


def mix_them(volume: Volume) -> None:
    other = Volume()
    open_in(MemoryDisk(other)).write_all([checkpoint("jobs", 9, "other")])
    folder_of(volume, "jobs").seen["ack"] = folder_of(other, "jobs").seen["ack"]


def lose_one(volume: Volume) -> None:
    del folder_of(volume, "jobs").seen["ack"]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (damage_a_bit, Unusable.DAMAGED), (cut_it, Unusable.DAMAGED), (swap_them, Unusable.OTHER),
        (empty_it, Unusable.MISSING), (mix_them, Unusable.MIXED), (lose_one, Unusable.MISSING),
    ],
)  # fmt: skip
def test_files_that_are_not_as_they_should_be(
    damage: Callable[[Volume], object], why: Unusable
) -> None:
    volume = Volume()
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 9), checkpoint("mail", 9)])
    damage(volume)
    found = open_in(MemoryDisk(volume))
    assert (found.read("jobs", 7), found.read("mail", 7)) == (None, checkpoint("mail", 9))
    assert found.unusable == Counter({why: 1})
    found.write_all([checkpoint("jobs", 10)])
    assert found.read("jobs", 7) == checkpoint("jobs", 10)


@pytest.mark.parametrize("renamed", ["enq", "ack"])
@pytest.mark.parametrize("before", [None, 7, 8], ids=["the first", "the next", "of a new queue"])
def test_a_kill_between_two_renames_leaves_the_new_pair(renamed: str, before: int | None) -> None:
    """Found: a broker that was killed there read its whole log. A power cut may keep the later rename only."""
    volume = Volume()
    if before:
        open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 9)._replace(lane=before)])
        old = dict(folder_of(volume, "jobs").seen)
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 10)])
    files = folder_of(volume, "jobs").seen
    (other,) = {"enq", "ack"} - {renamed}
    files[f"{other}.new"] = files.pop(other)
    if before:
        files[other] = old[other]
    found = open_in(MemoryDisk(volume))
    assert found.read("jobs", 7) == checkpoint("jobs", 10)
    assert not found.unusable
    found.write_all([checkpoint("jobs", 11)])
    assert found.read("jobs", 7) == checkpoint("jobs", 11)
    assert sorted(files) == ["ack", "enq"]


def test_of_what_was_not_finished_nothing_is_left_where_the_log_is_shorter() -> None:
    """Found: such a pair counted once the log had got there again, with other records."""
    volume = Volume()
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 5)])
    old = folder_of(volume, "jobs").seen["ack"]
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 10)])
    files = folder_of(volume, "jobs").seen
    files["ack.new"], files["ack"] = files["ack"], old
    found = open_in(MemoryDisk(volume), end=8)
    found.remove_unfinished()
    assert list(found.acks()) == [checkpoint("jobs", 5).ack]
    for seed in range(SEEDS):
        assert open_in(MemoryDisk(volume.after_power_cut(Random(seed)))).read("jobs", 7) is None


def test_no_bit_of_a_file_can_change() -> None:
    volume = Volume()
    open_in(MemoryDisk(volume)).write_all([Checkpoint("jobs", 7, 9, b"enq", b"ack")])
    for name in ("enq", "ack"):
        data = folder_of(volume, "jobs").seen[name].seen
        for bit in range(8 * len(data)):
            data[bit // 8] ^= 1 << bit % 8
            assert open_in(MemoryDisk(volume)).read("jobs", 7) is None
            data[bit // 8] ^= 1 << bit % 8
    assert open_in(MemoryDisk(volume)).read("jobs", 7) is not None


def test_of_another_store_another_queue_or_ahead_of_the_log() -> None:
    volume = Volume()
    disk = MemoryDisk(volume)
    open_in(disk).write_all([checkpoint("jobs", 9)])
    open_in(disk).write_root(Root(9, 1, b""))
    for found, lane, why in (
        (open_in(disk, store_id=b"o" * 16), 7, Unusable.FOREIGN),
        (open_in(disk), 8, Unusable.OTHER),
        (open_in(disk, end=8), 7, Unusable.AHEAD),
    ):
        assert found.read("jobs", lane) is None
        assert found.unusable == Counter({why: 1})
    assert open_in(disk, end=9).read_root() is None
    # The log gets there again, with other records: what was ahead of it must not come back.
    for seed in range(SEEDS):
        later = open_in(MemoryDisk(volume.after_power_cut(Random(seed))))
        assert (later.read("jobs", 7), later.read_root()) == (None, None)


def test_an_ack_says_what_it_says_whatever_became_of_the_rest() -> None:
    volume = Volume()
    found = open_in(MemoryDisk(volume))
    written = [checkpoint(name, 9) for name in NAMES]
    found.write_all(written)
    found.write_root(Root(12, 5, b""))
    del folder_of(volume, "jobs").seen["enq"]
    mail = folder_of(volume, "mail").seen["ack"]
    mail.seen[200] ^= 4
    mail.stable[200] ^= 4
    folder = volume.folders.seen["queues"].folders
    folder.seen["lost+found"] = Folder()
    again = open_in(MemoryDisk(volume))
    assert {*again.acks()} == {one.ack for one in written if one.name != "mail"}
    assert again.unusable == Counter({Unusable.DAMAGED: 1})
    assert again.log_end_min == 9
    again.read_root()
    assert again.log_end_min == 13, "after the snapshot"
    assert list(again.acks(known=["jobs"])) == [written[2].ack]
    # Ahead of the log: the pair is gone, for good.
    assert list(open_in(MemoryDisk(volume), end=8).acks()) == []
    for seed in range(SEEDS):
        later = open_in(MemoryDisk(volume.after_power_cut(Random(seed))))
        assert list(later.acks()) == []
        assert later.read(NAMES[2], 7) is None


def test_of_a_later_version() -> None:
    volume = Volume()
    open_in(MemoryDisk(volume)).write_root(Root(9, 1, b""))
    data = volume.seen["checkpoint"].seen
    data[4] = 3
    data[8:12] = crc32(data[12:], crc32(data[:8])).to_bytes(4, "little")
    found = open_in(MemoryDisk(volume))
    assert found.read_root() is None
    assert found.unusable == Counter({Unusable.NEWER: 1})


def test_many_queues_cost_a_sync_per_file_and_directory_and_two() -> None:
    disk = FaultyDisk(Volume())
    found = open_in(disk)
    found.write_all(Checkpoint(str(number), 7, 9, b"enq", b"ack") for number in range(200))
    assert disk.faults.syncs == 400
    assert disk.faults.changes == 1 + 200 * (1 + 2 * (1 + 1 + 1 + 1) + 1) + 2
    assert len(found.digests()) == 200


def test_between_two_files_it_can_be_stopped() -> None:
    class Enough(Exception):
        pass

    for stop_at in range(1, 100):
        volume = Volume()
        found = open_in(MemoryDisk(volume))
        found.write_all(checkpoint(name, 9) for name in NAMES)
        calls = 0

        def between(stop_at: int = stop_at) -> None:
            nonlocal calls
            calls += 1
            if calls == stop_at:
                raise Enough

        try:
            found.write_all((checkpoint(name, 10) for name in NAMES), between)
        except Enough:
            for name in NAMES:
                assert found.read(name, 7) in (checkpoint(name, 9), checkpoint(name, 10))
            found.write_all(checkpoint(name, 11) for name in NAMES)
            assert found.read("jobs", 7) == checkpoint("jobs", 11)
        else:
            break
    assert stop_at == len(NAMES) * (2 + 2 + 1 + 1) + 1


class Scenario:
    """Checkpoints written over and over; `certain` is what is durable, `possible` what may be."""

    def __init__(self, disk: Directory) -> None:
        self.found = open_in(disk)
        self.certain: dict[str, Checkpoint | None] = dict.fromkeys(NAMES)
        self.possible: dict[str, Checkpoint | None] = {}
        self.root: list[Root | None] = [None]

    def run(self) -> None:
        for position in (3, 5, 5, 8):  # Twice at one log position: what differs must not mix.
            new = [checkpoint(name, position, str(id(self))) for name in NAMES[: position // 2]]
            self.begin({one.name: one for one in new})
            self.found.write_all(new)
            self.done()
            self.root.append(Root(position, position - 2, b"x" * 700))
            self.found.write_root(self.root[-1])  # type: ignore[arg-type]
            del self.root[:-1]
            self.begin({"mail": None})
            self.found.remove_others(name for name in NAMES if name != "mail")
            self.done()

    def begin(self, possible: dict[str, Checkpoint | None]) -> None:
        self.possible = possible

    def done(self) -> None:
        self.certain.update(self.possible)
        self.possible = {}


def changes_of_the_scenario() -> int:
    disk = FaultyDisk(Volume())
    Scenario(disk).run()
    return disk.faults.changes


@pytest.mark.parametrize("cut_at", range(1, changes_of_the_scenario() + 1))
def test_power_cut_at_every_change(cut_at: int) -> None:
    volume = Volume()
    scenario = Scenario(FaultyDisk(volume, Faults(power_cut_at=cut_at)))
    with pytest.raises(PowerCut):
        scenario.run()
    for seed in range(SEEDS):
        left = volume.after_power_cut(Random(seed))
        found = open_in(MemoryDisk(left))
        for name in NAMES:
            one = found.read(name, 7)
            if name in scenario.possible:
                assert one in (None, scenario.certain[name], scenario.possible[name])
            else:
                assert one == scenario.certain[name]
        assert found.read_root() in scenario.root
        found.write_all(checkpoint(name, 9) for name in NAMES)
        assert all(found.read(name, 7) == checkpoint(name, 9) for name in NAMES)
        if cut_at % 7 == 0:
            assert open_in(MemoryDisk(left.after_power_cut(Random(seed)))).read("jobs", 7)


def snapshots(disk: FaultyDisk) -> None:
    log = PlainLog(disk)
    found = Checkpoints(disk, STORE_ID, lambda: log.committer.durable_end)
    for number in range(4):
        log.write(definitions("between"), definitions(number))
        (position,) = log.write(definitions({"snapshot": number}))
        found.write_root(Root(position, position - 1, b""))
    log.close()


def test_a_root_never_names_a_snapshot_that_is_not_there() -> None:
    disk = FaultyDisk(Volume())
    snapshots(disk)
    roots = set()
    for cut_at, seed in product(range(1, disk.faults.changes + 1), range(4)):
        volume = Volume()
        with pytest.raises(PowerCut):
            snapshots(FaultyDisk(volume, Faults(power_cut_at=cut_at)))
        left = volume.after_power_cut(Random(seed))
        log = PlainLog(MemoryDisk(left))
        root = open_in(MemoryDisk(left), log.committer.durable_end).read_root()
        roots.add(root)
        if root is not None:
            record = log.store.reader.record(root.snapshot, log.committer.durable_end)
            assert bytes(record.body).startswith(b"\x81\xa8snapshot")
    assert len(roots) == 5
    with pytest.raises(AssertionError, match="durable"):
        open_in(MemoryDisk(), end=9).write_root(Root(9, 1, b""))
