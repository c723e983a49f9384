"""A snapshot takes many turns: messages come and go meanwhile, and who declares waits for its end.

On a memory disk, in virtual time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from durable.broker.checkpoints import Checkpointer
from durable.broker.running_vhost import RunningVhost
from durable.config import BrokerConfig
from durable.log.faulty_disk import FaultyDisk
from durable.log.memory_disk import Volume
from durable.log.record import Draft
from durable.queues.consumers import Consumer
from durable.queues.queue import ACK, REQUEUE, Delivery
from durable.vhost.checkpointing import Checkpointing
from durable.vhost.snapshot import Snapshot
from durable.vhost.vhost import Vhost
from tests.integration.durable.test_checkpoint_files import Client, lane_of
from tests.integration.durable.test_too_large import declare
from tests.power_cuts import CONFIG, run

QUEUES, MESSAGES = 30, 4
QUIET = replace(CONFIG, idle_s=60.0, log=replace(CONFIG.log, segment_bytes=1 << 16))


class Session:
    """Of a consumer that does nothing with what it gets."""

    def receive(self, deliveries: list[Delivery]) -> None: ...
    def cancel(self, reason: str) -> None: ...


def test_messages_come_and_go_meanwhile_and_who_declares_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: after a kill all is there, once, and so is what was declared or deleted meanwhile."""
    volume, left, client, told = Volume(), list[Volume](), Client(), list[str]()
    drafts = Vhost.drafts

    def note(vhost: Vhost, snapshot: Snapshot, now_us: int, *, full: bool = False) -> list[Draft]:
        told.append("snapshot")
        return drafts(vhost, snapshot, now_us, full=full)

    async def others(running: RunningVhost) -> None:
        """One more message, and one of those that are out is settled, or comes back."""
        queue = running.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        running.attach_consumer(consumer, Session())
        queue.take(0)
        for number in range(MESSAGES):
            await client.publish(running, "jobs", b"x")
            queue.settle(consumer, number, number + 1, ACK if number % 2 else REQUEUE)
            running.wake()
            told.append("message")

    async def declaring(running: RunningVhost) -> None:
        await declare(running, "late")
        await running.delete_queue(running.vhost.registry.queue("queue 0"), "a test")
        told.append("declared")

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        for number in range(QUEUES):
            await declare(running, f"queue {number}")
        await client.publish(running, "jobs", *[b"x"] * MESSAGES)
        checkpointer = Checkpointer(
            running,
            FaultyDisk(volume),
            Checkpointing(running.vhost.registry),
            BrokerConfig(checkpoint_bytes=1 << 30),
        )
        monkeypatch.setattr(Vhost, "drafts", note)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checkpointer.write)
            while not running.change_writer.gate._exclusive.locked():
                await trio.lowlevel.checkpoint()
            nursery.start_soon(declaring, running)
            nursery.start_soon(others, running)
        running.pump_once()
        await running.log.wait_durable(running.log.end - 1)
        left.append(volume.copy())

    async def look(running: RunningVhost) -> None:
        names = {"jobs", "late", *(f"queue {number}" for number in range(1, QUEUES))}
        assert running.vhost.registry.queues.keys() == names
        lane = lane_of(running, "jobs")
        assert lane.next == 2 * MESSAGES
        assert list(lane.settled.ranges(0, lane.next)) == [(1, 2), (3, 4)]
        assert [times for *_, times in lane.returns_between(0, 4)] == [1, 0, 1, 0]

    run(volume, life, config=QUIET)
    at = told.index("snapshot")
    assert "declared" in told[at:]
    assert "message" in told[:at]
    (killed,) = left
    bare = killed.copy()
    assert bare.seen.pop("checkpoint", None), "a root"
    for image in (killed, bare):
        run(image, look)
