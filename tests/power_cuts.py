"""A vhost on a disk that records what each power cut would have left, and a client's ledger.

    cuts = Cuts(volume, ledger, seeds)
    run(volume, life, cuts)                       # every change to the disk is a possible cut
    for left, known in cuts.left: ...             # open the volume `left`, compare with the ledger `known`

Everything runs in one thread, in virtual time, and in the same order each time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

import pytest
import trio
import trio.testing

import durable
from durable.broker.clock import SteadyClock
from durable.broker.opening import open_vhost
from durable.broker.running_vhost import RunningVhost
from durable.log.encryption import Encryption
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.log import open_log
from durable.log.memory_disk import Volume
from durable.queues.lane import Lane
from durable.vhost.groups import part_of
from tests.ledger import number_of
from tests.logs import inline
from tests.vhosts import batch_at

L = TypeVar("L")
"""A ledger: what a client knows for certain."""

CONFIG = durable.BrokerConfig(
    log=durable.LogConfig(
        segment_bytes=8192, reserve_bytes=1024, free_bytes_min=0, compaction_share_max=0.5
    ),
    recent_bytes=1024,
)
LOOKING = replace(CONFIG, recent_bytes=1 << 20)
"""For reading everything in a vhost: bodies that were read stay in memory."""


@dataclass
class Ledger:
    """What a client knows for certain. Numbers are also the sequences of its one publisher."""

    confirmed: int = 0
    """All numbers before this one are confirmed."""
    declared: dict[str, bool | None] = field(default_factory=dict)
    """Whether a queue exists; None if a change was requested and not answered yet."""
    sent: dict[str, list[int]] = field(default_factory=dict)
    """Numbers by queue, in order."""
    asked: dict[str, set[int]] = field(default_factory=dict)
    """Numbers by queue whose settlement or dead-lettering was requested."""
    settled: dict[str, set[int]] = field(default_factory=dict)
    """Those of them whose settlement is on disk."""
    rejected: set[int] = field(default_factory=set)
    """Numbers rejected in `jobs`, which therefore go to `dead`."""
    returned: dict[int, int] = field(default_factory=dict)
    """By number in `jobs`: how often its return to the queue was requested."""
    returned_for_certain: dict[int, int] = field(default_factory=dict)

    def check(self, found: Found) -> None:
        for name, there in self.declared.items():
            assert there is None or there == (name in found.contents), name
        for name, numbers in found.contents.items():
            assert len(numbers) == len(set(numbers)), f"twice in {name}"
            if name != "dead":
                assert numbers == sorted(numbers), f"the order of {name}"
                assert set(numbers) <= set(self.sent[name]), f"never sent to {name}"
            assert not set(numbers) & self.settled[name], f"settled, and back in {name}"
            if self.declared[name]:
                wanted = {one for one in self.sent[name] if one < self.confirmed}
                missing = wanted - self.asked[name] - set(numbers)
                assert not missing, f"confirmed, and not in {name}: {missing}"
        here = {*found.contents.get("jobs", ()), *found.contents.get("dead", ())}
        if self.declared.get("dead"):
            assert self.rejected <= here | self.asked["dead"], "in neither place"
            assert set(found.contents["dead"]) <= self.rejected
        for number, times in found.returned.items():
            least, most = self.returned_for_certain.get(number, 0), self.returned.get(number, 0)
            assert least <= times <= most, f"{number} came back {least} to {most} times"


@dataclass
class Found:
    """The contents of a vhost, read from its log."""

    contents: dict[str, list[int]]
    returned: dict[int, int]

    @classmethod
    async def of(cls, running: RunningVhost) -> Found:
        queues = running.vhost.registry.queues
        contents = {
            name: [number async for _, number in ready_numbers(running, queue.lanes[0])]
            for name, queue in queues.items()
        }
        returned: dict[int, int] = {}
        if "jobs" in queues:
            (lane,) = queues["jobs"].lanes
            times = [
                count
                for low, high in lane.ready_ranges()
                for start, end, count in lane.returns_between(low, high)
                for _ in range(start, end)
            ]
            returned = dict(zip(contents["jobs"], times, strict=True))
        assert not running.batch_reader.lost
        report = running.log.report
        assert report.found_end == report.end, "what checkpoints name is there"
        return cls(contents, returned)


async def ready_numbers(running: RunningVhost, lane: Lane) -> AsyncIterator[tuple[int, int]]:
    """Yield the sequence in the lane and the number of all ready messages."""
    for low, high in lane.ready_ranges():
        at = low
        while at < high:
            found = await batch_at(running, lane, at)
            assert found is not None, f"message {at} of lane {lane.id} can be read"
            batch, first = found
            for data in part_of(batch, first, at, high).payloads:
                yield at, number_of(data)
                at += 1


class Cuts(Faults, Generic[L]):
    """Records before each change to the disk what a power cut would leave, for `seeds` different cuts."""

    def __init__(self, volume: Volume, ledger: L, seeds: int) -> None:
        super().__init__()
        self._volume, self._ledger, self._seeds = volume, ledger, seeds
        self.left: list[tuple[Volume, L]] = []

    def change(self) -> bool:
        ledger = deepcopy(self._ledger)
        for seed in range(self._seeds):
            random = Random(self.changes * self._seeds + seed)
            self.left.append((self._volume.after_power_cut(random), ledger))
        return super().change()


class _VirtualClock(SteadyClock):
    def now_us(self) -> int:
        return int(1e15) + int(trio.current_time() * 1e6)


@contextmanager
def one_thread() -> Iterator[None]:
    """Make everything that a vhost does happen in trio's thread, and in the same order each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", inline)
        patch.setattr("durable.broker.opening.vhost_path", lambda data, name: Path("memory"))
        patch.setattr("durable.broker.opening.open_log", partial(open_log, in_thread=inline))
        patch.setattr("durable.vhost.checkpointing.QUEUES_AT_ONCE", 1)  # Others run in between.
        patch.setattr("durable.turns.ENTRIES_AT_ONCE", 2)
        patch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
        yield


def run(
    volume: Volume, life: Callable[[RunningVhost], Awaitable[None]], faults: Faults | None = None,
    config: durable.BrokerConfig = CONFIG, *, encryption: Encryption | None = None,
) -> None:  # fmt: skip
    """Open the vhost on this volume, run `life` in it, and close it."""

    async def main() -> None:
        async with open_vhost(
            Path("memory"), "/", config, encryption or Encryption(None), _VirtualClock()
        ) as running:
            await life(running)

    with one_thread(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable.broker.opening.RealDisk", lambda _: FaultyDisk(volume, faults))
        patch.setattr("trio._core._run._r", Random(0))
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def two_lives(
    volume: Volume, live: Callable[..., Awaitable[None]], rounds: int, faults: Faults | None = None
) -> None:
    """Run two lives of a broker, each with an orderly end; `live` gets half of the `rounds` each time."""
    for some in (range(rounds // 2), range(rounds // 2, rounds)):
        run(volume, partial(live, rounds=some), faults)
