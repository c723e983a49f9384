"""What a checkpoint says is durable before it is written, and no segment goes that it does not know. In virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from durable.broker.checkpoints import Checkpointer
from durable.broker.running_vhost import RunningVhost
from durable.config import BrokerConfig
from durable.log.checkpoints import Checkpoint, Checkpoints
from durable.log.faulty_disk import FaultyDisk
from durable.log.memory_disk import Volume
from durable.queues.consumers import Consumer
from durable.queues.queue import REQUEUE
from durable.vhost.checkpointing import Checkpointing
from tests.compactions import CONF, LONG_S, Client, numbers
from tests.power_cuts import run

QUIET = replace(CONF, idle_s=LONG_S)
"""No other checkpoint comes before the end."""


def checkpointer_of(running: RunningVhost, volume: Volume) -> Checkpointer:
    checkpointing = Checkpointing(running.vhost.registry)
    return Checkpointer(running, FaultyDisk(volume), checkpointing, BrokerConfig())


def test_returns_that_a_file_has_counted_are_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says up to which log position. Had a power cut taken those records, later ones would stand at their log
    positions, and not be counted."""
    volume, write_all, durable = Volume(), Checkpoints.write_all, list[bool]()

    async def life(running: RunningVhost) -> None:
        def noting(
            files: Checkpoints, some: Iterable[Checkpoint], between: Callable[[], object]
        ) -> None:
            durable.append(running.vhost.settling.last_position < running.log.durable_end)
            write_all(files, some, between)

        client = Client(running)
        await client.declare("jobs")
        await client.publish("jobs", [b"a", b"b"])
        queue, consumer = (
            running.vhost.registry.queue("jobs"),
            Consumer("c", prefetch=0, prefetch_bytes=0),
        )
        queue.subscribe(consumer)
        queue.take(0)
        queue.settle(consumer, 0, consumer.next_tag, REQUEUE)
        before = running.vhost.settling.last_position
        monkeypatch.setattr(Checkpoints, "write_all", noting)
        await checkpointer_of(running, volume).write()
        assert running.vhost.settling.last_position > before
        assert durable == [True]

    run(volume, life, config=QUIET)


def test_what_came_while_a_checkpoint_was_written_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its root says to read on from where it began, however much was appended, settled and sealed before its
    snapshot."""
    volume, left = Volume(), list[Volume]()

    async def life(running: RunningVhost) -> None:
        client, in_thread = Client(running), running.log.in_thread

        async def slowly(call: Any, *arguments: Any) -> Any:
            if call.__name__ == "_write_files":
                for _ in range(3):
                    await client.traffic()
            return await in_thread(call, *arguments)

        await client.declare("kept", "fast")
        await client.publish("kept", [b"x"])
        while len(numbers(running)) < 3:
            await client.traffic()
        began_in = numbers(running)[-1]
        monkeypatch.setattr(running.log, "in_thread", slowly)
        await checkpointer_of(running, volume).write()
        monkeypatch.undo()
        assert numbers(running)[-1] > began_in + 2
        left.append(volume.copy())

    async def again(running: RunningVhost) -> None:
        report = running.log.report
        assert (report.gaps, report.absent) == ((), ())

    run(volume, life, config=QUIET)
    run(left[0], again, config=QUIET)
