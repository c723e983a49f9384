"""Segments that nothing needs, on a memory disk: what goes, and what is left when it cannot."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.errors import StoreFull
from durable.log.bodies import decode_moved, move
from durable.log.calls import Calls
from durable.log.compaction import MARGIN
from durable.log.disk import Disk
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.header import segment_name
from durable.log.log import Log, open_log
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.real_disk import RealDisk
from durable.log.record import Kind
from durable.log.spares import SPARES
from tests.full_logs import (
    SNAPSHOT_BYTES,
    behind_spare,
    carrying,
    remove,
    room,
    spacious,
)
from tests.logs import SMALL, Gate, PlainLog, acks, inline, publish
from tests.unit.durable.log.test_scarcity import Scarce
from tests.unit.durable.log.test_segments_ahead import fill_up
from tests.waiting import until, virtual_sleep


def no_space(*names: str) -> None:
    raise OSError(errno.ENOSPC, "refused")


async def next_to(log: Log, position: int) -> int:
    """The log position of the first record there is from this one on."""
    (record,) = await log.read(position, 1)
    return record.position


async def test_what_was_more_than_expected_is_counted_again_when_a_twentieth_less_is_left() -> None:
    """Else, on a full disk, each ack would have it read again."""
    config = replace(SMALL, compaction_share_max=0.25)
    async with open_log(MemoryDisk(), config, in_thread=inline) as log:
        for number in range(60):
            await log.wait_durable(*await log.append([publish(number, 300)]))
        log.snapshot_at(log.durable_end - 1)
        log.refer(1, 1, 100)
        chosen = log.to_compact()
        assert chosen is not None
        assert chosen.needed_bytes == 100
        most = int(chosen.bytes_max / MARGIN)
        log.put_off(chosen, most)
        assert log.to_compact() is None
        log.release(1, 0, 4)
        assert log.to_compact() is None
        log.release(1, 0, 2)
        assert log.to_compact() is not None


async def test_a_segment_that_cannot_be_deleted_goes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: it ended the broker."""
    volume = Volume()
    disk = MemoryDisk(volume)
    async with open_log(disk, SMALL, in_thread=inline) as log:
        for number in range(30):
            await log.wait_durable(*await log.append([publish(number, 300)]))
        log.snapshot_at(30)

        def refuse(name: str) -> None:
            raise OSError(errno.EIO, "unlink failed")

        with monkeypatch.context() as patch:
            patch.setattr(disk, "unlink", refuse)
            assert await log.free() == []
            assert log.failure is None
        gone = await log.free()
        assert len(gone) > 1
        assert not {f"msgs.{number:010d}" for number in gone} & set(volume.seen)


async def test_who_frees_while_somebody_does_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: checkpoints and compaction do. The first one, done, forgot what the second one could not
    delete, and that stayed until the next start."""
    volume, gate, freed = Volume(), Gate(), list[int]()
    disk = MemoryDisk(volume)
    unlink, allowed = disk.unlink, {"msgs.0000000001"}

    def refuse(name: str) -> None:
        if name not in allowed:
            raise OSError(errno.EIO, "unlink failed")
        unlink(name)

    async with open_log(disk, SMALL, in_thread=gate) as log:
        for number in range(30):
            await log.wait_durable(*await log.append([publish(number, 300)]))
        monkeypatch.setattr(disk, "unlink", refuse)
        segments = list(log._store.segments)

        async def free() -> None:
            freed.extend(await log.free())

        async with trio.open_nursery() as nursery:
            log.snapshot_at(segments[0].end)
            gate.open = trio.Event()
            nursery.start_soon(free)
            await wait_all_tasks_blocked()
            log.snapshot_at(segments[1].end)
            nursery.start_soon(free)
            await wait_all_tasks_blocked()
            gate.open.set()
        assert freed == [1]
        assert "msgs.0000000002" in volume.seen
        allowed.add("msgs.0000000002")
        assert await log.free() == [2]
        assert "msgs.0000000002" not in volume.seen


@pytest.mark.parametrize(
    ("refused", "times"), [("rename", 1), ("rename", 2), ("sync_directory", 1)]
)
def test_a_spare_that_is_freed_comes_back_or_gives_its_space_back(
    refused: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: where there was no space for its name nothing behind it was removed; where that could not be synced
    it was forgotten. Then: where there was none once, others could have its space, and acks ended."""
    volume = spacious()
    log = carrying(volume)
    store, spares = log.store, log.committer.placer.spares
    while len(spares.small) == SPARES:
        log.write(acks(7, 0, 1))
    small = store.segments.last
    assert small is not None
    numbers = [small.number, 1]

    before = volume.free_bytes
    with monkeypatch.context() as patch:
        patch.setattr(store._disk, refused, no_space)
        if refused == "rename":
            assert remove(store, *numbers, spares_max=1) == []
            assert store.unremoved == [small.number]
            assert store.remove_error is not None
        else:
            with pytest.raises(OSError, match="refused"):
                remove(store, *numbers, spares_max=1)
            assert store.unremoved == numbers
        if times == 2:
            assert store.remove(1) == []
        else:
            patch.undo()
            assert [one.size_bytes for one in store.remove(1)] == [small.capacity_bytes]
    given_back = SMALL.segment_bytes + small.capacity_bytes * (times == 2)
    assert volume.free_bytes - before == given_back
    assert not store.unremoved
    assert not {segment_name(number) for number in numbers} & volume.seen.keys()


