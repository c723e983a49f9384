"""Which epoch a named publisher gets: the broker says so, whatever the clocks say."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

import durable
from durable.errors import InvalidDefinition, PublisherFenced
from mesh.protocol.batch import NUMBERS_END
from tests.brokers import at, client, drain, numbered, pass_time, serving, shop_at
from tests.nodes import free_ports
from tests.waiting import until

DAY_S = 24 * 3600


async def test_a_name_comes_back_after_the_clocks_were_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: epochs were times, so for as long as the clock had been set back the name was fenced."""
    for day in (3, 2, 1):
        async with serving(tmp_path) as broker, client(broker) as shop:
            pass_time(broker, (day - 3) * DAY_S)
            await shop.declare_queue("jobs")
            for hour in (2, 1):
                now_ns = (day * DAY_S + hour * 3600) * 10**9
                clock = SimpleNamespace(time_ns=lambda now_ns=now_ns: now_ns)
                monkeypatch.setattr("durable.client.publisher.time", clock)
                async with shop.publisher("till") as publisher:
                    await publisher.publish("", "jobs", [b"%d %d" % (day, hour)])
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await drain(shop, "jobs") == [b"3 2", b"3 1", b"2 2", b"2 1", b"1 2", b"1 1"]


async def test_the_newer_of_two_with_one_name_fences_the_older(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        old = await shop.publisher("till").__aenter__()
        await old.publish("", "jobs", [b"1"])
        async with shop.publisher("till") as new:
            await new.publish("", "jobs", [b"2"])
            assert new.epoch > old.epoch
            with pytest.raises(PublisherFenced):
                await old.publish("", "jobs", [b"3"])
            await new.publish("", "jobs", [b"4"])
        assert await drain(shop, "jobs") == [b"1", b"2", b"4"]


async def test_a_name_keeps_its_epoch_when_it_connects_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is on disk and nothing of it confirmed: under another epoch it would be stored twice."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined)
        publisher = shop.publisher("till")
        async with serving(tmp_path, **at(port)) as broker:
            await shop.declare_queue("jobs")
            with monkeypatch.context() as patch:
                patch.setattr("durable.broker.confirms.Confirms.confirm", lambda self: None)
                publisher.start()
                for payload in numbered(10):
                    await publisher.send("", "jobs", payload)
                queue = broker.hosted("/").vhost.registry.queue("jobs")
                await until(lambda: queue.ready == 10)
        epoch = publisher.epoch
        async with serving(tmp_path, **at(port)):
            with trio.fail_after(10):
                await publisher.flush()
            assert publisher.epoch == epoch
            assert await drain(shop, "jobs") == numbered(10)


async def test_an_epoch_that_the_log_does_not_know_of_is_not_given_again(tmp_path: Path) -> None:
    """Nothing was stored under it before the broker was killed. Two under one epoch would pass for one
    another: what the one sends would be taken for what the other has stored."""
    later = NUMBERS_END // 2
    async with (
        serving(tmp_path / "data") as broker,
        client(broker) as shop,
        shop.publisher("till", epoch=later) as publisher,
    ):
        await publisher.publish("", "nowhere", [b"dropped"])
    given = [later]
    for life in "ab":
        shutil.copytree(tmp_path / "data", tmp_path / life)
        async with serving(tmp_path / life) as broker, client(broker) as shop:
            fresh = await shop.publisher("till").__aenter__()
            await until(lambda publisher=fresh: publisher.epoch > later)
            given.append(fresh.epoch)
    assert len({*given}) == 3


async def test_an_epoch_that_was_given_is_not_given_again(tmp_path: Path) -> None:
    """Found: what the second one sent had the sequences of the first, passed for stored, and was confirmed."""
    for _ in range(2):
        async with serving(tmp_path) as broker, client(broker) as shop:
            await shop.declare_queue("jobs")
            with suppress(InvalidDefinition):  # The second broker has read of it in its log.
                async with shop.publisher("till", epoch=5) as publisher:
                    await publisher.send("", "jobs", b"first")
            with pytest.raises(
                InvalidDefinition, match="publisher: epoch is 5: want a later epoch"
            ):
                async with shop.publisher("till", epoch=5) as publisher:
                    await publisher.send("", "jobs", b"second")
            with pytest.raises(
                InvalidDefinition, match="publisher: epoch is 5: want a later epoch"
            ):
                await publisher.publish("", "jobs", [b"third"])
    async with serving(tmp_path) as broker, client(broker) as shop:
        async with shop.publisher("till", epoch=6) as publisher:
            await publisher.send("", "jobs", b"last")
        assert await drain(shop, "jobs") == [b"first", b"last"]


async def test_behind_the_last_epoch_there_is_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        async with shop.publisher("till", epoch=NUMBERS_END - 1) as last:
            await last.publish("", "nowhere", [b"dropped"])
        with pytest.raises(PublisherFenced):
            async with shop.publisher("till") as publisher:
                await publisher.publish("", "nowhere", [b"refused"])
