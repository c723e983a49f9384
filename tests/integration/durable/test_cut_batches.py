"""Compaction of records of which a few messages are left, of a whole vhost in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from durable.broker import compaction, needed
from durable.broker.hosted import Hosted
from durable.broker.needed import Needed, needed_of, to_cut
from durable.errors import StoreFull
from durable.log.log import Log
from durable.log.memory_disk import Volume
from durable.log.record import Draft, Kind, Record
from durable.vhost.vhost import Vhost
from tests.compactions import CONF, LONG_S, SEGMENT_BYTES, Client, numbers
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


async def settle(hosted: Hosted, batches: int = BATCHES) -> None:
    """All but one of each batch."""
    (lane,) = hosted.vhost.registry.queue("slow").lanes
    for first in range(0, MESSAGES * batches, MESSAGES):
        for low, high in ((first, first + KEPT), (first + KEPT + 1, first + MESSAGES)):
            lane.withdraw(low, high)
            lane.settle(low, high)
    await flushed(hosted)


async def left(hosted: Hosted, batches: int = BATCHES) -> None:
    (lane,) = hosted.vhost.registry.queue("slow").lanes
    kept = [MESSAGES * batch + KEPT for batch in range(batches)]
    assert lane.ready_ranges() == [(one, one + 1) for one in kept]
    for one in kept:
        found = await batch_at(hosted, lane, one)
        assert found is not None
        batch, first = found
        assert batch.payloads[one - first] == payload(one)
        assert batch.base_sequence == first, "each keeps its number"


@pytest.mark.parametrize("apart", [False, True])
def test_one_message_of_each_batch_keeps_no_segment(apart: bool) -> None:
    """Found: it kept its whole batch, and a log of which a hundredth was needed stayed as it was."""
    volume = Volume()

    async def first(hosted: Hosted) -> None:
        client = Client(hosted)
        await client.declare("slow", "fast")
        for batch in range(BATCHES):
            await client.publish("slow", messages(batch), apart=apart)
        before = len(numbers(hosted))
        assert before > SEGMENTS_MAX
        await settle(hosted)
        await client.traffic()
        await client.traffic()
        await virtual_sleep(LONG_S)
        assert len(numbers(hosted)) <= SEGMENTS_MAX
        await left(hosted)

    async def second(hosted: Hosted) -> None:
        await left(hosted)
        client = Client(hosted)
        client.next = 100_000
        await client.settle_all("slow")
        assert [one.live_bytes for one in hosted.log._store.segments] == [0] * len(numbers(hosted))

    run(volume, first, config=CONF)
    run(volume, second, config=CONF)


def test_one_message_of_each_batch_keeps_no_disk_full() -> None:
    volume = Volume(capacity_bytes=8 * SEGMENT + SEGMENT // 2)

    async def life(hosted: Hosted) -> None:
        client, batches = Client(hosted), 0
        await client.declare("slow")
        with suppress(StoreFull):
            while True:
                await client.publish("slow", messages(batches))
                batches += 1
        client.next = MESSAGES * batches
        await settle(hosted, batches)
        await until_space(hosted)
        await left(hosted, batches)
        end = batches + batches // 2
        while batches < end:
            with suppress(StoreFull):
                await client.publish("slow", messages(batches))
                batches += 1
            await until_space(hosted)

    run(volume, life, config=FULL)


def test_where_nothing_would_be_gained_nothing_is_carried_forward() -> None:
    """Of small messages one in two: what stands for those that are cut out is longer than they are."""

    async def life(hosted: Hosted) -> None:
        client = Client(hosted)
        await client.declare("slow", "fast")
        while len(numbers(hosted)) < 5:
            await client.publish("slow", [b"x"] * MESSAGES)
        (lane,) = hosted.vhost.registry.queue("slow").lanes
        for at in range(0, lane.next, 2):
            lane.withdraw(at, at + 1)
            lane.settle(at, at + 1)
        await flushed(hosted)
        await client.traffic()
        await client.traffic()
        before = hosted.log.statistics().committed_bytes
        await virtual_sleep(LONG_S)
        assert numbers(hosted)[:4] == [1, 2, 3, 4]
        assert hosted.log.statistics().committed_bytes - before < 0.2 * SEGMENT_BYTES

    run(Volume(), life, config=CONF)


def test_a_look_at_what_is_settled_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def life(hosted: Hosted) -> None:
        client = Client(hosted)
        await client.declare("slow")
        for batch in range(BATCHES):
            await client.publish("slow", messages(batch))
        await settle(hosted)
        await client.publish("slow", messages(BATCHES))
        whole = sum((await to_cut(hosted)).size_bytes.values())
        assert 0.9 < whole / (100 * BATCHES * MESSAGES) < 1.1
        monkeypatch.setattr(needed, "LOOKED_MAX", BATCHES // 2)
        assert 0.45 < sum((await to_cut(hosted)).size_bytes.values()) / whole < 0.55

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

    async def life(hosted: Hosted) -> None:
        def looked(vhost: Vhost, record: Record) -> Needed | None:
            """Just before, something was settled, and it goes to the disk some time."""
            nonlocal seen_end
            hosted.log.append_nowait([Draft(Kind.ACKS, b"")], hurry=False)
            seen_end = hosted.log.end
            assert seen_end > hosted.log.durable_end
            return looking(vhost, record)

        client = Client(hosted)
        await client.declare("slow", "fast")
        for batch in range(BATCHES):
            await client.publish("slow", messages(batch))
        await settle(hosted)
        await client.traffic()
        await client.traffic()
        monkeypatch.setattr(compaction, "needed_of", looked)
        await virtual_sleep(LONG_S)

    monkeypatch.setattr(Log, "append", noting)
    run(Volume(), life, config=CONF)
    assert synced
    assert all(synced)