async def test_what_cannot_be_removed_keeps_no_other_from_it_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    volume = spacious()
    disk = MemoryDisk(volume)
    async with open_log(disk, SMALL, in_thread=inline) as log:
        with pytest.raises(StoreFull):
            while True:
                await log.wait_durable(*await log.append([publish(1, 300)]))
        log.snapshot_at(log.durable_end - 1)
        unlink = disk.unlink

        def refuse_first(name: str) -> None:
            if name == segment_name(1):
                raise OSError(errno.EPERM, "refused")
            unlink(name)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "unlink", refuse_first)
            gone = await log.free()
            assert gone
            assert 1 not in gone
            assert segment_name(1) in volume.seen
            assert not {segment_name(number) for number in gone} & volume.seen.keys()
        assert await log.free() == [1]
        await until(lambda: not log.statistics().full, 100.0)


def test_a_commit_whose_segment_has_no_name_for_certain_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: where a directory could not be synced for lack of space. What a second sync says proves nothing."""
    log = carrying(spacious())
    spares = log.committer.placer.spares
    with monkeypatch.context() as patch:
        patch.setattr(log.store._disk, "sync_directory", no_space)
        with pytest.raises(OSError, match="refused"):
            while len(spares.small) == SPARES:
                log.write(acks(7, 0, 1))
    assert log.committer.failure is not None


async def test_segments_go_when_nothing_refers_to_them() -> None:
    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        for number in range(30):
            (position,) = await log.append([publish(number, 300)])
            await log.wait_durable(position)
            log.refer(position)
        assert await log.free() == []
        for position in range(1, 31):
            if position != 14:
                log.release(position)
        assert await log.free() == [], "no snapshot has what its acks and definitions did"
        with pytest.raises(AssertionError, match="durable"):
            log.snapshot_at(31)
        log.snapshot_at(15)
        gone = await log.free()
        assert await next_to(log, 15) == 15
        log.snapshot_at(30)
        log.snapshot_at(9)
        gone += await log.free()
        assert len(gone) > 1
        assert await next_to(log, 14) == 14
        assert not {f"msgs.{number:010d}" for number in gone} & set(volume.seen)
        assert await next_to(log, 1) > 1
        with pytest.raises(AssertionError, match="released"):
            log.release(14, 2)
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        assert log.report.gaps == ()
        assert log.report.absent
        assert await next_to(log, 14) == 14


async def test_a_mostly_dead_segment_is_carried_forward_and_freed() -> None:
    """As compaction.py says it is done; what is alive is an oracle's set of log positions."""
    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        live: dict[int, int] = {}
        for number in range(40):
            draft = publish(number, 300)
            (position,) = await log.append([draft])
            await log.wait_durable(position)
            log.refer(position, 2, 2 * draft.size_bytes)
            live[position] = number
        log.snapshot_at(40)
        assert log.to_compact() is None
        for position in range(1, 41):
            count = 1 if position % 10 == 5 else 2
            log.release(position, count, count * publish(1, 300).size_bytes)
            if position % 10 != 5:
                del live[position]
        freed: list[int] = []
        while (chosen := log.to_compact()) is not None:
            for position in chosen.positions:
                if position in live:
                    (record,) = await log.read(position, 1)
                    (new,) = await log.append([move(record, record.targets)])
                    await log.wait_durable(new)
                    log.refer(new, 1, record.header.total_bytes)
                    log.release(position, 1, record.header.total_bytes)
                    live[new] = live.pop(position)
            log.snapshot_at(log.durable_end - 1)
            freed += await log.free()
        assert len(freed) >= 3
        found = {}
        for position, number in live.items():
            (record,) = await log.read(position, 1)
            moved = decode_moved(record) if record.kind == Kind.MOVED else None
            found[record.targets[0].first] = bytes(moved.body if moved else record.body)
            assert record.targets[0].first == number
        assert found == {number: publish(number, 300).body for number in (4, 14, 24, 34)}


