"""One bit flipped, the file cut, a page zeroed: everywhere in a small store.

Goal: opening never refuses, nothing outside the damaged record is lost, the gap is told exactly.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.record import Draft, Kind
from tests.logs import SMALL, PlainLog, acks, definitions, publish

TINY = replace(SMALL, segment_bytes=1408, reserve_bytes=128)


def make_store() -> tuple[Volume, dict[int, Draft], dict[int, tuple[int, int, int]]]:
    """Two segments and a bit; the drafts by log position, and where each stands."""
    volume = Volume()
    log = PlainLog(MemoryDisk(volume), TINY)
    drafts: dict[int, Draft] = {}
    spans: dict[int, tuple[int, int, int]] = {}
    for number in range(13):
        draft = (publish(number, 200), acks(7, number, number + 1), definitions([number]))[
            number % 3
        ]
        (position,) = log.append(draft)
        drafts[position] = draft
        place = log.committer._gathered[-1]
        spans[position] = (place.number, place.at, place.at + place.size_bytes)
        log.commit()
    log.close()
    return volume, drafts, spans


STORE, DRAFTS, SPANS = make_store()
NAMES = [
    name for name in STORE.seen if STORE.seen[name].seen and name.startswith(("msgs", "store"))
]
LAST = max(DRAFTS)


def check(volume: Volume, damaged: set[int]) -> None:
    """All but `damaged` log positions are there as they were; exactly those are reported."""
    log = PlainLog(MemoryDisk(volume), TINY)
    found = {one.position: (one.kind, bytes(one.body)) for one in log.records()}
    assert found == {p: (d.kind, d.body) for p, d in DRAFTS.items() if p not in damaged}
    report = log.report
    gone = {p for gap in report.gaps for p in range(gap.start, gap.end)}
    end = min(set(range(1, LAST + 2)) - set(found) - gone)  # Behind the last valid record.
    assert gone | set(range(end, LAST + 1)) == damaged
    assert report.end == end
    if damaged:
        assert report.torn if LAST in damaged else report.damage or gone
    assert all(gap.synced for gap in report.gaps if gap.end < LAST), "told as lost, not as perhaps"
    assert log.write(publish(999)) == range(end, end + 1)
    log.close()
    again = PlainLog(MemoryDisk(volume), TINY)
    assert again.contents() == log.contents(), "and again"
    assert again.report.torn is None, "what was cut is gone"
    again.close()


def hit(name: str, start: int, end: int) -> set[int]:
    """Log positions of the records that have some of bytes [start, end) of this file."""
    return {
        position
        for position, (number, at, stop) in SPANS.items()
        if segment_name(number) == name and at < end and start < stop
    }


@pytest.mark.parametrize("name", NAMES)
def test_one_bit_flipped_in_every_byte(name: str) -> None:
    random = Random(1)
    for at in range(len(STORE.seen[name].seen)):
        volume = STORE.copy()
        volume.flip(name, 8 * at + random.randrange(8))
        check(volume, hit(name, at, at + 1))


@pytest.mark.parametrize("name", NAMES)
def test_cut_at_every_byte(name: str) -> None:
    size = len(STORE.seen[name].seen)
    for at in range(size):
        volume = STORE.copy()
        volume.cut(name, at)
        lost = hit(name, at, size)
        if at <= max((stop for n, _, stop in SPANS.values() if segment_name(n) == name), default=0):
            check(volume, lost)


@pytest.mark.parametrize("name", NAMES)
def test_every_sector_zeroed(name: str) -> None:
    for at in range(0, len(STORE.seen[name].seen), 512):
        volume = STORE.copy()
        volume.seen[name].seen[at : at + 512] = bytes(512)
        volume.seen[name].stable[at : at + 512] = bytes(512)
        lost = hit(name, at, at + 512)
        if LAST in lost and len(lost) > 1:
            continue  # A cut: the next test.
        check(volume, lost)


def test_torn_definitions_followed_by_more_definitions() -> None:
    """LavinMQ 2.9 refuses to start after this: see durable.md, finding 4."""
    volume = Volume()
    log = PlainLog(MemoryDisk(volume))
    for number in range(5):
        log.write(definitions({"queue": number}))
    end = log.store.segments.last.end_at  # type: ignore[union-attr]
    log.close()
    for at in range(end - 40, end):
        cut = volume.copy()
        cut.cut(segment_name(1), at)
        first = PlainLog(MemoryDisk(cut))
        assert first.report.torn is not None or at == end - 40 or first.report.end == 5
        first.write(definitions({"queue": "more"}))
        first.close()
        second = PlainLog(MemoryDisk(cut))
        assert [one.position for one in second.records()] == [1, 2, 3, 4, 5]
        assert second.report.gaps == ()
        assert second.report.torn is None


def test_damaged_bytes_are_kept() -> None:
    volume = STORE.copy()
    number, at, stop = SPANS[4]
    name = segment_name(number)
    volume.flip(name, 8 * (at + 70))
    was = bytes(volume.seen[name].seen[at:stop])
    log = PlainLog(MemoryDisk(volume))
    (damage,) = log.report.damage
    assert (damage.segment, damage.at, damage.end) == (number, at, stop)
    assert damage.kept_as is not None
    assert bytes(volume.seen[damage.kept_as].seen) == was
    assert "lost: log positions 4 to 4 (confirmed)" in str(log.report)


def test_a_payload_that_looks_like_records_is_not_taken_for_any() -> None:
    """Someone publishes a copy of the broker's own segment, and the record around it is damaged."""
    volume = Volume()
    log = PlainLog(MemoryDisk(volume))
    log.write(publish(1), publish(2))
    copy = bytes(volume.seen[segment_name(1)].seen[64:600])
    log.write(Draft(Kind.PUBLISH, copy + bytes(-len(copy) % 8)))
    log.write(publish(4))
    log.close()
    place = log.store.segments.last
    assert place is not None
    at = volume.seen[segment_name(1)].seen.index(copy, 65) - 64
    for bit in (8 * at, 8 * (at + 64)):  # The header, then the body.
        damaged = volume.copy()
        damaged.flip(segment_name(1), bit)
        found = PlainLog(MemoryDisk(damaged))
        assert [one.position for one in found.records()] == [1, 2, 4]
        assert [(gap.start, gap.end) for gap in found.report.gaps] == [(3, 4)]


