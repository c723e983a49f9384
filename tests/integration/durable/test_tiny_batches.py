"""Parts of tiny batches that are more than a segment takes: not planned in vain, nor taken one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import durable
from durable.broker.publishing import BATCHES_MAX
from durable.log.committing import Committer
from durable.log.record import Draft, Kind
from mesh.errors import TooLarge
from tests.brokers import client, drain, numbered, serving

MESSAGES = 2000
CONFIG = durable.BrokerConfig(
    log=durable.LogConfig(segment_bytes=1 << 17, reserve_bytes=1 << 10, free_bytes_min=0)
)
"""All together take more than three segments."""


class Asked:
    """How often the log was asked to take messages, how often they were more than it ever takes, and how many
    records there were at most."""

    appends = too_large = most = 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found, append = Asked(), Committer.append

    def noting(self: Committer, drafts: Sequence[Draft]) -> range:
        found.appends += drafts[0].kind == Kind.PUBLISH
        found.most = max(found.most, len(drafts))
        try:
            return append(self, drafts)
        except TooLarge:
            found.too_large += 1
            raise

    monkeypatch.setattr(Committer, "append", noting)
    return found


async def send_every_second(broker: durable.Connection, exchange: str) -> None:
    """Each is a batch of its own."""
    async with broker.numbered_publisher("replay") as publisher:
        for number, payload in enumerate(numbered(MESSAGES)):
            await publisher.send(2 * number, exchange, "jobs", [payload])


async def test_a_part_larger_than_a_segment_is_not_planned_in_vain(
    tmp_path: Path, asked: Asked
) -> None:
    """Found: as a whole, again when there was time, and then batch by batch."""
    async with serving(tmp_path, config=CONFIG) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await send_every_second(shop, "")
        assert asked.too_large == 0
        assert asked.appends < MESSAGES / 10
        assert await drain(shop, "jobs") == numbered(MESSAGES)


async def test_a_part_of_very_many_is_taken_in_several_turns(tmp_path: Path, asked: Asked) -> None:
    """However much room there is."""
    async with serving(tmp_path, config=durable.BrokerConfig()) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await send_every_second(shop, "")
        assert MESSAGES / asked.appends > 10, "parts had very many"
        assert asked.most <= BATCHES_MAX
        assert await drain(shop, "jobs") == numbered(MESSAGES)


async def test_for_several_queues_it_is_stored_once_in_each(tmp_path: Path, asked: Asked) -> None:
    """They make records longer than the part says."""
    names = [f"jobs.{number}" for number in range(12)]
    async with serving(tmp_path, config=CONFIG) as broker, client(broker) as shop:
        await shop.declare_exchange("events", type="fanout")
        for name in names:
            await shop.declare_queue(name)
            await shop.bind("events", name)
        await send_every_second(shop, "events")
        for name in names:
            assert await drain(shop, name) == numbered(MESSAGES)
        assert asked.appends < MESSAGES / 10
