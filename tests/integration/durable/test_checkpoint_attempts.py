"""How often a checkpoint is tried, and what is said of it. In virtual time."""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import trio

from durable.broker.checkpoints import PAUSE_FACTOR_MAX, Checkpointer
from durable.broker.running_vhost import RunningVhost
from durable.config import BrokerConfig
from durable.errors import StoreFull
from durable.log.faulty_disk import FaultyDisk
from durable.log.memory_disk import Volume
from durable.queues.queue import ACK
from durable.vhost.checkpointing import Checkpointing
from durable.vhost.snapshot import Snapshot
from tests.integration.durable.test_full_disk import (
    SEGMENT,
    ack_first,
    fill,
    purge,
    settle,
    until_space,
)
from tests.integration.durable.test_too_large import declare
from tests.power_cuts import CONFIG, run
from tests.waiting import virtual_sleep

LOOK_S = 0.5
REFUSED = (1, 3, 7, 15, 23)
"""In looks: each pause is twice the one before, at most PAUSE_FACTOR_MAX."""
WRITTEN = (31, 32, 33)
REFUSED_AGAIN = (34, 36)


class Attempts(Checkpointer):
    """Notes when one is tried, and finds no room at those times that were said."""

    def __init__(self, running: RunningVhost) -> None:
        checkpointing = Checkpointing(running.vhost.registry)
        super().__init__(running, FaultyDisk(Volume()), checkpointing, BrokerConfig())
        self._began_s = trio.current_time()
        self.at: list[float] = []

    @property
    def due(self) -> bool:
        return True

    async def write(self) -> bool:
        self.at.append((trio.current_time() - self._began_s) / LOOK_S)
        if round(self.at[-1]) in REFUSED + REFUSED_AGAIN:
            raise StoreFull(100, 100, 0)
        return True


def test_pauses_grow_while_there_is_no_room_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each attempt encodes all there is to say, and nobody declares anything meanwhile."""
    caplog.set_level(logging.WARNING, logger="durable")

    async def life(running: RunningVhost) -> None:
        attempts = Attempts(running)
        with trio.move_on_after((REFUSED_AGAIN[-1] + 0.5) * LOOK_S):
            await attempts.run(LOOK_S)
        assert attempts.at == pytest.approx(REFUSED + WRITTEN + REFUSED_AGAIN)

    run(Volume(), life)
    assert REFUSED[-1] - REFUSED[-2] == PAUSE_FACTOR_MAX
    said = [one for one in caplog.messages if one.startswith("no checkpoint of vhost /")]
    assert len(said) == 2, "once each time it begins"


def test_what_could_not_be_removed_from_a_full_disk_is_when_it_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else is worth a checkpoint then: all that could be freed was."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)

    def refuse(disk: FaultyDisk, name: str) -> None:
        raise OSError(errno.EPERM, "refused")

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        await fill(running)
        with monkeypatch.context() as patch:
            patch.setattr(FaultyDisk, "unlink", refuse)
            await settle(running, "jobs", ACK)
            await virtual_sleep(20 * CONFIG.idle_s)
            assert running.log.statistics().full
            assert running.log._store.unremoved
        await until_space(running)

    config = replace(CONFIG, log=replace(CONFIG.log, compaction_share_max=0.0))  # No carrier.
    run(volume, life, config=config)


def test_a_snapshot_that_no_segment_takes_is_not_encoded_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    volume, tried = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2), list[float]()

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        with suppress(StoreFull):
            for number in range(150):
                await declare(running, f"queue {number}" + "y" * 60)
        published = await fill(running)
        with trio.move_on_after(10 * CONFIG.idle_s):
            await ack_first(running, published)
        snapshot = running.vhost.snapshot

        def note(*args: Any, **options: Any) -> Snapshot:
            tried.append(trio.current_time())
            return snapshot(*args, **options)

        monkeypatch.setattr(running.vhost, "snapshot", note)
        await virtual_sleep(5 * PAUSE_FACTOR_MAX * CONFIG.idle_s)
        assert running.log.statistics().full
        pauses = [after - before for before, after in pairwise(tried)]
        assert pauses[-2:] == pytest.approx([PAUSE_FACTOR_MAX * CONFIG.idle_s] * 2)

    run(volume, life)


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_settled_goes_though_nobody_publishes_any_more(killed: bool) -> None:
    """No segment is begun, and few records are written, for which there would be a checkpoint."""
    volume = Volume()

    async def filled(running: RunningVhost) -> None:
        await declare(running, "jobs")
        await fill(running, most=28)
        await virtual_sleep(2 * CONFIG.idle_s)
        assert running.log.statistics().segments > 4
        if killed:
            left.append(volume.copy())
        else:
            await consumed(running)

    async def consumed(running: RunningVhost) -> None:
        assert await purge(running) == 28
        await virtual_sleep(3 * CONFIG.idle_s)
        assert running.log.statistics().segments <= 2

    left: list[Volume] = []
    run(volume, filled)
    for one in left:
        run(one, consumed)