def test_what_is_cut_where_something_was_cut_before_is_kept_as_well() -> None:
    """Found: a crash had left half a record, so there was a file of that name, and what stood there later,
    confirmed, was cut without a copy."""
    volume, name = Volume(), segment_name(1)
    PlainLog(MemoryDisk(volume)).close()
    at, kept = SEGMENT_HEADER_BYTES, []
    for number in range(1, 4):
        log = PlainLog(MemoryDisk(volume))
        log.write(publish(number))
        log.close()
        volume.flip(name, 8 * at)
        kept.append(bytes(volume.seen[name].seen[at:]).rstrip(b"\0"))
        for _ in range(2):  # The second time it has been cut.
            log = PlainLog(MemoryDisk(volume))
            log.close()
    copies = [one for one in volume.seen if one.startswith("damaged")]
    assert copies == [f"damaged.0000000001.{at}{again}" for again in ("", ".2", ".3")]
    assert [bytes(volume.seen[one].seen).rstrip(b"\0") for one in copies] == kept


def test_the_same_damage_is_kept_once() -> None:
    volume = STORE.copy()
    volume.flip(segment_name(1), 8 * SPANS[1][1])
    for _ in range(3):
        PlainLog(MemoryDisk(volume), TINY).close()
    assert len([one for one in volume.seen if one.startswith("damaged")]) == 1


def test_what_was_set_aside_stays_when_the_store_id_is_lost_again() -> None:
    """Found: the second time took the place of the first, which had been the only copy."""
    volume, aside = Volume(), dict[str, bytes]()
    for number in range(3):
        log = PlainLog(MemoryDisk(volume))
        log.write(publish(number))
        log.close()
        for name in ("store", segment_name(1)):
            volume.flip(name, 8 * 20)
        mark = f".{number + 1}" if number else ""
        aside[f"damaged.store{mark}"] = bytes(volume.seen["store"].seen)
        aside[f"damaged.0000000001.0{mark}"] = bytes(volume.seen[segment_name(1)].seen)
    PlainLog(MemoryDisk(volume)).close()
    kept = {
        name: bytes(one.seen) for name, one in volume.seen.items() if name.startswith("damaged")
    }
    assert kept == aside
