"""A vhost to be compacted, and a client that publishes and settles step by step; on a memory disk in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
import trio

from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition
from durable.queues.consumers import Consumer
from durable.queues.queue import ACK
from durable.vhost import changes, cutting
from mesh.protocol.batch import Batch
from tests.power_cuts import CONFIG
from tests.vhosts import PUBLISHER, anybody, flushed, make_batch

SEGMENT_BYTES = 1 << 16
CONF = replace(
    CONFIG,
    log=replace(
        CONFIG.log, segment_bytes=SEGMENT_BYTES, reserve_bytes=8192, compaction_share_max=0.25
    ),
)
LONG_S = 60.0
"""Long enough for any compaction here."""


class Client:
    """A publisher with continuous sequences, which also settles."""

    def __init__(self, running: RunningVhost) -> None:
        self.running, self.next = running, 0

    async def declare(self, *names: str) -> None:
        for name in names:
            definition = QueueDefinition(name=name)
            lanes = self.running.vhost.registry.new_lanes(definition)
            change = [changes.QUEUE, lanes, to_plain(definition)]
            await self.running.change_writer.write(lambda change=change: [change])  # type: ignore[misc]

    async def publish(
        self, name: str, payloads: Sequence[bytes], headers: Sequence[bytes] | None = None, *,
        apart: bool = False, exchange: str = "",
    ) -> None:  # fmt: skip
        """Publish; durable on return. With `apart` each payload is a batch of its own, in one record."""
        running = self.running
        batches: list[Batch] = []
        for some in [[one] for one in payloads] if apart else [payloads]:
            batch = make_batch(self.next, some, key=name, exchange=exchange, headers=headers)
            batches.append(batch)
            self.next = batches[-1].next_sequence
        publisher = running.vhost.publishers.open(PUBLISHER, 1, 0)
        await running.log.with_room(
            lambda: running.vhost.intake.publish(
                publisher, batches, anybody, running.clock.now_us()
            )
        )
        await running.log.wait_durable(running.log.end - 1)

    async def settle_all(self, name: str, most: int = 0, but: int = 0) -> None:
        """Settle all ready messages, or of the first `most` all but the first `but`; on disk on return."""
        running, consumer = self.running, Consumer("c", prefetch=most, prefetch_bytes=0)
        queue = running.vhost.registry.queue(name)
        queue.subscribe(consumer)
        queue.take(0)
        queue.settle(consumer, but, consumer.next_tag, ACK)
        queue.unsubscribe(consumer, 0)
        running.wake(queue)
        await flushed(running)

    async def traffic(self) -> None:
        """Fill about a segment with messages that are consumed at once."""
        for _ in range(12):
            await self.publish("fast", [bytes(4000)])
        await self.settle_all("fast")


@contextmanager
def cut_at_any_price() -> Iterator[None]:
    """Let compaction cut settled messages out of records even if that is not worth it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "CUT_RATIO_MAX", 10)
        patch.setattr(cutting, "LOST_BYTES", -1000)
        yield


def numbers(running: RunningVhost) -> list[int]:
    """Return the numbers of all segments."""
    return [one.number for one in running.log._store.segments]


def live_bytes(running: RunningVhost) -> list[int]:
    return [one.live_bytes for one in running.log._store.segments]


class Turns(trio.abc.Instrument):
    """Counts calls of `call` within one step of a task; `most` is the highest count."""

    def __init__(self) -> None:
        self.calls = self.most = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.calls = 0

    def call(self) -> None:
        self.calls += 1
        self.most = max(self.most, self.calls)
