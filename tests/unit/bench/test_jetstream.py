"""JetStream through nats-py, without a server: what is asked of the client, and when it acks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bench.systems import jetstream
from bench.systems.system import Place


def place(size_bytes: int) -> Place:
    return Place(ports=[4222], secret="", size_bytes=size_bytes, directory="")


class Acking:
    """A consumer that was given so many messages; which of them it acked, and what the server then waits for."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self.taken = list[bytes]()
        self.acked = list[int]()
        self.count = count
        self.consumer = jetstream.Consumer(place(size_bytes), self.received)
        self.consumer._deliveries = self

    async def received(self, payloads: Sequence[bytes]) -> None:
        self.taken += payloads

    def message(self, number: int) -> Any:
        async def ack() -> None:
            self.acked.append(number)

        return SimpleNamespace(data=number.to_bytes(8, "little"), ack=ack)

    async def consumer_info(self) -> Any:
        return SimpleNamespace(num_ack_pending=self.count - self.acked[-1])

    async def run(self) -> None:
        for number in range(1, self.count + 1):
            await self.consumer._take(self.message(number))
        await self.consumer.settle()


@pytest.mark.parametrize(
    ("count", "size_bytes", "acked"),
    [
        (1200, 1024, [500, 1000, 1200]),
        (1000, 1024, [500, 1000]),
        (20, 1 << 20, [8, 16, 20]),
        (2, 64 << 20, [1, 2]),
    ],
)
def test_a_quarter_of_what_may_wait_is_acked_at_once_and_the_rest_when_all_is_there(
    count: int, size_bytes: int, acked: list[int]
) -> None:
    acking = Acking(count, size_bytes)
    asyncio.run(acking.run())
    assert acking.acked == acked
    assert len(acking.taken) == count


def test_no_publish_pays_for_a_task_of_its_own() -> None:
    """nats-py makes one for whoever says how long it may wait; the bench has a limit around them."""
    asked = list[tuple[Any, ...]]()

    async def publish_async(*words: Any, **settings: Any) -> asyncio.Future[None]:
        asked.append((*words, settings))
        return asyncio.get_running_loop().create_future()

    async def main() -> None:
        producer = jetstream.Producer(place(16))
        requester = jetstream.Requester(place(16), lambda _: asyncio.sleep(0))
        for client in (producer, requester):
            client._stream = SimpleNamespace(publish_async=publish_async)
        await producer.publish([b"a", b"b"])
        await requester.request(b"c")

    asyncio.run(main())
    assert asked == [("bench", payload, {}) for payload in (b"a", b"b", b"c")]
