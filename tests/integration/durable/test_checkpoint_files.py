"""What a kill, or damage at the end of the log, leaves of checkpoint files, and what a start makes of it.

On a memory disk with segments of 8 KiB, in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import trio

from durable.broker.checkpoints import Checkpointer
from durable.broker.running_vhost import RunningVhost
from durable.config import BrokerConfig
from durable.log.checkpoint import CheckpointFile, FileKind, decode_checkpoint, directory_name
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.memory_disk import Folder, Inode, Volume
from durable.log.segments import Segments
from durable.queues.consumers import Consumer
from durable.queues.lane import Lane
from durable.queues.queue import ACK, REJECT, REQUEUE
from durable.vhost.checkpointing import Checkpointing
from tests.integration.durable.test_full_disk import (
    SOME,
    VIRTUAL_PATIENCE_S,
    ack_first,
    fill,
    settle,
    until_space,
)
from tests.integration.durable.test_too_large import declare, ready
from tests.power_cuts import CONFIG, run
from tests.vhosts import PUBLISHER, anybody, batch_at, flushed, make_batch
from tests.waiting import virtual_sleep

STILL = replace(CONFIG, log=replace(CONFIG.log, compaction_share_max=0.0))
"""Nothing is carried forward: what is in the first segment keeps it, and it alone."""
ACKED, RETURNED, LAST = (2, 4, 7), (1, 5), 8


class Kills(Faults):
    """Before each change to the disk, what a killed process would leave: everything."""

    def __init__(self, volume: Volume) -> None:
        super().__init__()
        self.volume = volume
        self.left: list[Volume] = []
        self.wanted = False

    def change(self) -> bool:
        if self.wanted:
            self.left.append(self.volume.copy())
        return super().change()


class Client:
    """A publisher whose sequences go on."""

    def __init__(self) -> None:
        self.next = 0

    async def publish(self, running: RunningVhost, key: str, *payloads: bytes) -> None:
        """And wait until they are on disk."""
        batch = make_batch(self.next, payloads, key=key)
        self.next = batch.next_sequence
        publisher = running.vhost.publishers.open(PUBLISHER, 1, 0)
        await running.log.with_room(
            lambda: running.vhost.intake.publish(publisher, [batch], anybody, 0)
        )
        await running.log.wait_durable(running.log.end - 1)

    async def roll(self, running: RunningVhost, done: Callable[[], bool]) -> None:
        """Fill segments with what nobody needs, until it is."""
        while not done():
            await self.publish(running, "fill", bytes(2000))
            await settle(running, "fill", ACK)
            await virtual_sleep(2 * CONFIG.idle_s)


class Later:
    """Whether another segment has been begun."""

    def __init__(self, segments: Segments) -> None:
        self._segments, self._last = segments, segments.last

    def __call__(self) -> bool:
        return self._segments.last is not self._last


def reach(volume: Volume) -> int:
    """The latest log position of any pair: of any `ack`, or of what is still to be called so beside an `enq` that
    is called so already; or of an `enq` that has a copy of its `ack`."""
    queues = volume.folders.seen.get("queues", Folder()).folders.seen.values()
    found = [
        decode_checkpoint(bytes(one.seen[name].seen))
        for one in queues
        for name in ("ack", "ack.new", "enq")
        if name in one.seen and (name != "ack.new" or "enq.new" not in one.seen)
    ]
    return max(
        (
            one.position
            for one in found
            if isinstance(one, CheckpointFile) and (one.kind is FileKind.ACK or one.with_ack)
        ),
        default=0,
    )


def lane_of(running: RunningVhost, name: str) -> Lane:
    (lane,) = running.vhost.registry.queue(name).lanes
    return lane


def settled_long_ago(monkeypatch: pytest.MonkeyPatch) -> list[Volume]:
    """What kills leave while checkpoints are written: that some of `jobs` was settled, or came back, stands in
    no record any more, nor in a snapshot, which leaves it out as it does more than 64 KiB of it."""
    monkeypatch.setattr("durable.vhost.snapshot.SETTLED_BYTES_MAX", 0)
    monkeypatch.setattr("durable.vhost.snapshot.RETURNS_MAX", 1)
    volume, client = Volume(), Client()
    kills = Kills(volume)

    async def life(running: RunningVhost) -> None:
        for name in ("jobs", "fill", "other"):
            await declare(running, name)
        await client.publish(running, "jobs", *[b"x"] * 9)
        segments = running.log._store.segments
        await client.roll(running, Later(segments))
        queue = running.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        queue.take(0)
        for outcome, numbers in ((ACK, ACKED), (REQUEUE, RETURNED)):
            for number in numbers:
                queue.settle(consumer, number, number + 1, outcome)
        await flushed(running)
        told = running.vhost.settling.last_position
        await client.roll(running, lambda: not any(one.first <= told < one.end for one in segments))
        kills.wanted = True
        queue.settle(consumer, LAST, LAST + 1, REQUEUE)
        for _ in range(2):
            if "other" in running.vhost.registry.queues:
                await running.delete_queue(running.vhost.registry.queue("other"), "a test")
            await declare(running, "other")
            await client.publish(running, "other", b"x")
            await client.roll(running, Later(segments))
        kills.wanted = False

    run(volume, life, kills, STILL)
    assert len(kills.left) > 50
    return kills.left


async def same(running: RunningVhost) -> None:
    """Of `jobs` as much is settled, and came back, as ever."""
    lane = lane_of(running, "jobs")
    assert [one for one in range(9) if lane.settled.covers(one, one + 1)] == list(ACKED)
    times = [count for start, end, count in lane.returns_between(0, 9) for _ in range(start, end)]
    came_back = {one for one in range(9) if times[one]}
    assert set(RETURNED) <= came_back <= {*RETURNED, LAST}
    assert max(times) == 1


def with_root_and_without(left: Volume) -> Iterator[Volume]:
    rootless = left.copy()
    del rootless.seen["checkpoint"]
    yield from (left, rootless)


def test_a_kill_between_two_renames_brings_nothing_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: one pair of files that was not whole, or was of a queue declared anew, cost those of all
    queues, and with them what had been settled in segments that were gone."""
    for left in settled_long_ago(monkeypatch):
        for one in with_root_and_without(left):
            run(one, same, config=STILL)
    assert "neither in the log" not in caplog.text


