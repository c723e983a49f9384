"""A power cut at every change a scenario makes to the disk, with many choices of what it keeps.

Goal: everything confirmed is there, nothing is invented, order is kept, the log goes on. Oracle: a
plain list of what was appended, and how many of them were confirmed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest

from durable.log.committing import Sync
from durable.log.disk import Disk
from durable.log.faulty_disk import Faults, FaultyDisk, PowerCut
from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.memory_disk import SECTOR_BYTES, MemoryDisk, Volume
from durable.log.record import Draft
from durable.log.report import TornTail
from tests.logs import SMALL, PlainLog, acks, definitions, encryption, publish

SEEDS = 12


def open_log(disk: Disk, *, encrypted: bool) -> PlainLog:
    return PlainLog(disk, encryption=encryption() if encrypted else None)


class Ledger:
    """What was appended, by log position, and up to where it was confirmed."""

    def __init__(self, *, encrypted: bool) -> None:
        self.encrypted = encrypted
        self.appended: dict[int, Draft] = {}
        self.confirmed: set[int] = set()

    def run(self, disk: FaultyDisk, rounds: int) -> None:
        """Several starts of a log, commits of several records each, over several segments."""
        number = 0
        for _ in range(2):
            log = open_log(disk, encrypted=self.encrypted)
            for index in range(rounds):
                drafts = [publish(number + one, 40 + 150 * (one % 3)) for one in range(4)]
                if index % 2:
                    drafts += [acks(7, number, number + 2), definitions({"n": number})]
                number += 4
                positions = log.append(*drafts)
                self.appended.update(zip(positions, drafts, strict=True))
                log.commit()
                self.confirmed.update(positions)
            log.close()


def check(left: Volume, ledger: Ledger) -> None:
    log = open_log(MemoryDisk(left), encrypted=ledger.encrypted)
    found = log.records()
    positions = [one.position for one in found]
    assert positions == sorted(set(positions)), "order"
    for one in found:
        draft = ledger.appended[one.position]
        assert (one.kind, bytes(one.body)) == (draft.kind, draft.body), "nothing is invented"
        assert one.targets == tuple(draft.targets)
    assert ledger.confirmed <= set(positions), "everything confirmed is there"
    gone = {p for gap in log.report.gaps for p in range(gap.start, gap.end)}
    assert gone == set(range(1, log.report.end)) - set(positions), "gaps are told exactly"
    assert gone or not log.report.damage, "what was only torn is not told as damage"
    assert not any(gap.synced for gap in log.report.gaps), "and not as losses"
    # And it goes on, at once and after another start.
    (new,) = log.write(publish(999))
    assert new == log.report.end
    log.close()
    again = open_log(MemoryDisk(left), encrypted=ledger.encrypted)
    assert again.contents() == log.contents()
    assert again.report.torn is None
    # Found: what went on behind them had all before it on the disk, so they passed for confirmed.
    assert again.report.gaps == log.report.gaps, "nor by later starts"


def changes_of_the_scenario(*, encrypted: bool) -> int:
    disk = FaultyDisk(Volume())
    Ledger(encrypted=encrypted).run(disk, 5)
    assert len([name for name in disk.names() if name.startswith("msgs.")]) >= 3
    return disk.faults.changes


CUTS = [(False, at) for at in range(changes_of_the_scenario(encrypted=False))]
CUTS += [(True, at) for at in range(changes_of_the_scenario(encrypted=True))]


@pytest.mark.parametrize(("encrypted", "cut_at"), CUTS)
def test_power_cut_at_every_change(encrypted: bool, cut_at: int) -> None:
    volume = Volume()
    ledger = Ledger(encrypted=encrypted)
    with pytest.raises(PowerCut):
        ledger.run(FaultyDisk(volume, Faults(power_cut_at=cut_at)), 5)
    for seed in range(SEEDS):
        check(volume.after_power_cut(Random(seed)), ledger)


@pytest.mark.parametrize("encrypted", [False, True])
def test_power_cut_while_recovering_from_a_power_cut(encrypted: bool) -> None:
    volume = Volume()
    ledger = Ledger(encrypted=encrypted)
    with pytest.raises(PowerCut):
        ledger.run(FaultyDisk(volume, Faults(power_cut_at=37)), 5)
    for seed in range(SEEDS):
        for cut_at in range(1, 12):
            left = volume.after_power_cut(Random(seed))
            try:
                disk = FaultyDisk(left, Faults(power_cut_at=cut_at))
                open_log(disk, encrypted=encrypted).write(publish(999))
            except PowerCut:
                again = left.after_power_cut(Random(seed + cut_at))
                log = open_log(MemoryDisk(again), encrypted=encrypted)
                assert ledger.confirmed <= {one.position for one in log.records()}


def test_what_a_killed_process_left_in_the_cache_is_made_stable_by_the_next() -> None:
    """Recovered means durable: deduplication would confirm a retry of it without another write."""
    volume = Volume()
    killed = PlainLog(MemoryDisk(volume))
    killed.append(publish(1), publish(2))
    commit = killed.committer.begin(0.0)
    assert commit is not None
    commit.steps.pop()  # The kill comes before the sync.
    killed.store.carry_out(commit)
    volume.locked = False
    found = PlainLog(MemoryDisk(volume)).records()
    assert len(found) == 2
    for seed in range(SEEDS):
        log = PlainLog(MemoryDisk(volume.after_power_cut(Random(seed))))
        assert len(log.records()) == 2


def test_a_seal_and_the_next_header_belong_to_one_chain() -> None:
    volume = Volume()
    log = PlainLog(MemoryDisk(volume))
    for number in range(60):
        log.write(publish(number, 200))
    assert len(log.store.segments) > 3
    log.close()
    again = PlainLog(MemoryDisk(volume))
    assert [one.position for one in again.records()] == list(range(1, 61))
    assert again.report.gaps == ()


@pytest.mark.parametrize("killed_at", range(1, 5))
def test_a_segment_that_a_killed_process_was_making_is_there_after_a_power_cut(
    killed_at: int,
) -> None:
    """The next one finds it under its name, writes to it and confirms, before any other name is synced."""
    volume = Volume()
    killed = PlainLog(FaultyDisk(volume, faults := Faults()))
    (first,) = killed.committer.append([publish(1)])
    killed.commit()
    faults.power_cut_at = faults.changes + killed_at
    with pytest.raises(PowerCut):
        killed.make_segment()
    volume.locked = False
    log = PlainLog(MemoryDisk(volume))
    confirmed = [first]
    while log.committer.placer.write_point.number == 1:
        confirmed += log.committer.append([publish(2, 500)])
        log.commit()
    for seed in range(SEEDS):
        again = PlainLog(MemoryDisk(volume.after_power_cut(Random(seed))))
        assert [one.position for one in again.records()] == confirmed


def test_what_was_torn_in_the_segment_ahead_is_gone_before_anything_is_written_there() -> None:
    """It may be a valid record, and would stand behind what is written before it."""
    volume = Volume()
    log = PlainLog(MemoryDisk(volume))
    log.write(publish(1))
    log.close()
    ahead = volume.seen["msgs.0000000002"]
    ahead.write(b"torn" * 100, 2048)
    ahead.sync()
    PlainLog(MemoryDisk(volume)).close()
    for seed in range(SEEDS):
        assert not any(volume.after_power_cut(Random(seed)).seen["msgs.0000000002"].seen)


@pytest.mark.parametrize("number", [1, 2])
def test_the_first_write_of_a_segment_is_torn_whatever_is_left_of_it(number: int) -> None:
    """Found: without its first sector it was told as damage, and its segment as empty."""
    volume, large, name = Volume(), definitions("x" * 2000), segment_name(number)
    log = PlainLog(MemoryDisk(volume), replace(SMALL, commit_bytes_max=SMALL.segment_bytes))
    for _ in range(number - 1):
        log.write(large)  # One fills a segment.
    log.append(large)
    commit = log.committer.begin(0.0)
    assert commit is not None
    assert commit.steps.pop() == Sync(number)
    log.store.carry_out(commit)
    sectors = sorted(volume.seen[name].dirty)
    written = bytes(volume.seen[name].seen)
    for left, of_header in product(
        (one for count in range(len(sectors)) for one in combinations(sectors, count)),
        (True, False),
    ):
        after = bytearray(len(written))
        for sector in left:
            part = slice(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
            after[part] = written[part]
        if not of_header:
            after[SEGMENT_HEADER_BYTES - 1] ^= 1
        # A record's header says how long it is.
        end = SEGMENT_HEADER_BYTES + large.size_bytes if 0 in left else len(after.rstrip(b"\0"))
        check_torn(
            volume.copy(), number, after, range(SEGMENT_HEADER_BYTES if of_header else 0, end)
        )


def check_torn(volume: Volume, number: int, after: bytearray, torn: range) -> None:
    """With only this in the segment, these bytes are told as torn, and nothing else is said."""
    segment = volume.seen[segment_name(number)]
    segment.seen[:] = segment.stable[:] = after
    report = PlainLog(MemoryDisk(volume)).report
    assert report.end == number
    assert (report.gaps, report.damage) == ((), ())
    if torn:
        assert report.torn is not None
        copy = report.torn.kept_as
        assert report.torn == TornTail(number, torn.start, len(torn), 0, number, copy)
        assert copy is not None
        assert volume.seen[copy].stable == after[torn.start : torn.stop]
    else:
        assert report.torn == (TornTail(number, 0, 0, 0, number, None) if number > 1 else None)


def torn_tail() -> tuple[Volume, bytes]:
    """A log, and what stands behind its last record."""
    volume, torn = Volume(), bytes(range(1, 251)) * 4
    log = PlainLog(MemoryDisk(volume))
    log.write(publish(1))
    log.close()
    segment = volume.seen["msgs.0000000001"]
    segment.write(torn, 2048)
    segment.sync()
    return volume, torn


def changes_of_a_start() -> int:
    disk = FaultyDisk(torn_tail()[0])
    PlainLog(disk)
    return disk.faults.changes


@pytest.mark.parametrize("cut_at", range(1, changes_of_a_start() + 2))
def test_what_is_cut_off_is_there_or_its_copy_is(cut_at: int) -> None:
    """Damage of the last record of all looks the same."""
    volume, torn = torn_tail()
    with suppress(PowerCut):
        PlainLog(FaultyDisk(volume, Faults(power_cut_at=cut_at)))
    for seed in range(SEEDS):
        left = volume.after_power_cut(Random(seed))
        segment = left.seen["msgs.0000000001"].seen
        copies = [bytes(one.seen) for name, one in left.seen.items() if name.startswith("damaged.")]
        assert torn in (
            bytes(segment[2048 : 2048 + len(torn)]),
            *(one[-len(torn) :] for one in copies),
        )
