"""Rows into a broker by their offsets, again and again: each once, whatever broke off or is gone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest
import trio

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

import numpy as np

from durable.client.connection import Connection
from durable.client.numbered_publisher import StoredSequences
from durable.errors import BrokerLost, SequenceLost
from durable.vhost import publishers
from durable.vhost.publishers import Publisher
from spark.sink import targets
from spark.sink.messages import Address, Messages
from spark.sink.options import read_sink_options
from spark.sink.targets import BrokerTarget

HOLES, GAPS = 6, 4
"""Instead of 1,000 and 400."""
OFFSETS = 120


@dataclass
class Table:
    """A broker as its table of publishers, and what is in its queue. A power cut may take any of what
    no flush has waited for."""

    rng: Random
    power_cut: bool = True
    loses_first: bool = False
    """Of what is under way the first run, and no other."""
    publisher: Publisher = field(default_factory=lambda: Publisher(b"p" * 16, 1))
    queue: list[bytes] = field(default_factory=list)
    under_way: list[tuple[int, list[bytes]]] = field(default_factory=list)
    room: int = OFFSETS
    """Runs that it takes before the connection breaks for good."""
    properties: list[Any] = field(default_factory=list)

    @asynccontextmanager
    async def numbered_publisher(self, name: str) -> AsyncGenerator[Table]:
        assert name.startswith("again/jobs/")
        one = self.publisher
        self.known = StoredSequences(one.next, one.holes, one.floor)
        yield self

    async def send(
        self, first: int, exchange: str, key: str, payloads: Sequence[bytes], *,
        headers: object, properties: object,
    ) -> int:  # fmt: skip
        await trio.lowlevel.checkpoint()
        if not self.room:
            raise BrokerLost("broker", "on purpose")
        self.room -= 1
        self.properties.append(properties)
        missing = self.known.missing(first, first + len(payloads))
        for low, high in missing:
            self.under_way.append((low, list(payloads[low - first : high - first])))
        return len(payloads) - sum(high - low for low, high in missing)

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()
        self.commit(self.under_way)

    def broke_off(self) -> None:
        lost = self.under_way[:1] if self.loses_first else []
        if self.power_cut:
            lost = [one for one in self.under_way if self.rng.random() < 0.5]
        self.commit([one for one in self.under_way if one not in lost])

    def commit(self, runs: list[tuple[int, list[bytes]]]) -> None:
        self.under_way = []
        for first, values in runs:
            for low, high, stored in list(self.publisher.known_ranges(first, first + len(values))):
                assert not stored, "it was told that at the greeting"
                self.publisher.note_stored(low, high)
                self.queue += values[low - first : high - first]


def rows(offsets: list[int], partition: int = 0) -> Messages:
    count = len(offsets)
    return Messages(
        [b"%d" % one for one in offsets], None, [Address("", "jobs", "jobs", partition)],
        np.zeros(count, np.int64), np.array(offsets, np.int64), np.zeros(count, np.int64), 0,
    )  # fmt: skip


async def attempt(table: Table, offsets: list[int], room: int, **more: str) -> BrokerTarget:
    """Ends with all on disk, or after `room` runs."""
    options = {"to": "queues", "numbering": "offsets", "id": "again", **more}
    table.room = room
    async with AsyncExitStack() as stack:
        broker = cast("Connection", table)
        target = BrokerTarget(broker, read_sink_options(options), "", stack)
        try:
            for low in range(0, len(offsets), 50):
                some = rows(offsets[low : low + 50])
                await target.send(some, cast("Any", some.offsets), 0, len(some.payloads))
            await target.finish()
        except BrokerLost:
            table.broke_off()
    return target


@pytest.fixture(scope="module", autouse=True)
def few_holes() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishers, "HOLES_MAX", HOLES)
        patch.setattr(targets, "GAPS_MAX", GAPS)
        yield


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_each_row_that_is_still_there_is_stored_once(share: float, seed: int) -> None:
    """Attempts break off after some runs, rows are freed between them, and the last one ends."""
    rng = Random(f"{share} {seed}")
    table = Table(rng)
    chosen = {one for one in range(OFFSETS) if rng.random() < share}
    for _ in range(rng.randrange(8)):
        trio.run(attempt, table, sorted(chosen), rng.randrange(40))
        chosen -= set(rng.sample(range(OFFSETS), rng.randrange(9)))
    last = trio.run(attempt, table, sorted(chosen), OFFSETS)
    stored = [int(value) for value in table.queue]
    assert len(stored) == len(set(stored))
    assert chosen <= set(stored)
    assert last.counts.sent + last.counts.duplicates == len(chosen)


async def test_rows_in_front_that_were_freed_make_no_others_pass_for_stored() -> None:
    """50 of 100 are stored, 30 of these freed."""
    table = Table(Random(1), power_cut=False)
    await attempt(table, list(range(50)), 1)
    again = await attempt(table, list(range(30, 100)), OFFSETS)
    assert sorted(map(int, table.queue)) == list(range(100))
    assert (again.counts.sent, again.counts.duplicates) == (50, 20)


async def test_what_is_late_is_on_disk_before_more_is_given() -> None:
    """Each attempt loses row 0 again and stores three others, which are freed: more and more holes."""
    table = Table(Random(1), power_cut=False, loses_first=True)
    for number in range(HOLES):
        await attempt(table, [0, *range(2 + 8 * number, 10 + 8 * number, 2)], 4)
    await attempt(table, [0], OFFSETS)
    assert b"0" in table.queue


async def test_a_selection_with_more_gaps_than_a_broker_remembers_goes_on_under_its_id() -> None:
    table = Table(Random(1), power_cut=False)
    every_third = list(range(0, OFFSETS, 3))
    assert len(every_third) > 3 * HOLES
    await attempt(table, every_third[:35], OFFSETS)
    assert table.publisher.floor > 0
    again = await attempt(table, every_third, OFFSETS)
    assert [int(value) for value in table.queue] == every_third
    assert (again.counts.sent, again.counts.duplicates) == (len(every_third) - 35, 35)


@pytest.mark.parametrize(("replay", "priority"), [("true", 7), ("false", 0)])
async def test_what_is_replayed_into_a_queue_keeps_its_priority(replay: str, priority: int) -> None:
    table = Table(Random(1))
    options = {"to": "queues", "numbering": "offsets", "id": "again", "replay": replay}
    async with AsyncExitStack() as stack:
        target = BrokerTarget(cast("Connection", table), read_sink_options(options), "", stack)
        some = rows([0], partition=7)
        await target.send(some, cast("Any", some.offsets), 0, 1)
    assert [one.priority for one in table.properties] == [priority]


async def test_where_the_broker_may_drop_what_nobody_wants_a_forgotten_row_is_an_error() -> None:
    """It left holes of its own, so what is before the floor need not be stored."""
    table = Table(Random(1), power_cut=False)
    await attempt(table, list(range(0, OFFSETS, 3)), OFFSETS, mandatory="false")
    with pytest.raises(SequenceLost):
        await attempt(table, list(range(0, OFFSETS, 3)), OFFSETS, mandatory="false")
