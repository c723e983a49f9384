"""Records read together are the same as one by one: the records, the damage between them, and what a start makes
of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import accumulate
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from durable.log import scan as scanning
from durable.log.config import LogConfig
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.record import MAGIC, store_seed
from durable.log.scan import Damaged, Found, scan, scan_together
from durable.log.series import Series, Words
from durable.log.store import open_store
from durable.vhost.publishers import Publishers
from durable.vhost.registry import Registry
from durable.vhost.replay import Replay
from tests.log_traffic import Traffic
from tests.logs import STORE_ID, PlainLog

SEED = store_seed(STORE_ID)
CONFIG = LogConfig(segment_bytes=1 << 16, reserve_bytes=512, free_bytes_min=0)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True, scope="module")
def few_at_once() -> Iterator[None]:
    """So that logs as short as these have series of one size, and their lanes blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable.queues.index._ROWS_MAX", 8)
        patch.setattr("durable.log.series.SERIES_MIN", 4)
        patch.setattr("durable.log.scan.SERIES_MIN", 4)
        patch.setattr("durable.log.series.SAME_SIZE_MIN", 10)
        patch.setattr("durable.log.scan.SINGLES", 1)
        yield


def volume_of(random: Random, records: int) -> Volume:
    """A log, committed now and then."""
    volume = Volume()
    log = PlainLog(MemoryDisk(volume), CONFIG)
    drafts = Traffic(random).drafts(records)
    while drafts:
        count = random.choice((1, 2, 50))
        log.append(*drafts[:count])
        del drafts[:count]
        if random.random() < 0.5:
            log.commit()
        if random.random() < 0.02:  # Another life.
            log.commit()
            log.close()
            log = PlainLog(MemoryDisk(volume), CONFIG)
    log.commit()
    log.close()
    return volume


def bytes_of(volume: Volume) -> dict[str, bytes]:
    disk = MemoryDisk(volume)
    found = {}
    for name in disk.names():
        if name.startswith("msgs."):
            file = disk.open(name)
            found[name] = file.pread(file.size_bytes, 0)
    return found


def as_found(findings: Iterator[Found | Damaged | Series]) -> Iterator[tuple[object, ...]]:
    """One by one, in plain values."""
    for found in findings:
        if isinstance(found, Damaged):
            yield found
            continue
        records = found.records() if isinstance(found, Series) else (found.record,)
        at = found.at
        for record in records:
            yield at, record.header, bytes(record.contents)
            at += record.header.total_bytes
        if isinstance(found, Series):
            assert at == found.end_at


def spoiled(data: bytes, random: Random) -> bytes:
    """Bits turned, bytes gone or moved, at a few places."""
    damaged = bytearray(data)
    for _ in range(random.randrange(4)):
        at = random.randrange(len(damaged))
        match random.randrange(7):
            case 0:
                damaged[at] ^= 1 << random.randrange(8)
            case 1:
                end = at + random.randrange(600)
                damaged[at:end] = bytes(len(damaged[at:end]))
            case 2:
                end = at + 8 * random.randrange(60)
                damaged[at:end] = damaged[8 * random.randrange(90) :][: len(damaged[at:end])]
            case 3:  # From one record to another, as if these had never been.
                begin = damaged.find(MAGIC, at)
                end = damaged.find(MAGIC, begin + 8 * random.randrange(1, 60))
                if 0 < begin < end:
                    del damaged[begin:end]
                    damaged += bytes(end - begin)
            case 4:  # A record says another length.
                field = damaged.find(MAGIC, at) + 8
                length = random.choice((0, 1, 7, 8, 63, 64, 65, 100, 1 << 31, (1 << 32) - 1))
                damaged[field : field + 4] = length.to_bytes(4, "little")
            case 5:  # To any size.
                del damaged[at + 1 :]
            case _:
                del damaged[at:]
                damaged += bytes(len(data) - at)
    return bytes(damaged)


@given(seeds, st.sampled_from([1 << 12, 1 << 14, 1 << 20]), st.booleans())
def test_what_is_found_together_is_what_is_found(
    seed: int, window_bytes: int, damage: bool
) -> None:
    random = Random(seed)
    for data in bytes_of(volume_of(random, 400)).values():
        there = spoiled(data, random) if damage else data
        limits: dict[str, Any] = {"seed": SEED, "window_bytes": window_bytes}

        together = scan_together(reading(there), 64, len(there), **limits)
        assert [*as_found(together)] == [*as_found(scan(reading(there), 64, len(there), **limits))]


@given(st.lists(st.integers(9, 40), min_size=2, max_size=30), st.integers(0, 30))
def test_a_column_is_what_stands_there_in_each_record(sizes: list[int], index: int) -> None:
    """Up to the end of what is there, which may come sooner than what most columns need."""
    numbers = array("Q", range(1, sum(sizes) + 1))
    offsets = [*accumulate(sizes[:-1], initial=0)]
    series = Series(Words(numbers.tobytes()), offsets, 0)
    there = [offset + 1 + index for offset in offsets if offset + index < len(numbers)]
    assume(len(there) == len(offsets) or index < min(sizes))
    assert series.column(index).tolist() == there


def reading(data: bytes) -> Callable[[int, int], bytes]:
    return lambda size, at: data[at : at + size]


