"""What is more than a segment takes, or makes no sense, costs itself and not the broker.

On a memory disk with segments of 8 KiB, in virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import trio

from durable.broker.capture import Capture
from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.definitions import ExchangeDefinition, QueueDefinition, StreamDefinition
from durable.log.memory_disk import Volume
from durable.protocol.properties import KEYS_MAX, Death, Properties, decode_properties
from durable.queues.index import Index
from durable.queues.queue import REJECT
from durable.queues.runs import Run
from durable.vhost import changes
from mesh.protocol.batch import Batch
from mesh.protocol.inbox import Delivery
from tests.power_cuts import CONFIG, run
from tests.vhosts import PUBLISHER, anybody, batch_at, make_batch, settle_ready, snapshot_of
from tests.waiting import until, virtual_sleep

Life = Callable[[RunningVhost], Awaitable[None]]


def takes(running: RunningVhost) -> int:
    """Less than an empty segment takes, by no more than what stands around a batch."""
    return running.log.append_bytes_max - 160


async def declare(running: RunningVhost, name: str, **settings: Any) -> None:
    definition = QueueDefinition(name=name, **settings)
    lanes = running.vhost.registry.new_lanes(definition)
    await make(running, changes.QUEUE, lanes, to_plain(definition))


async def make(running: RunningVhost, *change: Any) -> None:
    await running.change_writer.write(lambda: [list(change)])


async def publish(running: RunningVhost, batch: Batch) -> None:
    publisher = running.vhost.publishers.open(PUBLISHER, 1, 0)
    await running.log.with_room(
        lambda: running.vhost.intake.publish(publisher, [batch], anybody, 0)
    )
    while publisher.confirmed < batch.next_sequence:
        await running.messages_durable.wait()


async def reject_all(running: RunningVhost, name: str) -> None:
    """And wait until that is on disk, copies and all."""
    queue = running.vhost.registry.queue(name)
    settle_ready(queue, REJECT)
    running.wake(queue)
    await until(lambda: not queue.size_bytes)


async def first_of(running: RunningVhost, name: str) -> Batch:
    (lane,) = running.vhost.registry.queue(name).lanes
    head = lane.head()
    assert head is not None, f"{name} has messages"
    found = await batch_at(running, lane, head.first)
    assert found is not None
    return found[0]


def ready(running: RunningVhost) -> dict[str, int]:
    return {name: one.ready for name, one in running.vhost.registry.queues.items()}


async def graves(running: RunningVhost) -> None:
    await declare(running, "graves")
    await declare(running, "jobs", dead_letter_exchange="", dead_letter_routing_key="graves")


def test_dead_letters_that_do_not_go_together_go_in_pieces() -> None:
    """Found: their story made them more than a segment takes, and the broker ended."""

    async def life(running: RunningVhost) -> None:
        await graves(running)
        await publish(running, make_batch(0, [bytes(takes(running) // 8 - 6)] * 8, key="jobs"))
        await reject_all(running, "jobs")
        assert ready(running) == {"graves": 8, "jobs": 0}

    volume = Volume()
    run(volume, life)
    run(volume, still({"graves": 8, "jobs": 0}))


def still(wanted: dict[str, int]) -> Life:
    async def life(running: RunningVhost) -> None:
        assert ready(running) == wanted

    return life


def test_a_dead_letter_whose_story_is_long_forgets_the_keys_of_earlier_deaths() -> None:
    """Where it was it still knows, and so whether it goes round."""

    async def life(running: RunningVhost) -> None:
        await graves(running)
        before = Death("before", "rejected", 1, "", ("k" * 500,), 1)
        told = Properties(deaths=(before,))
        await publish(
            running, make_batch(0, [bytes(takes(running) - 600)], key="jobs", properties=told)
        )
        await reject_all(running, "jobs")
        latest, earlier = decode_properties(
            (await first_of(running, "graves")).shared_headers
        ).deaths
        assert (latest.queue, latest.keys) == ("jobs", ("jobs",))
        assert earlier == before._replace(keys=())

    run(Volume(), life)


def test_a_dead_letter_that_fits_nowhere_is_settled_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def life(running: RunningVhost) -> None:
        await graves(running)
        await publish(running, make_batch(0, [bytes(takes(running))], key="jobs"))
        await reject_all(running, "jobs")
        assert ready(running) == {"graves": 0, "jobs": 0}
        assert running.vhost.intake.counts.refused == 1

    volume = Volume()
    run(volume, life)
    assert "1 messages of queue jobs (rejected) were settled without a dead letter" in caplog.text
    run(volume, still({"graves": 0, "jobs": 0}))


def test_a_dead_letter_that_makes_no_sense_takes_nobody_along(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Headers are first read where an exchange decides by them."""

    async def life(running: RunningVhost) -> None:
        exchange = ExchangeDefinition(name="by_headers", type="headers", alternate="all")
        everything = ExchangeDefinition(name="all", type="fanout")
        for one in (everything, exchange):
            await make(running, changes.EXCHANGE, to_plain(one))
        await declare(running, "jobs", dead_letter_exchange="by_headers")
        await publish(
            running,
            make_batch(0, [b"a", b"b", b"c"], key="jobs", headers=[b"\x80", b"\xc1", b"\x80"]),
        )
        await reject_all(running, "jobs")
        assert (running.batch_reader.lost, running.vhost.intake.counts.dropped) == (1, 2)

    with caplog.at_level(logging.WARNING):
        run(Volume(), life)
    assert "headers that are not msgpack" in caplog.text


