"""Compaction of a whole vhost, on a memory disk in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
import trio

from durable.broker import compaction
from durable.broker.checkpoints import Checkpointer
from durable.broker.cut_estimate import NeededRecord, needed_of
from durable.broker.running_vhost import RunningVhost
from durable.config import BrokerConfig
from durable.definition_forms import to_plain
from durable.definitions import BindingDefinition
from durable.log.compaction import BURST_S, YOUNGEST_KEPT
from durable.log.faulty_disk import FaultyDisk
from durable.log.log import Log
from durable.log.memory_disk import Volume
from durable.log.record import Draft, Record
from durable.vhost import changes
from durable.vhost.checkpointing import Checkpointing
from durable.vhost.vhost import Vhost
from tests.compactions import CONF, LONG_S, SEGMENT_BYTES, Client, Turns, live_bytes, numbers
from tests.power_cuts import run
from tests.vhosts import batch_at
from tests.waiting import virtual_sleep


def test_a_damaged_record_keeps_its_own_segment_and_no_other(read_from: list[int]) -> None:
    """Found: its segment was read every second, and none behind it was ever compacted."""
    volume = Volume()

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast")
        for number in range(6):
            await client.publish("slow", [b"message %d " % number * 20])
            if not number:
                name = "msgs.0000000001"
                volume.flip(name, 8 * bytes(volume.seen[name].seen).index(b"message 0"))
            await client.traffic()
        await virtual_sleep(LONG_S)
        assert numbers(running)[0] == 1
        assert len(numbers(running)) == 3, "and the last two, which are left alone"
        reads = len(read_from)
        await virtual_sleep(LONG_S)
        assert len(read_from) == reads
        assert running.vhost.registry.queue("slow").ready == 6
        await client.settle_all("slow")
        await client.traffic()
        await virtual_sleep(LONG_S)
        assert 1 not in numbers(running), "settled, it goes with the others"

    run(volume, life, config=CONF)


@pytest.mark.parametrize("size_bytes", [0, 30, 200])
def test_what_is_all_live_is_not_carried_forward(size_bytes: int) -> None:
    """Found: of small messages what stands around them did not count, and a backlog was written again
    with every segment of other traffic."""

    async def life(running: RunningVhost) -> None:
        client, statistics = Client(running), running.log.statistics
        await client.declare("slow", "fast")
        while len(numbers(running)) < 5:
            await client.publish("slow", [bytes(size_bytes)])
        before = statistics().committed_bytes
        for _ in range(3):
            await client.traffic()
        await virtual_sleep(LONG_S)
        assert numbers(running)[:4] == [1, 2, 3, 4]
        assert statistics().committed_bytes - before < 3.2 * SEGMENT_BYTES
        assert min(live_bytes(running)[:4]) > 0.8 * (SEGMENT_BYTES - CONF.log.reserve_bytes)

    run(Volume(), life, config=CONF)


def test_of_a_backlog_of_groups_nothing_is_carried_forward(read_from: list[int]) -> None:
    """It looks mostly empty: what stands around each batch is not in the estimate."""

    async def life(running: RunningVhost) -> None:
        client, statistics = Client(running), running.log.statistics
        await client.declare("slow", "fast")
        while len(numbers(running)) < 5:
            await client.publish("slow", [b"x"] * 20, apart=True)
        for _ in range(3):
            await client.traffic()
        assert max(live_bytes(running)[:4]) < 0.25 * SEGMENT_BYTES
        before = statistics().committed_bytes
        await virtual_sleep(LONG_S)
        assert numbers(running)[:4] == [1, 2, 3, 4]
        assert statistics().committed_bytes - before < 0.05 * SEGMENT_BYTES
        read = len(read_from)
        await virtual_sleep(LONG_S)
        assert len(read_from) == read, "nor is it looked at again"

    run(Volume(), life, config=CONF)


def test_of_what_went_to_many_queues_the_one_that_needs_it_counts() -> None:
    """Found: all of them did, and a segment with one slow queue among forty stayed for ever."""
    names = [f"q{number}" for number in range(40)]

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare(*names, "fast")
        bound = [BindingDefinition(exchange="amq.fanout", destination=name) for name in names]
        await running.change_writer.write(lambda: [[changes.BIND, to_plain(one)] for one in bound])
        for _ in range(4):
            for _ in range(44):
                await client.publish("slow", [bytes(10)], exchange="amq.fanout")
            await client.traffic()
        for name in names[1:]:
            await client.settle_all(name)
        for _ in range(2):
            await client.traffic()
        old = numbers(running)[:-YOUNGEST_KEPT]
        await virtual_sleep(LONG_S)
        assert not {*old} & {*numbers(running)}
        (lane,) = running.vhost.registry.queue("q0").lanes
        moved = lane.index.find(0)
        assert moved is not None
        (record,) = await running.log.read(moved.position, 1)
        assert [target.queue for target in record.targets] == [lane.id]

    run(Volume(), life, config=CONF)


def test_messages_without_payload_are_carried_forward() -> None:
    """Found: nothing of their segments counted as live, so they were kept as they were."""

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast")
        for _ in range(8):
            await client.publish("slow", [b""])
            await client.traffic()
        await virtual_sleep(LONG_S)
        assert len(numbers(running)) == 2
        assert running.vhost.registry.queue("slow").ready == 8

    run(Volume(), life, config=CONF)


def test_a_segment_that_is_fuller_than_it_seemed_is_put_off_until_it_is_emptier() -> None:
    """Of headers nothing is known, so a segment full of them looks empty. Nothing of it is carried forward."""

    async def life(running: RunningVhost) -> None:
        client, statistics = Client(running), running.log.statistics
        await client.declare("slow", "other", "fast")
        while len(numbers(running)) < 2:
            for name in ("slow", "other", "other", "other"):
                await client.publish(name, [b"x"], headers=[bytes(1000)])
        await client.traffic()
        await client.traffic()
        assert 0 < live_bytes(running)[0] < 0.25 * SEGMENT_BYTES
        before = statistics().committed_bytes
        await virtual_sleep(LONG_S)
        assert numbers(running)[0] == 1
        assert statistics().committed_bytes - before < 0.05 * SEGMENT_BYTES
        await client.settle_all("other")
        await client.traffic()
        await virtual_sleep(LONG_S)
        assert 1 not in numbers(running)
        assert running.vhost.registry.queue("slow").ready > 10

    run(Volume(), life, config=CONF)


def test_what_is_left_of_a_group_is_carried_forward_with_it() -> None:
    volume = Volume()

    async def first(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast", "kept")
        await client.publish("slow", [b"%d" % number for number in range(20)], apart=True)
        await client.settle_all("slow", 12, 5)
        for _ in range(4):
            await client.traffic()
            await client.publish("kept", [bytes(100)])
        await virtual_sleep(LONG_S)
        assert 1 not in numbers(running)
        await left(running)

    async def left(running: RunningVhost) -> None:
        (lane,) = running.vhost.registry.queue("slow").lanes
        assert lane.ready_ranges() == [(0, 5), (12, 20)]
        for number in (*range(5), *range(12, 20)):
            found = await batch_at(running, lane, number)
            assert found is not None
            batch, at = found
            assert (batch.payloads, at) == ([b"%d" % number], number)

    run(volume, first, config=CONF)
    run(volume, left, config=CONF)


def test_what_is_referred_to_is_released_whatever_happened_to_it() -> None:
    """On both sides of a restart, moved or not: else live bytes would drift."""
    volume, sent = Volume(), 0

    async def first(running: RunningVhost) -> None:
        nonlocal sent
        client = Client(running)
        await client.declare("slow", "fast")
        for number in range(6):
            await client.publish("slow", [b"x"] * number + [bytes(100)], headers=None)
            await client.traffic()
        await virtual_sleep(LONG_S)
        assert len(numbers(running)) == 2
        sent = client.next

    async def second(running: RunningVhost) -> None:
        client = Client(running)
        client.next = sent
        assert any(live_bytes(running))
        await client.publish("slow", [b"", b"y"])
        await client.settle_all("slow")
        assert live_bytes(running) == [0] * len(numbers(running))

    run(volume, first, config=CONF)
    run(volume, second, config=CONF)


def test_small_records_share_commits() -> None:
    """Found: each waited for a commit of its own."""

    async def life(running: RunningVhost) -> None:
        client, statistics = Client(running), running.log.statistics
        await client.declare("slow", "fast")
        for _ in range(4):
            for _ in range(50):
                await client.publish("slow", [bytes(100)])
            await client.traffic()
        records, commits = running.log.end, statistics().commits
        await virtual_sleep(LONG_S)
        assert running.log.end - records >= 100
        assert statistics().commits - commits < 10

    run(Volume(), life, config=CONF)


def test_what_is_carried_forward_keeps_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and over any time."""
    append, appended, bytes_per_s = Log.append, list[tuple[float, int, int]](), 4000

    async def appending(self: Log, drafts: Sequence[Draft]) -> range:
        size_bytes = sum(draft.size_bytes for draft in drafts)
        appended.append((trio.current_time(), len(drafts), size_bytes))
        return await append(self, drafts)

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast")
        for _ in range(4):
            for number in range(20):
                await client.publish("slow", [bytes(1500 if number == 7 else 100)])
            await client.traffic()
        monkeypatch.setattr(Log, "append", appending)
        await virtual_sleep(LONG_S)
        assert 1 not in numbers(running)

    slow = replace(CONF, log=replace(CONF.log, compaction_bytes_per_s=bytes_per_s))
    run(Volume(), life, config=slow)
    assert any(count > 1 for _, count, _ in appended)
    assert all(count == 1 or size <= bytes_per_s * BURST_S for _, count, size in appended)
    assert sum(size for _, _, size in appended) > 2 * bytes_per_s, "it had to wait"
    for first, (start_s, _, _) in enumerate(appended):
        taken, largest = 0, 0
        for end_s, _, size in appended[first:]:
            taken, largest = taken + size, max(largest, size)
            assert taken <= (end_s - start_s + BURST_S) * bytes_per_s + largest


