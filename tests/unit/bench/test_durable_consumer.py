"""When a consumer's run is over: everything received, and its acks on the broker's disk."""

from __future__ import annotations

from typing import cast

import pytest
import trio
import trio.testing

from bench.roles.durable_consumer import Reader, follow
from bench.sequence import Ring
from durable.client.deliveries import Deliveries

RING = Ring(16, 100)
SYNC_S = 60.0


class Batch:
    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads

    async def ack(self) -> None: ...


class Disk:
    """Deliveries of so many messages, whose acks a slow disk takes a minute for."""

    def __init__(self, count: int) -> None:
        self._count = count

    async def take(self) -> Batch:
        if not self._count:
            await trio.sleep_forever()
        count, self._count = self._count, 0
        return Batch(RING.slice(0, count))

    async def synced(self) -> None:
        await trio.sleep(SYNC_S)


@pytest.mark.parametrize(("count", "synced"), [(10, True), (9, False)])
async def test_silence_while_the_disk_is_busy_is_no_end(
    autojump_clock: trio.testing.MockClock, count: int, synced: bool
) -> None:
    """Found: after 5 s of it a run was over, its acks on no disk. Where a message was lost it is."""
    reader = Reader(cast("Deliveries", Disk(count)), RING)
    began_s = trio.current_time()
    await follow([reader], {"start": 0, "count": 10})
    assert reader.follower.report(10)["lost"] == 10 - count
    assert (trio.current_time() - began_s >= SYNC_S) is synced
