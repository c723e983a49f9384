"""A hole that a power cut left in an interrupted commit: no start says that its contents had been confirmed.

On a memory disk, in virtual time.
"""

from __future__ import annotations

from durable.broker.running_vhost import RunningVhost
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.report import LogGap
from tests.integration.durable.test_checkpoint_files import Kills
from tests.logs import PlainLog
from tests.power_cuts import CONFIG, run
from tests.stores import declared, message

EACH = 5
"""After the second start, every so many changes."""


def with_hole(*, confirmed: bool = False) -> tuple[Volume, int]:
    """A log without the second of three messages, and the log position of that. They were of one commit, which was
    interrupted if they are not `confirmed`."""
    volume = Volume()
    log = PlainLog(MemoryDisk(volume), CONFIG.log)
    log.write(declared())
    _, missing, _ = log.append(message(0), message(1), message(2))
    place = next(one for one in log.committer._gathered if one.position == missing)
    log.commit()
    if confirmed:
        log.write(message(3))
    log.close()
    for data in (file := volume.seen[f"msgs.{place.number:010}"]).seen, file.stable:
        data[place.at : place.at + place.size_bytes] = bytes(place.size_bytes)
    return volume, missing


class Starts:
    """Starts of the vhost, each with an orderly end; and the gaps that each of them was told of."""

    def __init__(self) -> None:
        self.told: list[tuple[LogGap, ...]] = []

    def start(self, volume: Volume) -> list[Volume]:
        """Return what a kill at each of its changes to the disk would have left."""
        kills = Kills(volume)
        kills.wanted = True
        run(volume, self._look, kills, CONFIG)
        return kills.left

    async def _look(self, running: RunningVhost) -> None:
        self.told.append(running.log.report.gaps)


def test_after_kills_at_any_change_to_the_disk_it_is_not_told_as_confirmed() -> None:
    """Found: it was, if checkpoint files were written behind it and nothing had been appended since."""
    volume, missing = with_hole()
    starts = Starts()
    for number, left in enumerate(starts.start(volume)):
        for again in starts.start(left)[number % EACH :: EACH]:
            starts.start(again)
    assert set(starts.told) == {(LogGap(missing, missing + 1),)}


def test_what_had_been_confirmed_is_told_so_after_kills_at_any_change_to_the_disk() -> None:
    volume, missing = with_hole(confirmed=True)
    starts = Starts()
    for left in starts.start(volume):
        starts.start(left)
    assert set(starts.told) == {(LogGap(missing, missing + 1, synced=True),)}
