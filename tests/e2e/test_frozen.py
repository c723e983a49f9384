"""A subscriber whose process is frozen: what each policy loses is counted exactly, and nobody else notices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

import mesh
from mesh.config import MIB
from mesh.protocol.interest import BLOCK, DROP_NEWEST, DROP_OLDEST
from tests.loopback import ANY_PORT
from tests.processes import SECRET, Process, member
from tests.waiting import until

PAYLOAD = bytes(10_000)
OUTBOX_BYTES = MIB
ROUND, ROUNDS = 100, 12
"""Together more than what may be on its way (a window, 4 MiB) and wait for it (the outbox)."""


@pytest.fixture
def frozen() -> Iterator[Process]:
    with member("audit") as process:
        yield process


@asynccontextmanager
async def publisher(subscriber: Process, policy: str) -> AsyncIterator[mesh.Node]:
    """`subscriber` wants topic "t", has had one message, and is frozen."""
    async with mesh.join(
        "shop", zeroconf=False, network_secret=SECRET, listen=ANY_PORT,
        seeds=[subscriber.ready["endpoint"]], outbox_bytes=OUTBOX_BYTES,
    ) as shop:  # fmt: skip
        subscriber.call("subscribe", pattern="t", options={"when_full": policy})
        await shop.wait_subscribers("t")
        await shop.publish("t", b"first")
        await until(lambda: subscriber.call("counts").get("t"))
        subscriber.freeze()
        yield shop
        subscriber.thaw()  # Or the publisher waits for it before it leaves.


@pytest.mark.parametrize("policy", [DROP_OLDEST, DROP_NEWEST])
async def test_what_a_frozen_subscriber_misses_is_counted_exactly(
    frozen: Process, policy: str
) -> None:
    """Promise: every drop is counted and seen as a gap, also where the process stood still."""
    async with publisher(frozen, policy) as shop:
        for _ in range(ROUNDS * ROUND):
            await shop.publish("t", PAYLOAD)
        dropped = shop.statistics().publishing.dropped
        assert dropped > 0, "it holds no more than its window and the outbox"
        frozen.thaw()

        async def all_told() -> bool:
            """A gap is seen with the message after it."""
            await shop.publish("t", b"after")
            counts = frozen.call("counts")
            return int(counts["t"] + counts["t lost"]) == shop.statistics().publishing.published

        await until(all_told, 20)
        publishing = shop.statistics().publishing
        missed = frozen.call("subscriptions")[0]["dropped"]
        assert frozen.call("counts")["t lost"] == publishing.dropped + missed
        assert publishing.dropped >= dropped


async def test_a_frozen_subscriber_that_blocks_stops_its_topic_only_and_loses_nothing(
    frozen: Process,
) -> None:
    async with publisher(frozen, BLOCK) as shop, trio.open_nursery() as nursery:
        count = 0

        async def publish() -> None:
            nonlocal count
            for _ in range(ROUNDS * ROUND):
                await shop.publish("t", PAYLOAD)
                count += 1

        nursery.start_soon(publish)
        await until(lambda: shop.statistics().links[0].outbox_bytes > OUTBOX_BYTES / 2)
        with member("audit", seeds=shop.endpoints) as other:
            other.call("subscribe", pattern="other")
            await shop.wait_subscribers("other")
            for number in range(1, ROUND + 1):
                await shop.publish("other", PAYLOAD)
                await until(lambda number=number: other.call("counts").get("other") == number)
        assert count < ROUNDS * ROUND
        frozen.thaw()
        await until(lambda: frozen.call("counts")["t"] == 1 + ROUNDS * ROUND, 20)
        assert frozen.call("counts")["t lost"] == 0


@pytest.mark.parametrize("policy", [DROP_OLDEST, DROP_NEWEST])
async def test_one_frozen_subscriber_does_not_disturb_the_others(
    frozen: Process, policy: str
) -> None:
    """Promise: they get everything, while more is published than can wait for the frozen one."""
    async with publisher(frozen, policy) as shop:
        with member("audit", seeds=shop.endpoints) as other:
            other.call("subscribe", pattern="t", options={"when_full": policy})
            await shop.wait_subscribers("t", count=2)
            for number in range(1, ROUNDS + 1):
                for _ in range(ROUND):
                    await shop.publish("t", PAYLOAD)
                await until(lambda number=number: other.call("counts").get("t") == number * ROUND)
            assert other.call("counts")["t lost"] == 0
        assert shop.statistics().publishing.dropped > 0