async def test_what_stays_on_the_disk_is_said_once_with_the_first_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk(Volume())
    unlink, errors = disk.unlink, {segment_name(1): errno.EPERM, segment_name(2): errno.EIO}

    def refuse(name: str) -> None:
        if name in errors:
            raise OSError(errors[name], f"{name} is refused")
        unlink(name)

    def said() -> list[str]:
        return [one.message for one in caplog.records if "stay on the disk" in one.message]

    async with open_log(disk, SMALL, in_thread=inline) as log:
        for number in range(60):
            await log.wait_durable(*await log.append([publish(number, 300)]))
        segments = list(log._store.segments)
        log.snapshot_at(segments[2].end)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "unlink", refuse)
            assert await log.free() == [3]
            assert [segment_name(1) in one for one in said()] == [True]
            assert await log.free() == []
        assert await log.free() == [1, 2]
        log.snapshot_at(segments[3].end)
        assert await log.free() == [4]
        assert len(said()) == 1
        log.snapshot_at(segments[4].end)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "sync_directory", no_space)
            assert await log.free() == []
        assert len(said()) == 2
        assert log.failure is None
        assert await log.free() == [5]


def in_third(disk: Disk) -> PlainLog:
    """A log that writes its third segment; nothing refers to the others."""
    log = PlainLog(disk)
    while log.committer.placer.write_point.number < 3:
        log.write(publish(1, 300))
    return log


