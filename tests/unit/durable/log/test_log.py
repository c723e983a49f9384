"""The trio shell, on a memory disk; time is virtual, and stands still unless a test moves it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.errors import NotInLog, StoreBusy, StoreClosed, StoreFailed, StoreFull, StoreInUse
from durable.log.committing import COMMIT_RECORDS_MAX, WAITING_BYTES
from durable.log.faulty_disk import FaultyDisk
from durable.log.log import Log, open_log
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.record import Kind
from mesh.waker import Waker
from tests.logs import LARGE, SMALL, Gate, acks, inline, publish
from tests.waiting import until, virtual_sleep

TWO = 2 * WAITING_BYTES + 400
"""So much memory that two records wait, and a third does not."""


async def committed(log: Log, position: int) -> None:
    """Wait for that as the broker does: `Log.wait_durable` would hurry it."""
    woken = Waker()
    log.on_commit = woken.wake
    while log.durable_end <= position:
        await woken.wait()


async def test_durable_returns_when_it_is_on_the_platter() -> None:
    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        (position,) = log.append_nowait([publish(1)])
        assert log.durable_end == position
        await log.wait_durable(position)
        assert log.durable_end == log.end == position + 1
        file = volume.seen["msgs.0000000001"]
        assert file.stable == file.seen
        await log.wait_durable(position)


async def test_what_comes_while_a_commit_is_under_way_is_committed_together() -> None:
    gate = Gate()
    disk = FaultyDisk(Volume())
    async with open_log(disk, replace(SMALL, commit_bytes_max=1 << 20), in_thread=gate) as log:
        await log.wait_durable(log.append_nowait([publish(9)])[0])
        await wait_all_tasks_blocked()
        gate.open = trio.Event()
        syncs, done = disk.faults.syncs, []
        log.append_nowait([publish(0)])
        await wait_all_tasks_blocked()

        async def wait_for(position: int) -> None:
            await log.wait_durable(position)
            done.append(position)

        async with trio.open_nursery() as nursery:
            for number in range(1, 9):
                for position in log.append_nowait([publish(number)]):
                    nursery.start_soon(wait_for, position)
            await wait_all_tasks_blocked()
            assert (done, log.statistics().pending_bytes > 0) == ([], True)
            gate.open.set()
        assert sorted(done) == list(range(3, 11))
        assert disk.faults.syncs == syncs + 2, "one for the first, one for the other eight"


async def test_a_commit_takes_so_many_records_however_small() -> None:
    """They are encoded in one turn."""
    config = replace(LARGE, segment_bytes=1 << 21)
    async with open_log(MemoryDisk(), config, in_thread=inline) as log:
        log.hold()
        positions = log.append_nowait([publish(at) for at in range(2 * COMMIT_RECORDS_MAX + 1)])
        commits = log.statistics().commits
        log.commit_nowait()
        await log.wait_durable(positions[-1])
        assert log.statistics().commits == commits + 3


async def test_who_holds_begins_the_commit_of_all_that_was_appended_in_the_turn() -> None:
    disk = FaultyDisk(Volume())
    async with open_log(disk, replace(SMALL, commit_bytes_max=1 << 20), in_thread=inline) as log:
        await log.wait_durable(log.append_nowait([publish(9)])[0])
        await wait_all_tasks_blocked()
        syncs = disk.faults.syncs
        log.hold()
        log.append_nowait([publish(0)])
        log.append_nowait([publish(1)])
        await wait_all_tasks_blocked()
        assert (log.durable_end, log.end) == (2, 4), "nobody else begins"
        log.commit_nowait()
        (third,) = log.append_nowait([publish(2)])
        log.commit_nowait()
        await log.wait_durable(third)
        assert disk.faults.syncs == syncs + 2, "one for the first two, one for what came after"
        await log.wait_durable(log.append_nowait([publish(3)])[0])
        assert disk.faults.syncs == syncs + 3, "held for one turn only"
        log.hold()
        (last,) = log.append_nowait([publish(4)])
    assert log.durable_end == last + 1, "the end of the block commits it"


async def test_what_nobody_waits_for_goes_with_the_next_commit() -> None:
    disk = FaultyDisk(Volume())
    async with open_log(disk, replace(SMALL, commit_bytes_max=1 << 20), in_thread=inline) as log:
        await log.wait_durable(log.append_nowait([publish(9)])[0])
        await wait_all_tasks_blocked()
        syncs = disk.faults.syncs
        for number in range(3):
            log.append_nowait([acks(7, number, number + 1)], hurry=False)
        await wait_all_tasks_blocked()
        assert (log.durable_end, log.end) == (2, 5)
        (position,) = log.append_nowait([publish(0)])
        await wait_all_tasks_blocked()
        assert (log.durable_end, disk.faults.syncs) == (position + 1, syncs + 1)


async def test_what_nobody_waits_for_is_committed_after_a_while(
    autojump_clock: MockClock,
) -> None:
    config = replace(SMALL, company_s=5.0)
    async with open_log(MemoryDisk(), config, in_thread=inline) as log:
        for number in range(2):
            began_s = trio.current_time()
            (position,) = log.append_nowait([acks(7, number, number + 1)], hurry=False)
            await committed(log, position)
            assert trio.current_time() - began_s == pytest.approx(5.0)


async def test_what_nobody_waited_for_is_committed_when_somebody_does(
    autojump_clock: MockClock,
) -> None:
    async with open_log(MemoryDisk(), replace(SMALL, company_s=5.0), in_thread=inline) as log:
        (first,) = log.append_nowait([acks(7, 0, 1)], hurry=False)
        await log.wait_durable(first)
        (second,) = log.append_nowait([acks(7, 1, 2)], hurry=False)
        log.hurry()
        await committed(log, second)
        assert trio.current_time() == 0


async def test_what_nobody_waited_for_is_committed_when_somebody_needs_its_room(
    autojump_clock: MockClock,
) -> None:
    config = replace(SMALL, pending_bytes_max=TWO, company_s=5.0)
    async with open_log(MemoryDisk(), config, in_thread=inline) as log:
        log.append_nowait([publish(0), publish(1)], hurry=False)
        assert await log.append([publish(2)]) == range(3, 4)
        assert trio.current_time() == 0


async def test_what_nobody_waits_for_does_not_follow_a_commit_at_once() -> None:
    gate = Gate()
    disk = FaultyDisk(Volume())
    async with open_log(disk, SMALL, in_thread=gate) as log:
        await log.wait_durable(log.append_nowait([publish(9)])[0])
        await wait_all_tasks_blocked()
        gate.open = trio.Event()
        syncs = disk.faults.syncs
        (position,) = log.append_nowait([publish(0)])
        await wait_all_tasks_blocked()
        log.append_nowait([acks(7, 0, 1)], hurry=False)
        gate.open.set()
        await log.wait_durable(position)
        await wait_all_tasks_blocked()
        assert (log.durable_end, disk.faults.syncs) == (position + 1, syncs + 1)
    assert (log.durable_end, disk.faults.syncs) == (position + 2, syncs + 2), "when it closes"


async def test_append_waits_for_room_and_keeps_the_order() -> None:
    gate = Gate()
    async with open_log(MemoryDisk(), replace(SMALL, pending_bytes_max=TWO), in_thread=gate) as log:
        await wait_all_tasks_blocked()
        gate.open = trio.Event()
        log.append_nowait([publish(0), publish(1)])
        with pytest.raises(StoreBusy):
            log.append_nowait([publish(2)])
        got: list[tuple[int, int]] = []

        async def append(number: int) -> None:
            (position,) = await log.append([publish(number)])
            got.append((position, number))

        async with trio.open_nursery() as nursery:
            for number in (2, 3, 4):
                nursery.start_soon(append, number)
                await wait_all_tasks_blocked()
            assert got == []
            gate.open.set()
        assert got == [(3, 2), (4, 3), (5, 4)]


async def test_what_waits_for_room_decides_anew_what_it_appends() -> None:
    gate = Gate()
    async with open_log(MemoryDisk(), replace(SMALL, pending_bytes_max=TWO), in_thread=gate) as log:
        await wait_all_tasks_blocked()
        gate.open = trio.Event()
        log.append_nowait([publish(0), publish(1)])
        wanted, got = [publish(2)], []

        async def append() -> None:
            got.append(await log.with_room(lambda: log.append_nowait(wanted[-1:])))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append)
            await wait_all_tasks_blocked()
            wanted.append(acks(7, 0, 1))
            assert got == []
            gate.open.set()
        await log.wait_durable(3)
        assert got == [range(3, 4)]
        assert [(one.position, one.kind) for one in await log.read(3, 1)] == [(3, Kind.ACKS)]


async def test_what_waits_for_room_does_not_try_while_there_is_none() -> None:
    """What it would append has to be planned anew each time."""
    gate, tries = Gate(), 0
    async with open_log(MemoryDisk(), replace(SMALL, pending_bytes_max=TWO), in_thread=gate) as log:
        await wait_all_tasks_blocked()
        gate.open = trio.Event()
        log.append_nowait([publish(0), publish(1)])

        def attempt() -> range:
            nonlocal tries
            tries += 1
            return log.append_nowait([publish(2)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.with_room, attempt)
            await wait_all_tasks_blocked()
            log._wake_waiting()  # Something has happened, but no commit.
            await wait_all_tasks_blocked()
            assert tries == 1
            gate.open.set()
        assert tries == 2


async def test_many_segments_and_reading_across_them() -> None:
    async with open_log(MemoryDisk(), SMALL, in_thread=inline) as log:
        for number in range(50):
            positions = await log.append([publish(number, 300)])
            await log.wait_durable(positions[-1])
        assert log.statistics().segments > 3
        assert [one.position for one in await log.read(1, 1 << 20)] == list(range(1, 51))
        assert len(await log.read(10, 1000)) == 2, "about so many bytes"
        assert len(await log.read(10, 1)) == 1, "at least one"
        assert [one.targets[0].first for one in await log.read(33, 1)] == [32]
        assert await log.read(51, 1) == []
        with pytest.raises(NotInLog, match=r"\[1, 51\)"):
            await log.wait_durable(51)


async def test_what_becomes_durable_can_be_read_while_more_is_written() -> None:
    async with open_log(MemoryDisk(), SMALL, in_thread=inline) as log:
        seen: list[int] = []

        async def read_on() -> None:
            while len(seen) < 40:
                await committed(log, len(seen) + 1)
                for record in await log.read(len(seen) + 1, 1 << 20):
                    assert record.position < log.durable_end
                    seen.append(record.position)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_on)
            for number in range(40):
                await log.append([publish(number, 300)])
        assert seen == list(range(1, 41))


async def test_the_end_of_the_block_commits_what_was_appended() -> None:
    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        log.append_nowait([publish(1), publish(2)])
    with pytest.raises(StoreClosed):
        log.append_nowait([publish(3)])
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        assert len(await log.read(1, 1000)) == 2


async def test_the_error_of_the_block_comes_out_as_it_is() -> None:
    volume = Volume()
    with pytest.raises(ZeroDivisionError):
        async with open_log(MemoryDisk(volume), SMALL, in_thread=inline):
            raise ZeroDivisionError
    assert not volume.locked


async def test_a_second_log_in_the_directory_is_refused() -> None:
    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline):
        with pytest.raises(StoreInUse):
            async with open_log(MemoryDisk(volume), SMALL, in_thread=inline):
                raise AssertionError("opened")


async def test_every_waiter_hears_of_a_failed_sync(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk(Volume())
    async with open_log(disk, SMALL, in_thread=inline) as log:
        (first,) = log.append_nowait([publish(0)])
        await log.wait_durable(first)
        disk.faults.sync_error_at = disk.faults.syncs + 1
        heard: list[str] = []

        async def wait_for(position: int) -> None:
            with pytest.raises(StoreFailed) as caught:
                await log.wait_durable(position)
            heard.append(caught.value.reason)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                for position in log.append_nowait([publish(number)]):
                    nursery.start_soon(wait_for, position)
        assert len(heard) == 5
        assert all("fdatasync failed" in one for one in heard)
        syncs = disk.faults.syncs
        with pytest.raises(StoreFailed, match="restart the broker"):
            await log.append([acks(7, 0, 1)])
        with pytest.raises(StoreFailed):
            await log.wait_durable(first + 1)
        await log.wait_durable(first)
        assert [one.position for one in await log.read(first, 1)] == [first], "reading goes on"
        assert log.statistics().failure == heard[0]
        assert log.durable_end == first + 1
    assert disk.faults.syncs == syncs, "never tried again"
    assert "has stopped" in caplog.text


async def test_a_full_disk_and_space_that_comes_back(autojump_clock: MockClock) -> None:
    volume = Volume(capacity_bytes=2 * SMALL.segment_bytes)
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        with pytest.raises(StoreFull) as caught:
            for number in range(1000):
                await log.append([publish(number, 300)])
        assert caught.value.free_bytes < SMALL.segment_bytes
        assert log.statistics().full
        (position,) = await log.append([acks(7, 0, number)])
        await log.wait_durable(position)
        volume.capacity_bytes += SMALL.segment_bytes
        await virtual_sleep(SMALL.retry_s * 1.5)
        (position,) = await log.append([publish(number, 300)])
        await log.wait_durable(position)
        assert not log.statistics().failure


async def test_freed_segments_end_a_full_disk_at_once(mock_clock: MockClock) -> None:
    volume = Volume(capacity_bytes=3 * SMALL.segment_bytes)
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        with pytest.raises(StoreFull):
            for number in range(1000):
                await log.append([publish(number, 300)])
        await wait_all_tasks_blocked()
        log.snapshot_at(log.durable_end - 1)
        assert len(await log.free()) == 1
        await wait_all_tasks_blocked()
        await log.append([publish(number, 300)])


async def test_a_log_whose_disk_hangs_can_be_left_and_keeps_others_out(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can end a call that does not return, so nobody may come in beside it."""
    volume = Volume()
    disk = FaultyDisk(volume)
    back = trio.Event()
    back.set()

    async def in_thread(call: Any, *args: Any, abandon_on_cancel: bool = False) -> Any:
        await back.wait()
        return call(*args)

    async with open_log(disk, SMALL, in_thread=in_thread) as log:
        await wait_all_tasks_blocked()
        back = trio.Event()
        log.append_nowait([publish(1)])
        await wait_all_tasks_blocked()
    assert "stays open" in caplog.text
    assert volume.locked