def test_the_dead_are_looked_up_one_record_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: a list of all their records was made first, of 305 MB for two million messages."""
    steps: list[str] = []

    async def life(running: RunningVhost) -> None:
        await graves(running)
        for number in range(4):
            await publish(running, make_batch(number, [b"x"], key="jobs"))
        (lane,) = running.vhost.registry.queue("jobs").lanes
        runs, forward = Index.runs, running.vhost.forward_dead

        def watched(index: Index, start: int, end: int) -> Iterator[Run]:
            for one in runs(index, start, end):
                if index is lane.index:
                    steps.append("looked up")
                yield one

        def forwarded(*args: Any, **settings: Any) -> None:
            steps.append("forwarded")
            forward(*args, **settings)

        monkeypatch.setattr(Index, "runs", watched)
        monkeypatch.setattr(running.vhost, "forward_dead", forwarded)
        await reject_all(running, "jobs")
        assert ready(running) == {"graves": 4, "jobs": 0}

    run(Volume(), life)
    assert steps == ["looked up", "forwarded"] * 4


def test_as_many_keys_as_there_may_be_die_twice() -> None:
    """Found: its first death had one key more than was read, and ended the broker at each start."""

    async def life(running: RunningVhost) -> None:
        await declare(running, "last")
        for name, following in (("jobs", "later"), ("later", "last")):
            await declare(running, name, dead_letter_exchange="", dead_letter_routing_key=following)
        many = Properties(cc=tuple(f"{number}" for number in range(KEYS_MAX)))
        await publish(running, make_batch(0, [b"x"], key="jobs", properties=many))
        for name in ("jobs", "later"):
            await reject_all(running, name)
        deaths = decode_properties((await first_of(running, "last")).shared_headers).deaths
        assert [one.queue for one in deaths] == ["later", "jobs"]
        assert deaths[1].keys == ("jobs", *many.cc)

    volume = Volume()
    run(volume, life)
    run(volume, still({"last": 1, "jobs": 0, "later": 0}))


class Publisher:
    """As much of a node as captures need: it has published these, and then nothing."""

    def __init__(self, *deliveries: Delivery) -> None:
        self._deliveries = list(deliveries)

    def subscribe(self, _pattern: str, **_limits: object) -> Publisher:
        return self

    def share(self, *_: object) -> None:
        pass

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass

    async def take(self) -> Delivery:
        if not self._deliveries:
            await trio.sleep_forever()
        return self._deliveries.pop(0)


def published(first: int, sizes: list[int], lost: int = 0) -> Delivery:
    batch = make_batch(first, [bytes(size) for size in sizes], key="live.x")
    return Delivery(batch, batch.payloads, first, lost)


async def captured(running: RunningVhost, *deliveries: Delivery) -> list[tuple[int, int, int]]:
    """What two streams then have as gaps: the offset after it, the first sequence, how many."""
    for name in ("one", "other"):
        definition = StreamDefinition(name=name, patterns=("live.>",))
        (lane,) = running.vhost.registry.new_lanes(definition)
        await make(running, changes.STREAM, lane, to_plain(definition))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Capture(running, Publisher(*deliveries), 1).run)  # type: ignore[arg-type]
        await virtual_sleep(CONFIG.idle_s)
        nursery.cancel_scope.cancel()
    await running.log.wait_durable(running.log.end - 1)
    return gaps_of(running)


def gaps_of(running: RunningVhost) -> list[tuple[int, int, int]]:
    registry = running.vhost.registry
    one, other = (
        [
            (gap.offset, gap.missed.first, gap.missed.messages)
            for gap in registry.gaps.of(stream.lane.id)
        ]
        for stream in registry.streams.values()
    )
    assert one == other
    assert {stream.end for stream in registry.streams.values()} == {10 - sum(n for *_, n in one)}
    return one


def test_of_live_messages_that_are_too_large_the_first_is_told_and_all_are_gaps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A publisher may send any number of them."""

    async def life(running: RunningVhost) -> None:
        large = takes(running) + 300
        assert await captured(
            running, published(0, [large, 10, large]), published(3, [large, 10, 10, 10, 10, 10, 10])
        ) == [(0, 0, 1), (1, 2, 1), (1, 3, 1)]

    run(Volume(), life)
    assert caplog.text.count("was not captured: ") == 1


