"""A kill inside a snapshot on a full disk: what it leaves must not take the room of the next one.

On a memory disk without a byte free, in virtual time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
import trio

from durable.broker.running_vhost import RunningVhost
from durable.log.memory_disk import Volume
from durable.queues.queue import ACK
from tests.integration.durable.test_acks_without_end import (
    FULL,
    Acking,
    fill_with_small,
    unsettled,
)
from tests.integration.durable.test_checkpoint_files import Kills
from tests.integration.durable.test_full_disk import VIRTUAL_PATIENCE_S, settle, until_space
from tests.integration.durable.test_too_large import declare
from tests.power_cuts import run
from tests.vhosts import snapshot_of

SEGMENT = 1 << 16
CONFIG = replace(FULL, log=replace(FULL.log, segment_bytes=SEGMENT))
QUEUES = 20
RECORD_BYTES = 1000
PARTS = 5
LAST = b"snapshot end"


def torn(before: Volume, after: Volume) -> Iterator[Volume]:
    """Between the two a snapshot was written: what a kill would have left of that write."""
    for name in before.seen.keys() & after.seen.keys():
        old, new = bytes(before.seen[name].seen), bytes(after.seen[name].seen)
        if new.count(LAST) <= old.count(LAST):
            continue
        begin = next(at for at in range(len(new)) if old[at : at + 1] != new[at : at + 1])
        end = new.rindex(LAST)
        for part in range(1, PARTS):
            left, at = after.copy(), begin + (end - begin) * part // PARTS
            for data in (left.seen[name].seen, left.seen[name].stable):
                data[at:] = bytes(len(data) - at)
            yield left


def test_a_kill_inside_a_snapshot_on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: the records of it that had been written stood in the room kept for a snapshot, for
    good. No further one found any, and no ack after that."""
    monkeypatch.setattr("durable.vhost.snapshot.RECORD_BYTES", RECORD_BYTES)
    volume = Volume(capacity_bytes=3 * SEGMENT + SEGMENT // 2)
    kills = Kills(volume)

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        for number in range(QUEUES):
            await declare(running, f"queue {number}")
        snapshot = snapshot_of(running.vhost)
        assert len(snapshot) > 4
        assert sum(draft.size_bytes for draft in snapshot) > 2 * CONFIG.log.reserve_bytes
        await fill_with_small(running, volume)
        kills.wanted = True
        acking = Acking(running)
        for number in range(1, 150):
            await acking.settle([number])

    async def rest(running: RunningVhost) -> None:
        acking = Acking(running)
        for number in sorted(unsettled(running))[:60]:
            await acking.settle([number])

    async def last(running: RunningVhost) -> None:
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            await settle(running, "jobs", ACK)
        await until_space(running)
        assert len(running.vhost.registry.queues) == 1 + QUEUES

    run(volume, life, kills, CONFIG)
    images = [left for before, after in pairwise(kills.left) for left in torn(before, after)]
    assert len(images) >= 3 * (PARTS - 1)
    for left in images:
        run(left, rest, config=CONFIG)
        run(left, last, config=CONFIG)
