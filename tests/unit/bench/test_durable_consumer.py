"""When a consumer's run is over: everything received, and its acks on the broker's disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
import trio
import trio.testing

from bench.roles.durable_consumer import Reader, follow
from bench.sequence import Ring
from bench.systems.mesh_durable import Taker
from bench.systems.system import Place
from durable.client.deliveries import Deliveries
from tests.waiting import virtual_sleep

RING = Ring(16, 100)
SYNC_S = 50.0


class Batch:
    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads

    async def ack(self) -> None: ...


class Disk:
    """Deliveries of so many messages, whose acks a slow disk takes `SYNC_S` for."""

    def __init__(self, count: int) -> None:
        self._count = count

    async def take(self) -> Batch:
        if not self._count:
            await trio.sleep_forever()
        count, self._count = self._count, 0
        return Batch(RING.slice(0, count))

    async def synced(self) -> None:
        await virtual_sleep(SYNC_S)


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


async def test_beside_its_peers_too_a_run_is_over_when_the_broker_has_the_acks(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """Found: of the peers' acks the server's answer was waited for, ours had not even left."""
    received = list[bytes]()

    async def take(payloads: Sequence[bytes]) -> None:
        received.extend(payloads)

    taker = Taker(Place(ports=[], secret="", size_bytes=16, directory=""), take)
    disk = Disk(10)
    taker._deliveries = cast("Deliveries", disk)
    nursery.start_soon(taker._follow)
    for more in (0, 5):
        disk._count += more
        await trio.testing.wait_all_tasks_blocked()
        began_s = trio.current_time()
        await taker.settle()
        assert trio.current_time() - began_s >= SYNC_S
    assert len(received) == 15
