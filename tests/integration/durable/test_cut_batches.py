"""Compaction of records of which a few messages are left, of a whole vhost in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio

from durable.broker import compaction, cut_estimate
from durable.broker.cut_estimate import CutEstimate, NeededRecord, needed_of
from durable.broker.running_vhost import RunningVhost
from durable.errors import StoreFull
from durable.log.log import Log
from durable.log.memory_disk import Volume
from durable.log.record import Draft, Kind, Record
from durable.queues.lane import Lane
from durable.vhost.vhost import Vhost
from tests.compactions import CONF, LONG_S, SEGMENT_BYTES, Client, Turns, numbers
from tests.integration.durable.test_carrier import FULL, SEGMENT
from tests.integration.durable.test_full_disk import until_space
from tests.power_cuts import run
from tests.vhosts import batch_at, flushed
from tests.waiting import virtual_sleep

BATCHES, MESSAGES, KEPT = 40, 50, 17
SEGMENTS_MAX = 3
"""What is left, and the last two, which are left alone."""


def payload(number: int) -> bytes:
    return b"%d" % number + bytes(100)


def messages(batch: int) -> list[bytes]:
    return [payload(number) for number in range(MESSAGES * batch, MESSAGES * (batch + 1))]


async def settle(running: RunningVhost, batches: int = BATCHES) -> None:
    """All but one of each batch."""
    (lane,) = running.vhost.registry.queue("slow").lanes
    for first in range(0, MESSAGES * batches, MESSAGES):
        for low, high in ((first, first + KEPT), (first + KEPT + 1, first + MESSAGES)):
            lane.take_range(low, high)
            lane.settle(low, high)
    await flushed(running)


async def left(running: RunningVhost, batches: int = BATCHES) -> None:
    (lane,) = running.vhost.registry.queue("slow").lanes
    kept = [MESSAGES * batch + KEPT for batch in range(batches)]
    assert lane.ready_ranges() == [(one, one + 1) for one in kept]
    for one in kept:
        found = await batch_at(running, lane, one)
        assert found is not None
        batch, first = found
        assert batch.payloads[one - first] == payload(one)
        assert batch.base_sequence == first, "each keeps its number"


@pytest.mark.parametrize("apart", [False, True])
def test_one_message_of_each_batch_keeps_no_segment(apart: bool) -> None:
    """Found: it kept its whole batch, and a log of which a hundredth was needed stayed as it was."""
    volume = Volume()

    async def first(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast")
        for batch in range(BATCHES):
            await client.publish("slow", messages(batch), apart=apart)
        before = len(numbers(running))
        assert before > SEGMENTS_MAX
        await settle(running)
        await client.traffic()
        await client.traffic()
        await virtual_sleep(LONG_S)
        assert len(numbers(running)) <= SEGMENTS_MAX
        await left(running)

    async def second(running: RunningVhost) -> None:
        await left(running)
        client = Client(running)
        client.next = 100_000
        await client.settle_all("slow")
        assert [one.live_bytes for one in running.log._store.segments] == [0] * len(
            numbers(running)
        )

    run(volume, first, config=CONF)
    run(volume, second, config=CONF)


def test_one_message_of_each_batch_keeps_no_disk_full() -> None:
    volume = Volume(capacity_bytes=8 * SEGMENT + SEGMENT // 2)

    async def life(running: RunningVhost) -> None:
        client, batches = Client(running), 0
        await client.declare("slow")
        with suppress(StoreFull):
            while True:
                await client.publish("slow", messages(batches))
                batches += 1
        client.next = MESSAGES * batches
        await settle(running, batches)
        await until_space(running)
        await left(running, batches)
        end = batches + batches // 2
        while batches < end:
            with suppress(StoreFull):
                await client.publish("slow", messages(batches))
                batches += 1
            await until_space(running)

    run(volume, life, config=FULL)


def test_where_nothing_would_be_gained_nothing_is_carried_forward() -> None:
    """Of small messages one in two: what stands for those that are cut out is longer than they are."""

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast")
        while len(numbers(running)) < 5:
            await client.publish("slow", [b"x"] * MESSAGES)
        (lane,) = running.vhost.registry.queue("slow").lanes
        for at in range(0, lane.next, 2):
            lane.take_range(at, at + 1)
            lane.settle(at, at + 1)
        await flushed(running)
        await client.traffic()
        await client.traffic()
        before = running.log.statistics().committed_bytes
        await virtual_sleep(LONG_S)
        assert numbers(running)[:4] == [1, 2, 3, 4]
        assert running.log.statistics().committed_bytes - before < 0.2 * SEGMENT_BYTES

    run(Volume(), life, config=CONF)


def test_a_round_goes_through_everything_a_little_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: each look began where the one before had, and ended before it came to the rest."""
    monkeypatch.setattr(cut_estimate, "RUNS_PER_S_MAX", BATCHES // 2)

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast")
        for batch in range(BATCHES):
            await client.publish("slow", messages(batch))
        await settle(running)
        await client.publish("slow", messages(BATCHES))
        estimate, counted = CutEstimate(running), [0]
        while not estimate.is_over:
            await estimate.advance()
            counted.append(sum(estimate.tally.size_bytes.values()))
        assert 3 <= len(counted) <= 5
        assert 0.9 < counted[-1] / (100 * BATCHES * MESSAGES) < 1.1
        assert 0.4 < counted[1] / counted[-1] < 0.6

    run(Volume(), life, config=CONF)


def test_runs_of_which_nothing_is_settled_are_looked_at_in_turns_too() -> None:
    """Found: nobody had a turn while those were skipped, 14 us each."""
    turns = Turns()

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow")
        for _ in range(600):
            await client.publish("slow", [b"x"])
        (lane,) = running.vhost.registry.queue("slow").lanes
        for at in range(1, lane.next, 2):
            lane.take_range(at, at + 1)
            lane.settle(at, at + 1)
        await flushed(running)
        estimate = CutEstimate(running)
        look = estimate._count_next

        def looked(lane: Lane, at: int) -> int | None:
            turns.call()
            return look(lane, at)

        estimate._count_next = looked  # type: ignore[method-assign]
        trio.lowlevel.add_instrument(turns)
        await estimate.advance()
        assert estimate.is_over
        assert not estimate.tally.size_bytes
        assert turns.most == cut_estimate.RUNS_AT_ONCE

    run(Volume(), life, config=CONF)


def test_damage_is_not_looked_into_again_and_again(read_from: list[int]) -> None:
    """Found: its segment was read four times a second, and none behind it was cut."""
    volume = Volume()

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("slow", "fast")
        await client.publish("slow", messages(0))
        while len(numbers(running)) == 1:
            await client.publish("fast", [bytes(4000)])
        name = "msgs.0000000001"
        volume.flip(name, 8 * bytes(volume.seen[name].seen).index(payload(20)))
        for batch in range(1, BATCHES):
            await client.publish("fast", [b"x"])
            await client.publish("slow", messages(batch))
        await client.settle_all("fast")
        await settle(running)
        await client.traffic()
        await client.traffic()
        await virtual_sleep(LONG_S)
        assert numbers(running)[0] == 1
        assert len(numbers(running)) <= 1 + SEGMENTS_MAX
        reads = len(read_from)
        await virtual_sleep(LONG_S)
        assert len(read_from) == reads

    run(volume, life, config=CONF)


def test_what_was_less_than_it_seemed_is_compacted_when_it_is_settled() -> None:
    """Found: of a segment that seemed mostly settled, but for the largest messages, it was remembered that all took
    several times what was thought, and it stayed when hardly anything of it was needed."""

    async def life(running: RunningVhost) -> None:
        client = Client(running)
        await client.declare("skewed", "slow", "fast")
        for batch in range(12):
            await client.publish("skewed", [bytes(4000)] + [bytes(8)] * 50)
            if batch in (4, 7):
                await client.publish("slow", [bytes(3000)])
        for _ in range(25):
            await client.publish("slow", [bytes(4000)])
        (lane,) = running.vhost.registry.queue("skewed").lanes
        lane.take_range(0, lane.next)
        for at in range(0, lane.next, 51):
            lane.settle(at + 1, at + 51)
        await flushed(running)
        await client.traffic()
        await client.traffic()
        await virtual_sleep(LONG_S)
        (segment,) = list(running.log._store.segments)[:1]
        assert (segment.number, segment.growth) == (1, 1.0)
        assert segment.cut_growth > 2
        lane.settle(0, lane.next)
        await client.traffic()
        await virtual_sleep(LONG_S)
        assert 1 not in numbers(running)

    run(Volume(), life, config=CONF)


def test_what_is_cut_out_was_settled_on_disk_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a dead letter's original nothing may go before the letter is safe, even where a power cut keeps the end of
    a commit without its beginning."""
    seen_end, synced = 0, list[bool]()
    append, looking = Log.append, needed_of

    async def noting(self: Log, drafts: Sequence[Draft]) -> range:
        if any(one.cut for one in drafts):
            synced.append(self.durable_end >= seen_end)
        return await append(self, drafts)

    async def life(running: RunningVhost) -> None:
        def looked(vhost: Vhost, record: Record) -> NeededRecord | None:
            """Just before, something was settled, and it goes to the disk some time."""
            nonlocal seen_end
            running.log.append_nowait([Draft(Kind.ACKS, b"")], hurry=False)
            seen_end = running.log.end
            assert seen_end > running.log.durable_end
            return looking(vhost, record)

        client = Client(running)
        await client.declare("slow", "fast")
        for batch in range(BATCHES):
            await client.publish("slow", messages(batch))
        await settle(running)
        await client.traffic()
        await client.traffic()
        monkeypatch.setattr(compaction, "needed_of", looked)
        await virtual_sleep(LONG_S)

    monkeypatch.setattr(Log, "append", noting)
    run(Volume(), life, config=CONF)
    assert synced
    assert all(synced)