def test_others_have_their_turn_while_a_segment_is_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looking, pointing, looked, pointed = needed_of, compaction._repoint, Turns(), Turns()

    def noting(vhost: Vhost, record: Record) -> NeededRecord | None:
        looked.call()
        return looking(vhost, record)

    def noting_too(running: RunningVhost, needed: NeededRecord, moved: int) -> None:
        pointed.call()
        segment = running.log._store.segments.find(moved)
        assert segment is not None
        assert segment.references, "a checkpoint may come in between"
        pointing(running, needed, moved)

    monkeypatch.setattr(compaction, "needed_of", noting)
    monkeypatch.setattr(compaction, "COUNTED_AT_ONCE", 20)
    monkeypatch.setattr(compaction, "_repoint", noting_too)
    monkeypatch.setattr(compaction, "POINTED_AT_ONCE", 4)

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast")
        for _ in range(3):
            for number in range(100):
                await client.publish("slow" if number < 30 else "fast", [b"x"])
            await client.traffic()
        trio.lowlevel.add_instrument(looked)
        trio.lowlevel.add_instrument(pointed)
        await virtual_sleep(LONG_S)
        assert 1 not in numbers(running)
        assert 20 <= looked.most <= 24
        assert pointed.most == 4

    run(Volume(), life, config=CONF)


