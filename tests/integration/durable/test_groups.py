"""Messages with a key each, which share records: to whoever consumes, reads or looks they are messages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from durable.broker.directory import vhost_path
from durable.cli import main
from durable.client.connection import Connection
from durable.config import BrokerConfig
from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition
from durable.log.bodies import encode_definitions
from durable.log.header import SEGMENT_HEADER_BYTES
from durable.log.record import Draft, Kind, Target
from durable.vhost import changes
from durable.vhost.groups import BATCHES_MAX, FRONT, encode_group
from tests.brokers import QUIET, client, numbered, payloads, serving, take, until_told
from tests.logs import following
from tests.stores import LANE, flip, make_store
from tests.waiting import until

COUNT = 600


async def fill(shop: Connection) -> None:
    """Queue and stream alike, through an exchange: batches of two."""
    await shop.declare_exchange("each", type="topic")
    await shop.declare_queue("dead")
    await shop.declare_queue("jobs", dead_letter_exchange="each")
    await shop.declare_stream("audit")
    await shop.bind("each", "dead", "k.150")
    for name in ("jobs", "audit"):
        await shop.bind("each", name, "k.*")
    async with shop.publisher() as publisher:
        for number, payload in enumerate(numbered(COUNT)):
            await publisher.send("each", f"k.{number // 2}", payload, headers={"n": number})


def keys(first: int, count: int) -> list[tuple[str, bytes, dict[str, int]]]:
    return [(f"k.{at // 2}", b"%d" % at, {"n": at}) for at in range(first, first + count)]


def contents(found: list[Any]) -> list[tuple[str, bytes, dict[str, int]]]:
    return [(one.routing_key, one.payload, dict(one.headers)) for one in found]


def groups_in(data: Path) -> int:
    """Records of version 3: software from before says that it is too old."""
    segments = (vhost_path(data, "/") / "log").glob("msgs.*")
    return sum(path.read_bytes().count(b"MREC\x03") for path in segments)


def inspected(data: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    """What is printed, line by line."""
    capsys.readouterr()
    assert main(["inspect", str(data), *words, "--json"]) == 0
    out = capsys.readouterr().out
    return [*map(json.loads, out.splitlines())]


@pytest.mark.parametrize(
    "config", [QUIET, replace(QUIET, encrypt=True)], ids=["plain", "encrypted"]
)
async def test_to_consumers_and_readers_they_are_messages(
    tmp_path: Path, config: BrokerConfig
) -> None:
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await fill(shop)
        assert broker.hosted("/").log.end < 30, "declarations, and a few groups"
        async with shop.consume("jobs", prefetch=1) as deliveries:
            for number in range(20):
                (one,) = await take(deliveries, 1)
                assert contents([one]) == keys(number, 1)
                await one.ack()
            await deliveries.synced()
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        for first in (0, 255, 256, 301, 512):
            async with shop.read("audit", start=first) as records:
                assert contents(await take(records, COUNT - first)) == keys(first, COUNT - first)
        async with shop.consume("jobs", prefetch=0) as deliveries:
            found = await take(deliveries, COUNT - 20)
            assert contents(found) == keys(20, COUNT - 20)
            await found[310].nack()
            (again,) = await take(deliveries, 1)
            assert (again.routing_key, again.redelivered) == ("k.165", 1)
            await found[280].reject()
            await until_told(shop, lambda told: told["queues"]["dead"]["ready"] == 3)
        async with shop.consume("dead", prefetch=0) as deliveries:
            dead = await take(deliveries, 3)
            assert contents(dead) == [*keys(300, 2), *keys(300, 1)]


def test_what_is_left_of_them_is_seen_and_salvaged_offline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, new = tmp_path / "data", tmp_path / "new"
    left = [*range(101), *range(399, COUNT)]

    async def use() -> None:
        async with serving(data, config=QUIET) as broker, client(broker) as shop:
            await fill(shop)
            async with shop.consume("jobs", prefetch=0) as deliveries:
                for one in (await take(deliveries, 399))[101:]:
                    await one.ack()
                await deliveries.synced()

    async def use_copy() -> None:
        async with (
            serving(new, config=QUIET) as broker,
            client(broker) as shop,
            shop.consume("jobs", prefetch=0) as deliveries,
        ):
            assert payloads(await take(deliveries, len(left))) == [b"%d" % at for at in left]

    trio.run(use)
    assert main(["verify", str(data)]) == 0
    said = [one["what"] for one in inspected(data, capsys, "--records")]
    assert any(" batches" in one for one in said)
    assert main(["salvage", str(data), "--to", str(new)]) == 0
    assert groups_in(new) == groups_in(data) > 0
    for directory in (data, new):
        found = inspected(directory, capsys, "--queue", "jobs")
        assert [one["key"] for one in found] == [f"k.{at // 2}" for at in left]
        assert [one["headers"] for one in found] == [{"n": at} for at in left]
    trio.run(use_copy)


@pytest.mark.parametrize("dies", [False, True])
async def test_one_whose_table_is_wrong_costs_its_messages_and_stops_nobody(
    tmp_path: Path, dies: bool
) -> None:
    """Found: it ended the broker when its messages expired, and held up its queue else. Its checksum is right."""
    ends: dict[str, Any] = (
        {"ttl_s": 1e-3, "dead_letter_exchange": "", "dead_letter_routing_key": "jobs"}
        if dies
        else {}
    )
    parts = [(b"jobs", [b"%d" % number], None) for number in range(3)]
    body = bytearray(encode_group(following(parts, 0), None))
    body[FRONT.size + 4] = 2
    wrong = Draft(Kind.PUBLISH, bytes(body), (Target(LANE, 0),), 1, grouped=True)
    definition = to_plain(QueueDefinition(name="jobs", **ends))
    made = encode_definitions([[changes.QUEUE, [LANE], definition]])
    make_store(tmp_path / "data", [Draft(Kind.DEFINITIONS, made), wrong])
    async with serving(tmp_path / "data") as broker, client(broker) as shop:
        await shop.declare_queue("good")
        await shop.bind("amq.fanout", "good")
        async with shop.consume("jobs"):
            await until(lambda: broker.hosted("/").batch_reader.lost == 3)
            await shop.publish("amq.fanout", "", b"goes on")
        async with shop.consume("good") as deliveries:
            assert payloads(await take(deliveries, 1)) == [b"goes on"]


async def test_a_large_message_among_small_ones_counts_as_what_it_is(tmp_path: Path) -> None:
    """Found: once it was settled the others counted as large, and were dropped for a limit in bytes."""
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_length_bytes=100_000)
        await shop.bind("amq.fanout", "jobs")
        async with shop.publisher() as publisher:
            for number in range(100):
                await publisher.send("amq.fanout", f"{number}", b"x" * (1 if number else 50_000))
        async with shop.consume("jobs", prefetch=1) as deliveries:
            await (await take(deliveries, 1))[0].ack()
            await deliveries.synced()
        await shop.publish("", "jobs", bytes(90_000))
        assert (await shop.statistics())["queues"]["jobs"]["ready"] == 100


async def test_little_is_shared_by_those_who_wait(tmp_path: Path) -> None:
    """As if each message were stored by itself."""
    async with (
        serving(tmp_path, config=QUIET) as broker,
        client(broker) as shop,
        client(broker, "other") as other,
    ):
        await fill(shop)
        await shop.purge_queue("jobs")
        async with shop.consume("jobs") as one, other.consume("jobs") as two:
            await until_told(shop, lambda told: told["queues"]["jobs"]["consumers"] == 2)
            async with shop.publisher() as publisher:
                for number in range(40):
                    await publisher.send("each", f"k.{number}", b"x")
            assert len(await take(one, 20)) == len(await take(two, 20))


async def test_a_damaged_one_costs_its_messages_and_no_others(tmp_path: Path) -> None:
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        await fill(shop)
        running = broker.hosted("/")
        (lane,) = running.vhost.registry.queue("jobs").lanes
        runs = {lane.index.find(at) for at in range(COUNT)}
        end_at = running.log._committer.placer.write_point.at
    log = vhost_path(tmp_path, "/") / "log"
    (log / "checkpoint").unlink()
    flip(log / "msgs.0000000001", (SEGMENT_HEADER_BYTES + end_at) // 2)
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        (gap,) = broker.hosted("/").log.report.gaps
        assert gap.end - gap.start == 1
        ready = (await shop.statistics())["queues"]["jobs"]["ready"]
        assert COUNT - 2 * BATCHES_MAX <= ready < COUNT
        async with shop.consume("jobs", prefetch=0) as deliveries:
            found = [int(one) for one in payloads(await take(deliveries, ready))]
        lost = sorted({*range(COUNT)} - {*found})
        assert len(runs) > 1
        assert (lost[0], len(lost)) in {(run.first, run.count) for run in runs if run}
        assert lost == [*range(lost[0], lost[-1] + 1)], "those of one record"
        with trio.fail_after(5):
            await shop.publish("", "jobs", b"goes on")
