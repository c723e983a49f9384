"""Orders that must not be lost, confirmed by a broker that is killed while they are published."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

import durable
import mesh

ORDERS = 200_000
CONFIRM_EVERY = 5_000
AskDemo = Callable[[str], Awaitable[str]]
Check = Callable[[bool, str], None]


def order(number: int) -> bytes:
    return b"order %d: one espresso machine, to be delivered before the weekend" % number


class Orders:
    """Publishes orders and reads them back, and knows which of them are confirmed."""

    def __init__(self, connection: durable.Connection) -> None:
        self._connection = connection
        self.confirmed = 0
        """All orders before this number are confirmed, and so on disk."""

    async def publish(self) -> None:
        async with self._connection.publisher() as publisher:
            for number in range(ORDERS):
                await publisher.send("", "orders", order(number))
                if (number + 1) % CONFIRM_EVERY == 0:
                    await publisher.flush()
                    self.confirmed = number + 1

    async def kill_broker(self, ask_demo: AskDemo, pid: str) -> int:
        """Kill the broker in the middle and restart it; return how many orders were confirmed at that moment."""
        while self.confirmed < ORDERS // 2:
            await trio.sleep(0.001)
        await ask_demo(f"kill {pid}")
        confirmed = self.confirmed
        await ask_demo("broker")
        return confirmed

    async def read(self) -> tuple[int, int]:
        """Return how many of the confirmed orders are missing from the queue, and how many are in it twice."""
        found: set[bytes] = set()
        count = 0
        async with self._connection.consume("orders", prefetch=20_000) as deliveries:
            async for batch in deliveries.batches():
                found.update(batch.payloads)
                count += len(batch)
                await batch.ack()
                if order(ORDERS - 1) in batch.payloads:
                    break
        missing = sum(order(number) not in found for number in range(self.confirmed))
        return missing, count - len(found)


async def durable_orders(node: mesh.Node, ask_demo: AskDemo, check: Check) -> None:
    pid = await ask_demo("broker")
    connection = durable.connect(node)
    await connection.declare_queue("orders")
    orders = Orders(connection)
    at_kill = 0

    async def kill() -> None:
        nonlocal at_kill
        at_kill = await orders.kill_broker(ask_demo, pid)

    start_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        await orders.publish()
    seconds = trio.current_time() - start_s
    check(orders.confirmed == ORDERS,
          f"{ORDERS:,} orders confirmed in {seconds:.1f} s, {at_kill:,} of them before the kill")  # fmt: skip
    missing, twice = await orders.read()
    check(missing == 0, f"{missing} of the confirmed orders are missing, {twice} are duplicates")