def test_what_is_settled_or_deleted_while_it_is_carried_forward_is_let_go_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the append of several records and their commit lanes go on."""
    append, meanwhile = Log.append, list[Callable[[], Awaitable[None]]]()

    async def appending(self: Log, drafts: Sequence[Draft]) -> range:
        positions = await append(self, drafts)
        while meanwhile:
            await meanwhile.pop()()
        return positions

    monkeypatch.setattr(Log, "append", appending)

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "other", "fast")
        for _ in range(10):
            await client.publish("slow", [b"x"])
            await client.publish("other", [b"x"])
        for _ in range(3):
            await client.traffic()
            await client.publish("slow", [b"x"])
        queues = running.vhost.registry.queues
        meanwhile.append(partial(client.settle_all, "slow", most=5, but=1))
        meanwhile.append(partial(running.delete_queue, queues["other"], "a test"))
        await virtual_sleep(LONG_S)
        assert not meanwhile
        assert 1 not in numbers(running)
        assert queues["slow"].ready == 9
        await client.settle_all("slow")
        assert live_bytes(running) == [0] * len(numbers(running))

    run(Volume(), life, config=CONF)


@pytest.mark.parametrize("pointed", [0, 1])
def test_a_checkpoint_that_comes_in_between_knows_what_was_carried_forward(
    monkeypatch: pytest.MonkeyPatch, pointed: int
) -> None:
    """Found by reading: its files still had the old log positions and its root said to read from behind the
    new ones. After a kill the messages were there and could not be read, once the segment had been freed."""
    volume, left = Volume(), list[Volume]()
    repoint, calls = compaction._repoint, list[int]()
    monkeypatch.setattr(compaction, "POINTED_AT_ONCE", 1)
    config = replace(CONF, idle_s=LONG_S)  # No other checkpoint comes before the end.

    async def life(running: RunningVhost) -> None:
        client, under_way = Client(running), trio.Event()

        def noting(running: RunningVhost, needed: NeededRecord, moved: int) -> None:
            if len(calls) == pointed:
                under_way.set()
            calls.append(moved)
            repoint(running, needed, moved)

        monkeypatch.setattr(compaction, "_repoint", noting)
        checkpointer = Checkpointer(
            running,
            FaultyDisk(volume),
            Checkpointing(running.vhost.registry),
            BrokerConfig(checkpoint_bytes=1 << 30),
        )
        await client.declare("kept", "slow", "fast")
        while len(numbers(running)) < 2:
            await client.publish("kept", [bytes(4000)])
        for _ in range(8):
            await client.publish("slow", [b"x"])
        for _ in range(3):
            await client.traffic()
        await checkpointer.write()
        await client.traffic()
        with trio.fail_after(LONG_S / 4):
            await under_way.wait()
        await checkpointer.write()
        await virtual_sleep(LONG_S / 4)
        assert numbers(running)[0] == 1
        assert 2 not in numbers(running)
        left.append(volume.copy())

    async def again(running: RunningVhost) -> None:
        (lane,) = running.vhost.registry.queue("slow").lanes
        assert lane.ready_ranges() == [(0, 8)]
        found = [await batch_at(running, lane, number) for number in range(8)]
        assert None not in found

    run(volume, life, config=config)
    run(left[0], again, config=config)
