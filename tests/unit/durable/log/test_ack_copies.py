"""The copy of an `ack` in its `enq`: either file is enough for what was settled, whatever became of the other one.

Oracle: what was written last, and what was being written when the power went.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from durable.log.checkpoint import FileKind, Unusable, decode_checkpoint, join_ack, split_ack
from durable.log.checkpoints import Checkpoint, Checkpoints
from durable.log.cipher import Cipher
from durable.log.disk import Directory
from durable.log.faulty_disk import Faults, FaultyDisk, PowerCut
from durable.log.memory_disk import Inode, MemoryDisk, Volume
from tests.logs import STORE_ID
from tests.unit.durable.log import test_checkpoints
from tests.unit.durable.log.test_checkpoints import SEEDS, folder_of, open_in

NAMES = ("jobs", "mail")


def checkpoint(name: str, position: int, text: str = "") -> Checkpoint:
    return test_checkpoints.checkpoint(name, position, text)._replace(ack_copied=True)


def flip_a_bit(files: dict[str, Inode], name: str) -> None:
    files[name].seen[200] ^= 4
    files[name].stable[200] ^= 4


def cut(files: dict[str, Inode], name: str) -> None:
    for data in (files[name].seen, files[name].stable):
        del data[-1:]


def empty(files: dict[str, Inode], name: str) -> None:
    for data in (files[name].seen, files[name].stable):
        data.clear()


def remove(files: dict[str, Inode], name: str) -> None:
    del files[name]


Damage = Callable[[dict[str, Inode], str], None]
DAMAGES = [flip_a_bit, cut, empty, remove]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("encrypted", [False, True])
def test_without_its_ack_a_pair_is_as_it_was(
    damage: Damage, encrypted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: it counted as none, and what only that `ack` knew to be settled came again."""
    volume = Volume()
    cipher = Cipher(b"k" * 32, STORE_ID, encrypting=True, random_bytes=bytes)

    def files() -> Checkpoints:
        disk = MemoryDisk(volume)
        return Checkpoints(disk, STORE_ID, lambda: 1000, cipher if encrypted else None)

    files().write_all([checkpoint("jobs", 9)])
    assert files().read("jobs", 7) == checkpoint("jobs", 9)
    damage(folder_of(volume, "jobs").seen, "ack")
    found = files()
    assert found.read("jobs", 7) == checkpoint("jobs", 9)
    assert found.read("jobs", 8) is None, "of an earlier queue of this name"
    assert list(found.acks()) == [checkpoint("jobs", 9).ack]
    assert "/ack: " in caplog.text
    assert "reading its copy in enq instead" in caplog.text
    found.write_all([checkpoint("jobs", 10)])
    damage(folder_of(volume, "jobs").seen, "enq")
    assert files().read("jobs", 7) is None
    assert list(files().acks()) == [checkpoint("jobs", 10).ack]


def test_of_two_times_the_copy_counts() -> None:
    """As a power cut leaves them that kept one of two renames; the records since the earlier one are there still."""
    volume = Volume()
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 5)])
    old = folder_of(volume, "jobs").seen["ack"]
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 10)])
    folder_of(volume, "jobs").seen["ack"] = old
    found = open_in(MemoryDisk(volume))
    assert found.read("jobs", 7) == checkpoint("jobs", 10)
    assert found.unusable == Counter({Unusable.MIXED: 1})


def test_nothing_that_is_ahead_of_the_log_is_left() -> None:
    """Without its `ack` it would count once the log has got there again, with other records. What was settled
    before stays so, whichever file says it."""
    for ahead in ("enq", "ack"):
        volume = Volume()
        open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 5)])
        old = dict(folder_of(volume, "jobs").seen)
        open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 10)])
        files = folder_of(volume, "jobs").seen
        (other,) = {"enq", "ack"} - {ahead}
        files[other] = old[other]
        assert list(open_in(MemoryDisk(volume), end=8).acks()) == [checkpoint("jobs", 5).ack]
        for seed in range(SEEDS):
            later = open_in(MemoryDisk(volume.after_power_cut(Random(seed))))
            assert list(later.acks()) == [checkpoint("jobs", 5).ack]
            assert later.read("jobs", 7) in (None, checkpoint("jobs", 5))