@pytest.mark.parametrize("mixed", [False, True])
def test_no_bit_can_turn_in_what_is_read_together(mixed: bool) -> None:
    traffic, volume = Traffic(Random(1)), Volume()
    log = PlainLog(MemoryDisk(volume), CONFIG)
    log.write(*(traffic.acked(40) if mixed else traffic.steady(100)))
    log.close()
    (data,) = (data for data in bytes_of(volume).values() if any(data))
    series = next(scan_together(reading(data), 64, len(data), seed=SEED))
    assert isinstance(series, Series)
    assert series.one_size is not mixed
    assert series.count > 22
    ats = [found.at for found in scan(reading(data), 64, len(data), seed=SEED)]
    for bit in range(8 * ats[20], 8 * ats[22]):
        turned = bytearray(data)
        turned[bit // 8] ^= 1 << bit % 8
        found = list(scan_together(reading(bytes(turned)), 64, len(data), seed=SEED))
        assert any(isinstance(one, Damaged) for one in found), f"bit {bit} has turned"


def test_a_segment_may_end_anywhere_behind_its_last_record() -> None:
    volume = Volume()
    log = PlainLog(MemoryDisk(volume), CONFIG)
    log.write(*Traffic(Random(1)).acked(40))
    log.close()
    (name,) = (name for name, data in bytes_of(volume).items() if any(data))
    data = bytes_of(volume)[name]
    *_, last = scan(reading(data), 64, len(data), seed=SEED)
    assert isinstance(last, Found)
    for end in range(last.end, last.end + 180):
        found = scan_together(reading(data[:end]), 64, end, seed=SEED)
        assert [*as_found(found)][-1][0] == last.at


@pytest.mark.parametrize("length", [0, 7, 8, 63])
def test_a_record_that_says_it_is_shorter_than_its_header_is_damage(length: int) -> None:
    """Wherever what is in memory ends behind it."""
    traffic, volume = Traffic(Random(1)), Volume()
    log = PlainLog(MemoryDisk(volume), CONFIG)
    log.write(*traffic.acked(60))
    log.close()
    (data,) = (data for data in bytes_of(volume).values() if any(data))
    ats = [found.at for found in scan(reading(data), 64, len(data), seed=SEED)]
    for at in ats[20:40]:
        damaged = bytearray(data)
        damaged[at + 8 : at + 12] = length.to_bytes(4, "little")
        there = reading(bytes(damaged))
        one_by_one = [*as_found(scan(there, 64, len(data), seed=SEED))]
        for window_bytes in range(at, at + 120, 8):
            limits: dict[str, Any] = {"seed": SEED, "window_bytes": window_bytes}
            assert [*as_found(scan_together(there, 64, len(data), **limits))] == one_by_one


def state_of(replay: Replay) -> dict[str, object]:
    """All that a start knows, in plain values."""
    lanes = {}
    for lane in replay.registry.lanes.values():
        index, end = lane.index, max(lane.index.end, lane.settled.end)
        marks = lane._arrival_times
        lanes[lane.id] = (
            index.start, index.end, list(index.runs(0, index.end)), list(lane.settled.ranges(0, end)),
            lane.next, lane.ready, lane.ready_bytes, lane.size_bytes, lane.ready_ranges(),
            [lane._expiries.lookup(at, at + 1)[0] for at in range(lane.settled.low, index.end)],
            marks.encode(), list(lane._return_counts),
        )  # fmt: skip
    return {
        "lanes": lanes, "publishers": replay.publishers.entries(), "void": replay.ignored_acks,
        "damaged": [(str(error), type(error)) for error in replay.damaged], "kinds": replay.unknown_kinds,
        "nowhere": replay._lost_counts, "came": (replay._last_position, replay._contiguous_start),
        "missing": {lane: one.missing for lane, one in replay._recoveries.items()},
    }  # fmt: skip


def started(volume: Volume, start: int) -> tuple[tuple[object, ...], int]:
    """What a start at this log position finds: vhost, report and segments; and what of it had to wait."""
    replay = Replay(Registry(100), Publishers(100))
    store = open_store(
        MemoryDisk(volume.copy()), CONFIG, new_store_id=STORE_ID, now_us=0, clock=lambda: 0.0,
        start=start, visit=replay,
    )  # fmt: skip
    waiting = sum(len(row) for one in replay._recoveries.values() for row in one._waiting)
    replay._stretches.finish()
    for recovery in replay._recoveries.values():
        recovery.finish()
    for lane in replay.registry.lanes.values():
        lane.end_recovery(0)
    segments = {
        one.number: (one.first, one.end, one.end_at, one.sealed, one.marks.encode(one.end))
        for one in store.segments
    }
    store.close()
    return (state_of(replay), asdict(store.report), segments), waiting


@given(seeds, st.booleans(), st.booleans())
def test_a_start_makes_the_same_of_them(seed: int, damage: bool, late: bool) -> None:
    random = Random(seed)
    volume = volume_of(random, 400)
    if damage:
        for name, data in bytes_of(volume).items():
            if any(data):
                file, there = MemoryDisk(volume).open(name), spoiled(data, random)
                file.pwritev([there], 0)
                file.truncate(len(there))
    start = random.randrange(300) if late else 0
    together, waiting = started(volume, start)
    with patch.object(scanning, "find_series", lambda *_: None):
        one_by_one, waiting_then = started(volume, start)
    assert together == one_by_one
    assert waiting <= waiting_then, "no more memory is taken"
