"""One bit flipped in any byte of a whole vhost: its record is lost, and said to be, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.definitions import (
    BindingDefinition,
    ExchangeDefinition,
    PermissionDefinition,
    StreamDefinition,
)
from durable.log.memory_disk import Folder, Volume
from durable.vhost import changes
from durable.vhost.changes import Change
from tests.integration.durable.test_checkpoint_files import STILL, Client, Later
from tests.integration.durable.test_power_cut_streams import Declared, declared
from tests.integration.durable.test_too_large import declare
from tests.power_cuts import run

Ready = dict[tuple[str, int], int]
"""By queue or stream and sequence, the log position of each message that is ready."""

OTHERS: list[Change] = [
    [changes.STREAM, 9, to_plain(StreamDefinition(name="audit", patterns=("t.>",)))],
    [changes.EXCHANGE, to_plain(ExchangeDefinition(name="events", type="topic"))],
    [changes.BIND, to_plain(BindingDefinition(exchange="events", destination="audit", key="#"))],
    [changes.PERMISSION, to_plain(PermissionDefinition(cluster="shop", configure=".*"))],
    *changes.permission(PermissionDefinition(cluster="crm", configure="c", capture="t.*")),
]


def make(*, rolls: int) -> tuple[Volume, Ready, Declared]:
    """What a kill left, after so many segments were filled and freed: then there is a snapshot of it."""
    volume, client = Volume(), Client()
    left: list[tuple[Volume, Ready, Declared]] = []

    async def life(running: RunningVhost) -> None:
        for name in ("jobs", "other", "fill"):
            await declare(running, name)
        await running.change_writer.write(lambda: OTHERS)
        if not rolls:  # Else it would keep the segment in which everything was declared.
            await client.publish(running, "other", b"kept")
        for _ in range(rolls):
            await client.roll(running, Later(running.log._store.segments))
        for number in range(5):
            await client.publish(running, "jobs", b"%d" % number, b"and")
            await client.publish(running, "audit", b"%d" % number)
        left.append((volume.copy(), ready(running), declared(running)))

    run(volume, life, config=STILL)
    return left[0]


def ready(running: RunningVhost) -> Ready:
    registry = running.vhost.registry
    return {
        (owner.name, sequence): run.position
        for lane, owner in ((registry.lanes[one], owner) for one, owner in registry.owners.items())
        for low, high in lane.ready_ranges()
        for run in lane.index.runs(low, high)
        for sequence in range(max(low, run.first), min(high, run.first + run.count))
    }


def written(folder: Folder) -> Iterator[tuple[Folder, str, int]]:
    """Each file in it, and how long it is without the zeros at its end."""
    for name, inode in folder.seen.items():
        yield folder, name, len(inode.seen.rstrip(b"\0"))
    for inner in folder.folders.seen.values():
        yield from written(inner)


@pytest.mark.slow
@pytest.mark.parametrize("rolls", [0, 3])
def test_one_bit_flipped_costs_nothing_outside_its_record(
    rolls: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: of a queue nothing else was known than the record that declared it, or its snapshot."""
    caplog.set_level(logging.CRITICAL)
    volume, before, there = make(rolls=rolls)
    assert ("msgs.0000000001" in volume.seen) is (not rolls)
    for place, (_, _, size) in enumerate(list(written(volume))):
        for at in range(
            0, size, 5
        ):  # Of every record and each of its fields; all bytes take a minute.
            copy = volume.copy()
            folder, name, _ = list(written(copy))[place]
            for data in (folder.seen[name].seen, folder.seen[name].stable):
                data[at] ^= 1 << (at // 5 % 8)
            check(copy, before, there, f"{name}, byte {at}")


def check(volume: Volume, before: Ready, there: Declared, where: str) -> None:
    async def look(running: RunningVhost) -> None:
        found, report = ready(running), running.log.report
        lost = {position for gap in report.gaps for position in range(gap.start, gap.end)}
        torn_from = report.torn.position if report.torn else running.log.end
        missing = {
            message for message, position in before.items()
            if message not in found and position not in lost and position < torn_from
        }  # fmt: skip
        assert not missing, where
        assert found.keys() <= before.keys(), where
        assert declared(running) == there, where

    run(volume, look, config=STILL)