async def test_an_fdatasync_that_hangs_in_a_real_thread() -> None:
    released = threading.Event()
    disk = FaultyDisk(Volume())
    async with open_log(disk, replace(SMALL, commit_s_max=0.01)) as log:
        (first,) = log.append_nowait([publish(1)])
        await log.wait_durable(first)
        disk.faults.before_sync = released.wait
        (position,) = log.append_nowait([publish(2)])
        await until(lambda: log.statistics().overdue_s)
        assert [one.position for one in await log.read(1, 1000)] == [first], "reading goes on"
        released.set()
        await log.wait_durable(position)


async def test_a_log_whose_real_thread_hangs_can_be_left(caplog: pytest.LogCaptureFixture) -> None:
    released, volume = threading.Event(), Volume()
    disk = FaultyDisk(volume)
    async with open_log(disk, replace(SMALL, commit_s_max=0.01)) as log:
        disk.faults.before_sync = released.wait
        log.append_nowait([publish(1)])
    assert "stays open" in caplog.text
    assert volume.locked
    released.set()


async def test_a_failure_in_the_real_thread_is_heard() -> None:
    disk = FaultyDisk(Volume())
    async with open_log(disk, SMALL) as log:
        (first,) = log.append_nowait([publish(1)])
        await log.wait_durable(first)
        # Making it syncs, too, in another thread.
        await until(lambda: not log._committer.segment_pending)
        disk.faults.sync_error_at = disk.faults.syncs + 1
        (position,) = log.append_nowait([publish(2)])
        with pytest.raises(StoreFailed, match="fdatasync failed"):
            await log.wait_durable(position)


async def test_cancelled_while_waiting_nothing_is_taken() -> None:
    gate = Gate()
    async with open_log(MemoryDisk(), replace(SMALL, pending_bytes_max=1), in_thread=gate) as log:
        await wait_all_tasks_blocked()
        gate.open = trio.Event()
        log.append_nowait([publish(0)])
        with trio.move_on_after(0):
            await log.append([publish(1)])
        assert log.end == 2
        with trio.move_on_after(0):
            await log.wait_durable(1)
        gate.open.set()
        await log.wait_durable(1)