@pytest.mark.parametrize("gone", [False, True])
def test_an_ack_that_cannot_be_read_now_is_not_replaced(gone: bool) -> None:
    """Nor an `enq`, where the `ack` is gone: what nothing else says may stand in it."""
    volume, faults = Volume(), Faults()
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 9)])
    if gone:
        del folder_of(volume, "jobs").seen["ack"]
    found = open_in(FaultyDisk(volume, faults))
    faults.read_error = errno.EMFILE
    with pytest.raises(OSError, match="enq" if gone else "ack"):
        list(found.acks())
    assert found.read("jobs", 7) is None
    faults.read_error = None
    assert list(found.acks()) == [checkpoint("jobs", 9).ack]


def test_no_bit_of_either_file_can_change() -> None:
    volume, whole = Volume(), Checkpoint("jobs", 7, 9, b"enq", b"ack", ack_copied=True)
    open_in(MemoryDisk(volume)).write_all([whole])
    for name, left in (("enq", None), ("ack", whole)):
        data = folder_of(volume, "jobs").seen[name].seen
        for bit in range(8 * len(data)):
            data[bit // 8] ^= 1 << bit % 8
            assert open_in(MemoryDisk(volume)).read("jobs", 7) == left
            assert list(open_in(MemoryDisk(volume)).acks()) == [b"ack"]
            data[bit // 8] ^= 1 << bit % 8


def test_what_was_joined_is_parted_and_nothing_else_is_an_error() -> None:
    for enq, ack in ((b"", b""), (b"enq", b""), (b"", b"ack"), (b"enq", b"ack")):
        assert split_ack(join_ack(enq, ack)) == (enq, ack)
    for payload in (b"", b"x", b"\xff" * 3, b"\xff" * 4, b"\xff" * 9):
        enq, ack = map(bytes, split_ack(payload))
        assert payload.startswith(enq + ack)


def test_only_an_enq_has_a_copy() -> None:
    """The same version of another file is one that only later software knows."""
    volume = Volume()
    open_in(MemoryDisk(volume)).write_all([checkpoint("jobs", 9)])
    files = folder_of(volume, "jobs").seen
    assert [files[name].seen[4] for name in ("enq", "ack")] == [3, 1]
    found = decode_checkpoint(bytes(files["enq"].seen))
    assert not isinstance(found, Unusable)
    assert (found.kind, found.with_ack, found.encrypted) == (FileKind.ENQ, True, False)


class Scenario:
    """Checkpoints written over and over; `certain` is what is durable, `possible` what may be."""

    def __init__(self, disk: Directory) -> None:
        self.found = open_in(disk)
        self.certain: dict[str, Checkpoint] = {}
        self.possible: dict[str, Checkpoint] = {}

    def run(self) -> None:
        for position in (3, 5, 5, 8):  # Twice at one log position: what differs must not mix.
            new = [checkpoint(name, position, str(id(self))) for name in NAMES]
            self.possible = {one.name: one for one in new}
            self.found.write_all(new)
            self.certain.update(self.possible)


def changes_of_the_scenario() -> int:
    disk = FaultyDisk(Volume())
    Scenario(disk).run()
    return disk.faults.changes


@pytest.mark.parametrize("cut_at", range(1, changes_of_the_scenario() + 1))
def test_power_cut_at_every_change_and_one_file_gone(cut_at: int) -> None:
    """Found: a mixture of two times counted as none, and so did one without its `ack`."""
    volume = Volume()
    scenario = Scenario(FaultyDisk(volume, Faults(power_cut_at=cut_at)))
    with pytest.raises(PowerCut):
        scenario.run()
    for seed in range(SEEDS):
        for gone in (None, "enq", "ack"):
            left = volume.after_power_cut(Random(seed))
            for name in scenario.certain:
                if gone:
                    flip_a_bit(folder_of(left, name).seen, gone)
            found = open_in(MemoryDisk(left))
            acks = [bytes(one) for one in found.acks()]
            for name, certain in scenario.certain.items():
                either = (certain, scenario.possible[name])
                assert found.read(name, 7) in ((None, *either) if gone == "enq" else either)
                assert any(bytes(one.ack) in acks for one in either)
            found.write_all(checkpoint(name, 9) for name in NAMES)
            assert all(found.read(name, 7) == checkpoint(name, 9) for name in NAMES)