def test_what_could_not_be_removed_has_left_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the next segment would take what others are to have."""
    log = in_third(MemoryDisk(Volume()))
    with monkeypatch.context() as patch:
        patch.setattr(log.store._disk, "unlink", no_space)
        assert remove(log.store, 1) == []
    assert log.store.unremoved == [1]
    assert not log.store.place_vacant
    log.store.remove()
    assert log.store.place_vacant


def test_a_spare_gives_its_space_back_where_no_descriptor_is_left_for_it() -> None:
    volume = room()
    log, small = behind_spare(volume)
    log.close()
    disk = Scarce(volume)
    log = PlainLog(disk)  # Which has opened only what it writes to.
    disk.error = errno.EMFILE
    assert remove(log.store, small, spares_max=SPARES) == []
    assert not log.store.unremoved
    assert segment_name(small) not in volume.seen


def test_what_is_removed_does_not_stay_open(tmp_path: Path) -> None:
    """It would take its space until the end."""
    log = in_third(RealDisk(tmp_path / "store"))
    name = str(tmp_path / "store" / segment_name(1))

    def is_open() -> bool:
        links = list[str]()
        for one in os.listdir("/proc/self/fd"):
            if os.path.islink(f"/proc/self/fd/{one}"):
                links.append(os.readlink(f"/proc/self/fd/{one}"))
        return any(link.startswith(name) for link in links)

    assert is_open()
    remove(log.store, 1)
    assert not is_open()
    log.close()


@pytest.mark.parametrize("more", [False, True])
async def test_of_spares_that_are_freed_as_many_are_kept_as_are_missing(
    more: bool, autojump_clock: MockClock
) -> None:
    """`more`: others have been made in their place."""
    volume = spacious()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        spares = log._committer.placer.spares
        log.keep_for_snapshot(SNAPSHOT_BYTES)
        await fill_up(log)
        while spares.small:
            await log.wait_durable(*await log.append([acks(7, 0, 1)]))
        first = min(
            one.number for one in log._store.segments if one.capacity_bytes < SMALL.segment_bytes
        )
        if more:
            volume.capacity_bytes *= 2
            await until(lambda: len(spares.small) == SPARES, 100.0)
        else:
            volume.capacity_bytes = volume.used_bytes
        log.snapshot_at(log.durable_end - 1)
        assert first in await log.free()
        assert len(spares.small) == (SPARES if more else 1)


async def test_one_removes_at_a_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be removed would be forgotten by who began before that was known."""
    removing = list[str]()

    async def call(kind: str, *args: Any) -> Any:
        if kind == "freeing":
            assert not removing
            removing.append("one")
            await virtual_sleep(1.0)
            removing.pop()
        return await Calls.call(log.calls, kind, *args)

    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        monkeypatch.setattr(log.calls, "call", call)
        for number in range(30):
            await log.wait_durable(*await log.append([publish(number, 300)]))
        first, second, *_ = log._store.segments
        async with trio.open_nursery() as nursery:
            log.snapshot_at(first.end)
            nursery.start_soon(log.free)
            await wait_all_tasks_blocked()
            log.snapshot_at(second.end)
            assert await log.free() == [2]


def test_nothing_is_opened_while_it_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would stay open, by who reads in another thread."""
    log = in_third(MemoryDisk(Volume()))
    unlink, held = log.store._disk.unlink, list[bool]()

    def look(name: str) -> None:
        held.append(log.store._files.opening.locked())
        unlink(name)

    monkeypatch.setattr(log.store._disk, "unlink", look)
    remove(log.store, 1)
    assert held == [True]
    assert not log.store._files.opening.locked()


async def test_where_nothing_is_free_the_disk_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked again and again while a disk is full."""
    async with open_log(MemoryDisk(Volume()), SMALL, in_thread=inline) as log:
        await log.wait_durable(*await log.append([publish(1)]))
        with monkeypatch.context() as patch:
            patch.setattr(log._store, "remove", None)
            assert await log.free() == []


def test_what_somebody_else_has_removed_does_not_stay_open() -> None:
    """It would take its space until the end."""
    volume = Volume()
    log = in_third(MemoryDisk(volume))
    name = segment_name(1)
    volume.files.change(name, None, volume.seen[name])
    assert remove(log.store, 1, spares_max=SPARES) == []
    assert not log.store.unremoved
    assert 1 not in log.store._files
    assert log.store.place_vacant


def test_what_is_removed_while_a_segment_is_made_in_place_of_another_leaves_its_own() -> None:
    """Found by reading: it was forgotten when the segment was there, and the next one refused."""
    faults = Faults()
    log = in_third(FaultyDisk(Volume(), faults))
    remove(log.store, 1)

    def meanwhile() -> None:
        faults.before_sync = None
        remove(log.store, 2)

    faults.before_sync = meanwhile
    log.store.make_segment(5, carrier_missing=False)
    assert log.store.place_vacant
    log.store.make_segment(6, carrier_missing=False)
    assert not log.store.place_vacant


def test_what_was_removed_though_the_disk_said_not_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk(Volume())
    log = in_third(disk)
    unlink = disk.unlink

    def refuse(name: str) -> None:
        unlink(name)
        no_space()

    with monkeypatch.context() as patch:
        patch.setattr(disk, "unlink", refuse)
        assert remove(log.store, 1) == []
    assert log.store.unremoved == [1]
    assert not log.store.place_vacant
    assert log.store.remove() == []
    assert not log.store.unremoved
    assert log.store.place_vacant