def flip_a_bit(files: dict[str, Inode], name: str) -> None:
    files[name].seen[-1] ^= 1


def cut(files: dict[str, Inode], name: str) -> None:
    del files[name].seen[-1:]


def remove(files: dict[str, Inode], name: str) -> None:
    del files[name]


@pytest.mark.parametrize("damage", [flip_a_bit, cut, remove])
@pytest.mark.parametrize("name", ["ack", "enq"])
def test_one_file_of_a_pair_lost_or_damaged_brings_nothing_back(
    monkeypatch: pytest.MonkeyPatch, name: str, damage: Callable[[dict[str, Inode], str], None]
) -> None:
    """Found: what no snapshot said any more to be settled stood in `ack` only, and came again without it.
    Whenever a kill came, and whenever the next one: the first checkpoint after it puts both right."""
    for left in settled_long_ago(monkeypatch)[::3]:
        for one in with_root_and_without(left):
            files = one.folders.seen["queues"].folders.seen[directory_name("jobs")].seen
            if name in files:
                damage(files, name)
            run(one, same, config=STILL)
            (other,) = {"ack", "enq"} - {name}
            damage(files, other)
            run(one, same, config=STILL)


def test_a_kill_in_the_first_checkpoint_of_a_life_counts_no_return_twice() -> None:
    """Found: where nothing had been settled in that life, its files said that no return was in what they
    counted. With a `delivery_limit` messages died, some for good, that had not come back so often."""
    volume, client = Volume(), Client()
    killed: list[Volume] = []

    async def first(running: RunningVhost) -> None:
        await declare(running, "jobs")
        await client.publish(running, "jobs", *[b"x"] * 3)
        for _ in range(2):
            await settle(running, "jobs", REQUEUE)
        killed.append(volume.copy())

    async def then(running: RunningVhost) -> None:
        checkpointer = Checkpointer(
            running,
            FaultyDisk(kills.volume, kills),
            Checkpointing(running.vhost.registry),
            BrokerConfig(checkpoint_bytes=1),
        )
        kills.wanted = True
        await checkpointer.write()
        kills.wanted = False

    async def same(running: RunningVhost) -> None:
        assert list(lane_of(running, "jobs").returns_between(0, 3)) == [(0, 3, 2)]

    run(volume, first, config=STILL)
    kills = Kills(killed[0])
    run(kills.volume, then, kills, config=STILL)
    assert len(kills.left) > 10
    for left in kills.left:
        run(left, same, config=STILL)


