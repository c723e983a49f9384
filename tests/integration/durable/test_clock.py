"""Somebody sets the clock of a broker's machine: by an hour, forward and back, while it runs and not."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import durable
from tests.brokers import PROMPT, client, drain, numbered, pass_time, payloads, serving, take
from tests.ledger import Ledger, number_of, payload
from tests.waiting import until

HOUR_NS = 3600 * 10**9
HALF_S = 1800


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    return SetClock(monkeypatch)


class SetClock:
    """All wall clocks of this process, by so much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._time_ns = time.time_ns

    def __call__(self, ahead_ns: int) -> None:
        self._monkeypatch.setattr(time, "time_ns", lambda: self._time_ns() + ahead_ns)
        self._monkeypatch.setattr(time, "time", lambda: (self._time_ns() + ahead_ns) / 1e9)


async def declare(shop: durable.Connection) -> None:
    """All that time does something to, for half an hour."""
    await shop.declare_queue("jobs", ttl_s=HALF_S)
    await shop.declare_queue("idle", expires_s=HALF_S)
    await shop.declare_stream("audit", max_age_s=HALF_S)
    for name in ("jobs", "audit"):
        await shop.bind("amq.fanout", name)


async def publish(shop: durable.Connection, ledger: Ledger, numbers: range) -> None:
    for number in numbers:  # Streams lose whole records.
        await shop.publish("amq.fanout", "", payload(number))
    ledger.confirmed.update(numbers)


async def upkeep(broker: durable.Broker, shop: durable.Connection) -> None:
    """Time has done its work: a queue that nobody uses has gone, which comes last in it, and another
    one that was declared when that was over."""
    queues = broker.hosted("/").vhost.registry.queues
    for _ in range(2):
        await shop.declare_queue("witness", expires_s=0.01)
        await until(lambda: "witness" not in queues)


async def check(shop: durable.Connection, ledger: Ledger) -> None:
    """All is there, in order, in the queue and in the stream; and the queue that nobody uses."""
    queues = (await shop.statistics())["queues"]
    assert set(queues) == {"jobs", "idle"}
    assert queues["jobs"]["oldest_s"] < HALF_S
    async with shop.read("audit", start="first") as records:
        read = payloads(await take(records, len(ledger.confirmed)))
    assert [number_of(one) for one in read] == sorted(ledger.confirmed)
    async with shop.consume("jobs") as deliveries:
        for one in await take(deliveries, len(ledger.confirmed)):
            ledger.delivered(number_of(one.payload))
    ledger.check()


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS])
async def test_a_clock_that_is_set_while_it_runs_ends_nothing(
    tmp_path: Path, set_clock: SetClock, jump_ns: int
) -> None:
    ledger = Ledger()
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        await declare(shop)
        await publish(shop, ledger, range(10))
        set_clock(jump_ns)
        await publish(shop, ledger, range(10, 20))
        await upkeep(broker, shop)
        await check(shop, ledger)


async def test_a_start_with_a_clock_that_was_set_back_keeps_all_in_order(
    tmp_path: Path, set_clock: SetClock
) -> None:
    """What came by the later clock is not kept for longer, nor are later messages before it."""
    ledger = Ledger()
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        await declare(shop)
        await publish(shop, ledger, range(10))
    set_clock(-HOUR_NS)
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        await publish(shop, ledger, range(10, 20))
        await upkeep(broker, shop)
        await check(shop, ledger)
        pass_time(broker, HALF_S + 1)
        await upkeep(broker, shop)
        assert await drain(shop, "jobs") == []
        assert (await shop.statistics())["streams"]["audit"]["start"] == 19


async def test_a_start_with_a_clock_that_was_set_ahead(tmp_path: Path, set_clock: SetClock) -> None:
    """For all that it can tell it was stopped for an hour: what may wait half of that has expired, what
    may wait for ever has not, and idleness begins anew."""
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        await declare(shop)
        await shop.declare_queue("kept")
        await shop.bind("amq.fanout", "kept")
        await publish(shop, Ledger(), range(10))
        before = datetime.now(UTC)
    set_clock(HOUR_NS)
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        await upkeep(broker, shop)
        assert await drain(shop, "jobs") == []
        assert [number_of(one) for one in await drain(shop, "kept")] == list(range(10))
        assert "idle" in (await shop.statistics())["queues"]
        await shop.publish("amq.fanout", "", numbered(1)[0])
        async with shop.read("audit", start=before + timedelta(minutes=30)) as records:
            assert payloads(await take(records, 1)) == numbered(1)