def test_a_live_message_that_is_too_large_is_a_gap() -> None:
    """Found: it ended the broker. What was sent with it is captured around it, in order."""

    async def life(running: RunningVhost) -> None:
        batch = published(
            2,
            [10, 10, takes(running) + 300, takes(running) // 2, takes(running) // 2 + 200, 10],
            lost=2,
        )
        assert await captured(running, batch, published(8, [10, 10])) == [(0, 0, 2), (2, 4, 1)]
        (lane, *_) = [one.lane for one in running.vhost.registry.streams.values()]
        assert [run.count for run in lane.index.runs(0, lane.next)] == [1, 1, 1, 2, 2]

    async def next_life(running: RunningVhost) -> None:
        assert gaps_of(running) == [(0, 0, 2), (2, 4, 1)]

    volume = Volume()
    run(volume, life)
    run(volume, next_life)


def test_a_snapshot_that_is_too_large_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Found: it ended the broker, and kept it from ending well. Queues have to go, or it has to
    have larger segments, then there are checkpoints again."""
    names = [f"a queue with quite a long name, number {number}" for number in range(80)]

    async def life(running: RunningVhost) -> None:
        for name in names:
            await declare(running, name)
        await publish(running, make_batch(0, [b"x"], key=names[0]))
        await virtual_sleep(3 * CONFIG.idle_s)

    async def smaller(running: RunningVhost) -> None:
        assert ready(running) == {name: int(name == names[0]) for name in names}
        before = running.log.statistics().segments
        for name in names[1:]:
            await running.delete_queue(running.vhost.registry.queue(name), "a test")
        await reject_all(running, names[0])
        await virtual_sleep(2 * CONFIG.idle_s)
        assert running.log.statistics().segments < before

    volume = Volume()
    run(volume, life)
    assert caplog.text.count("no checkpoint of vhost / was written: its snapshot of") == 1
    run(volume, still({name: int(name == names[0]) for name in names}))
    run(volume, smaller)
    run(volume, still({names[0]: 0}))


def test_a_snapshot_that_fits_a_segment_only_once_gives_space_back() -> None:
    names = [f"a queue with quite a long name, number {number}" for number in range(16)]

    async def life(running: RunningVhost) -> None:
        for name in names:
            await declare(running, name)
        snapshot = sum(draft.size_bytes for draft in snapshot_of(running.vhost))
        assert snapshot > running.log.append_bytes_max // 2
        for number in range(9):
            await publish(running, make_batch(number, [bytes(2000)], key=names[0]))
        before = running.log.statistics().segments
        await reject_all(running, names[0])
        await publish(running, make_batch(9, [bytes(3000)], key=names[0]))
        await reject_all(running, names[0])
        await virtual_sleep(3 * CONFIG.idle_s)
        assert running.log.statistics().segments < before

    volume = Volume()
    run(volume, life)
    run(volume, still(dict.fromkeys(names, 0)))


def test_what_is_too_large_for_smaller_segments_stays_where_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found: compaction of it ended the broker, a second after each start."""

    async def fill(running: RunningVhost) -> None:
        await declare(running, "slow")
        await publish(running, make_batch(0, [bytes(10_000)], key="slow"))
        for name in ("fast", "kept"):
            await declare(running, name)
        await publish_on(running)

    async def publish_on(running: RunningVhost, kept: str = "fast") -> None:
        """Whatever is in `kept` keeps a segment, in the middle of what goes."""
        publisher = running.vhost.publishers.open(PUBLISHER, 1, 0)
        for _ in range(5):
            for key in ("fast", kept, "fast"):
                batch = make_batch(publisher.next, [bytes(4_000)], key=key)
                await publish(running, batch)
        await reject_all(running, "fast")

    async def go_on(running: RunningVhost) -> None:
        await publish_on(running, "kept")
        await virtual_sleep(10 * CONFIG.idle_s)
        assert len((await first_of(running, "slow")).payloads[0]) == 10_000

    volume = Volume()
    run(volume, fill, config=replace(CONFIG, log=replace(CONFIG.log, segment_bytes=1 << 15)))
    run(volume, go_on)
    assert caplog.text.count("a record of") == 1
    assert "is more than a segment can hold now" in caplog.text
    run(volume, still({"slow": 1, "fast": 0, "kept": 5}))