def test_a_snapshot_frees_no_settlement_that_was_on_its_way_to_the_disk() -> None:
    """Found: what was dead-lettered is settled when that is durable; a snapshot in between did not know
    it, freed the segment with its settlement, and the message was in its queue again after a kill."""
    volume, client, left = Volume(), Client(), list[Volume]()
    config = replace(STILL, idle_s=60.0)

    async def life(running: RunningVhost) -> None:
        log = running.log
        for name in ("kept", "fill"):
            await declare(running, name)
        await declare(running, "jobs", dead_letter_exchange="nowhere")
        await client.publish(running, "kept", b"so that the first segment stays")
        await client.publish(running, "jobs", b"x")
        room = CONFIG.log.segment_bytes - log.append_bytes_max + 900
        point = log._committer.placer.write_point
        while point.number < 2 or point.capacity_bytes - point.at > room:
            await client.publish(running, "fill", bytes(200))
            await settle(running, "fill", ACK)
            point = log._committer.placer.write_point
        checkpointer = Checkpointer(
            running,
            FaultyDisk(volume),
            Checkpointing(running.vhost.registry),
            BrokerConfig(checkpoint_bytes=1 << 30),
        )
        queue, lane = running.vhost.registry.queue("jobs"), lane_of(running, "jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        queue.take(0)
        found = await batch_at(running, lane, 0)
        assert found is not None
        queue.settle(consumer, 0, 1, REJECT)
        (dead,) = running.vhost.take_dead()
        running.vhost.forward_dead(dead, [found], 0)  # In the same turn as:
        await checkpointer.write()
        assert log._committer.placer.write_point.number == point.number + 1, (
            "the snapshot stands in it"
        )
        assert lane.settled.covers(0, 1)
        left.append(volume.copy())

    async def settled(running: RunningVhost) -> None:
        assert lane_of(running, "jobs").settled.covers(0, 1)

    run(volume, life, config=config)
    run(left[0], settled, config=config)


@pytest.mark.parametrize("twice", [False, True])
def test_files_ahead_of_a_log_whose_end_was_damaged_are_gone(
    monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    """Found: they were loaded, and a queue delivered what another one's publisher had sent since. So might an
    `enq` be that has a copy of its `ack`, and needs none beside it."""
    if twice:
        monkeypatch.setattr("durable.vhost.checkpointing.IN_ORDER_BYTES", 0)
    volume, client = Volume(), Client()
    kills = Kills(volume)
    names = [f"q{number}" for number in range(30)]  # Encoded first: meanwhile `late` gets more.

    async def life(running: RunningVhost) -> None:
        for name in (*names, "late", "other"):
            await declare(running, name)
        checkpointer = Checkpointer(
            running,
            FaultyDisk(volume, kills),
            Checkpointing(running.vhost.registry),
            BrokerConfig(checkpoint_bytes=1),
        )
        await checkpointer.write()  # This root does not name the file of `late`.
        for name in (*names, "late"):
            await client.publish(running, name, b"early")
        kills.wanted = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checkpointer.write)
            for _ in range(3):
                await client.publish(running, "late", b"late")
        kills.left.append(volume.copy())
        kills.wanted = False

    async def again(running: RunningVhost) -> None:
        found_end = running.log.report.found_end
        ahead.append(reach(before) > found_end)
        assert reach(left) <= found_end
        await client.publish(running, "other", *[b"not for you"] * 3)
        lane = lane_of(running, "late")
        for low, high in lane.ready_ranges():
            for number in range(low, high):
                found = await batch_at(running, lane, number)
                assert found is not None
                assert set(found[0].payloads) <= {b"early", b"late"}

    config = replace(STILL, idle_s=60.0, log=replace(STILL.log, segment_bytes=1 << 16))
    run(volume, life, kills, config)
    ahead: list[bool] = []
    for left in kills.left[::-9]:
        at = left.seen["msgs.0000000001"].seen.rfind(b"late")
        left.flip("msgs.0000000001", at * 8)
        before = left.copy()
        run(left, again, config=config)
    assert ahead.count(True) > 2
    assert not ahead[-1]


@pytest.mark.parametrize("free_bytes_min", [1 << 13, 1 << 17])
@pytest.mark.parametrize("room", [25_000, 50_000])
def test_a_kill_during_a_checkpoint_on_a_disk_that_others_fill(
    room: int, free_bytes_min: int
) -> None:
    """Found: what is kept for a snapshot had gone to one that no root named, or the segment it gave back
    had not been made again. Then there was no room for another snapshot, nor for acks, for good."""
    log = replace(
        CONFIG.log, segment_bytes=1 << 16, reserve_bytes=1 << 12, free_bytes_min=free_bytes_min
    )
    config = replace(CONFIG, log=log)
    volume = Volume(capacity_bytes=9 * log.segment_bytes + free_bytes_min)
    published = 0

    async def life(running: RunningVhost) -> None:
        nonlocal published
        await declare(running, "jobs")
        for number in range(40):
            await declare(running, f"queue {number}")
        published = await fill(running)
        await virtual_sleep(3 * CONFIG.idle_s)
        volume.capacity_bytes = volume.used_bytes + room
        await ack_first(running, published // 2)
        assert running.log.would_free(running.applied_end)
        kills.wanted = True
        await virtual_sleep(3 * CONFIG.idle_s)
        kills.wanted = False
        assert not running.log.statistics().full

    async def rest(running: RunningVhost) -> None:
        assert ready(running)["jobs"] == published - published // 2
        again.wanted = True
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            await settle(running, "jobs", ACK)
        await until_space(running)
        again.wanted = False
        assert await fill(running, most=SOME) == SOME

    async def last(running: RunningVhost) -> None:
        assert ready(running)["jobs"] in (0, published - published // 2)
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            await settle(running, "jobs", ACK)
        await until_space(running)
        assert await fill(running, most=SOME) == SOME
        assert len(running.vhost.registry.queues) == 41

    kills = Kills(volume)
    run(volume, life, kills, config)
    assert len(kills.left) > 30
    for left in kills.left:
        again = Kills(left)
        run(left, rest, again, config)
        for other in again.left[:: max(1, len(again.left) // 4)]:  # Killed once more.
            run(other, last, config=config)


def test_files_of_a_log_that_went_another_way_cost_nothing() -> None:
    """Found: half of a backup was put back, what the files have as one run stands in the log as two, and the
    vhost did not open any more."""
    volume, client = Volume(), Client()

    async def begin(running: RunningVhost) -> None:
        await declare(running, "jobs")
        await client.publish(running, "jobs", b"1")

    run(volume, begin, config=STILL)
    backup, following = volume.copy(), client.next

    async def go_on(running: RunningVhost) -> None:
        await client.publish(running, "jobs", b"a", b"b", b"c", b"d")

    run(volume, go_on, config=STILL)
    client.next = following
    killed: list[Volume] = []

    async def go_another_way(running: RunningVhost) -> None:
        await client.publish(running, "jobs", b"x")
        await client.publish(running, "jobs", b"y")
        killed.append(backup.copy())

    run(backup, go_another_way, config=STILL)
    (left,) = killed
    queues, others = (one.folders.seen["queues"].folders.seen for one in (left, volume))
    for digest, folder in others.items():
        queues[digest].seen.update(folder.seen)

    async def look(running: RunningVhost) -> None:
        queue = running.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        assert sum(one.count for one in queue.take(0)) == 3
        assert not running.log.report.gaps

    for _ in range(2):
        run(left, look, config=STILL)
