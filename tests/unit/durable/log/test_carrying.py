"""The carrier: a whole segment, kept on a full disk for what compaction carries forward."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from durable.errors import StoreFull
from durable.log.compaction import FULL_SHARE
from durable.log.header import segment_name, spare_name
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.placing import AheadState, Placer, WritePoint
from durable.log.real_disk import RealDisk
from durable.log.record import Draft, Kind
from durable.log.segments import Segments
from durable.log.spares import CARRIER, NEW, SPARES, Spare
from tests.full_logs import (
    SNAPSHOT_BYTES,
    carried,
    carrying,
    fill,
    have_small,
    in_spare,
    make_spares,
    opened,
    remove,
    room,
    spacious,
)
from tests.logs import SMALL, PlainLog, acks, definitions, publish

LETTER_BYTES = publish(1, 200).size_bytes + acks(7, 0, 1).size_bytes


def letter(log: PlainLog, number: int) -> None:
    """As dead letters are appended."""
    log.write(publish(number, 200), acks(7, number, number + 1))


def write_all(log: PlainLog, *drafts: Draft) -> int:
    """Again and again until there is no room; how often."""
    times = 0
    with pytest.raises(StoreFull):
        while True:
            log.write(*drafts)
            times += 1
    return times


def test_it_is_for_what_is_carried_forward_and_for_nothing_else() -> None:
    volume = spacious()
    log = carrying(volume)
    placer = log.committer.placer
    write_all(log, publish(1, 200), acks(7, 1, 2))
    write_all(log, acks(7, 0, 1))
    write_all(log, definitions("one more"))
    snapshot = definitions("x" * 200)._replace(snapshot=True)
    with pytest.raises(StoreFull):  # Found: its copy took the carrier.
        log.write(snapshot, snapshot._replace(patient=True))
    assert placer.spares.carrier is not None
    assert 0 <= placer.append_bytes_max - placer.carried_bytes_max - SNAPSHOT_BYTES < 200
    moved = write_all(log, carried(1))
    assert placer.spares.carrier is None
    assert moved * carried(1).size_bytes > 0.8 * placer.append_bytes_max
    before = log.contents()
    log.close()
    assert PlainLog(MemoryDisk(volume)).contents() == before


def test_dead_letters_take_it_where_they_are_most_and_leave_room_for_what_is_moved() -> None:
    log = carrying(spacious())
    placer = log.committer.placer
    write_all(log, publish(1, 200), acks(7, 1, 2))
    placer.backlog.many_letters = True
    letter(log, 1)
    assert placer.spares.carrier is None
    for_acks = int((1 - FULL_SHARE) * placer.append_bytes_max)
    left = placer.carried_bytes_max - for_acks
    placer.backlog.moved_bytes = int(left) - 2 * LETTER_BYTES
    assert write_all(log, publish(1, 200), acks(7, 1, 2)) == 2
    for _ in range(for_acks // acks(7, 0, 1).size_bytes):
        log.write(acks(7, 0, 1))
    assert write_all(log, carried(1)) >= placer.backlog.moved_bytes // carried(1).size_bytes


def test_while_something_is_carried_forward_dead_letters_leave_it_the_carrier() -> None:
    """Found: they took it while a segment was counted, and what was left was too little for that."""
    log = carrying(spacious())
    placer = log.committer.placer
    write_all(log, publish(1, 200), acks(7, 1, 2))
    placer.backlog.many_letters, placer.backlog.moved_bytes = True, 1
    assert write_all(log, publish(1, 200), acks(7, 1, 2)) == 0
    assert placer.spares.carrier is not None


def test_where_it_is_missing_the_last_segment_is_for_letters_and_for_what_is_moved() -> None:
    log = carrying(spacious())
    placer = log.committer.placer
    placer.spares.carrier = None
    with pytest.raises(StoreFull):
        log.write(publish(1, 200))
    snapshot = definitions("x")._replace(snapshot=True)
    last = log.store.segments.last
    assert last is not None
    last.references = 1
    with pytest.raises(StoreFull):
        log.write(snapshot, snapshot._replace(patient=True))
    write_all(log, publish(1, 200), acks(7, 1, 2))
    moved = write_all(log, carried(1)) * carried(1).size_bytes
    share = SMALL.compaction_share_max * placer.append_bytes_max
    assert abs(moved - share) <= 2 * LETTER_BYTES


def test_with_few_segments_there_is_none() -> None:
    """There is little to carry forward, and one more segment is worth more. What is one becomes the next segment."""
    log = opened(room())
    assert log.committer.placer.wanted_spares() == []
    log = carrying(spacious())
    placer, segments = log.committer.placer, log.store.segments
    assert not placer.carrier_useless
    gone = list(segments)[:2]
    segments.remove(gone)
    placer.ahead = AheadState.WANTED
    assert not placer.carrier_useless, "one can be made"
    placer.ahead = AheadState.REFUSED
    assert placer.carrier_useless
    log.store.use_carrier(placer.write_point.number + 1)
    placer.spares.carrier = None
    log.committer.placer.segment_made()
    before = len(segments)
    log.write(publish(1, 1500))
    assert len(segments) == before + 1


def test_without_compaction_there_is_none() -> None:
    log = opened(spacious(), compaction_share_max=0)
    fill(log)
    assert log.committer.placer.wanted_spares() == []
    assert not log.committer.placer.needs_carrier


def test_without_spares_there_is_none() -> None:
    """Acks need the next segment more."""
    log = carrying(spacious())
    placer = log.committer.placer
    have_small(placer)
    assert placer.needs_carrier, "they are segments now, and will come back"
    none = Placer(SMALL, placer.write_point, log.store.segments, ahead_ready=True)
    assert not none.needs_carrier
    none.write_point = none.write_point._replace(capacity_bytes=600)
    assert none.needs_carrier, "a spare is being written"


def test_the_third_segment_brings_one_before_it_is_durable() -> None:
    """Found: it came with the fourth, for which publishes had to wait."""
    log = opened(Volume())
    placer = log.committer.placer
    while placer.write_point.number < 3:
        assert not placer.needs_carrier
        log.commit()
        log.append(publish(1, 200))
    assert len(log.store.segments) == 2
    assert placer.needs_carrier


def test_segments_that_were_spares_do_not_count() -> None:
    """Found: two of them, on a disk of few segments, kept the next one from publishes."""
    volume = Volume(capacity_bytes=3 * SMALL.segment_bytes)
    log = in_spare(volume)
    placer, segments = log.committer.placer, log.store.segments
    while placer.spares.small:
        log.write(acks(7, 0, 1))
    assert len(segments) > 3
    assert sum(one.capacity_bytes == SMALL.segment_bytes for one in segments) < 3
    assert not placer.needs_carrier
    log.close()
    assert not PlainLog(MemoryDisk(volume)).committer.placer.needs_carrier


def test_spares_that_are_all_segments_count() -> None:
    """They come back; also where they were segments at the start. Found: there was no carrier until the next one."""
    volume = spacious()
    log = carrying(volume)
    while log.committer.placer.spares.small:
        log.write(acks(7, 0, 1))
    assert log.committer.placer.needs_carrier
    log.close()
    log = PlainLog(MemoryDisk(volume))
    placer, segments = log.committer.placer, log.store.segments
    assert not placer.spares.small
    assert placer.needs_carrier, "one is being written"
    whole = placer.write_point._replace(
        number=placer.write_point.number + 1, capacity_bytes=SMALL.segment_bytes
    )
    assert Placer(SMALL, whole, segments, ahead_ready=False).needs_carrier, "or has been"
    small = [one for one in segments if one.capacity_bytes < SMALL.segment_bytes]
    volume.capacity_bytes *= 2
    log.make_segment()
    log.write(publish(1, 1000))
    segments.remove(small)
    placer.spares.add(*remove(log.store, *[one.number for one in small], spares_max=SPARES))
    assert len(placer.spares.small) == SPARES
    assert placer.needs_carrier


def test_what_was_to_be_written_at_a_kill_is_the_carrier_again() -> None:
    """Found: a carrier that had been renamed, or what was made before one was, was filled by publishes."""
    volume = spacious()
    log = carrying(volume)
    assert log.committer.placer.spares.carrier is not None
    volume.seen[segment_name(log.committer.placer.write_point.number + 1)] = volume.seen.pop(
        spare_name(CARRIER)
    )
    log = PlainLog(MemoryDisk(volume.copy()))
    assert log.committer.placer.spares.carrier is not None
    assert log.committer.full
    assert not log.report.damage


@pytest.mark.parametrize("times", [1, 2])
def test_one_of_another_size_than_segments_gives_its_space_back(times: int) -> None:
    volume = spacious()
    carrying(volume).close()
    volume.capacity_bytes = volume.used_bytes
    assert spare_name(CARRIER) in volume.seen
    log = PlainLog(MemoryDisk(volume), replace(SMALL, segment_bytes=times * SMALL.segment_bytes))
    assert (log.committer.placer.spares.carrier is not None) == (times == 1)
    assert (spare_name(CARRIER) in volume.seen) == (times == 1)


def test_the_place_of_a_segment_that_was_removed_is_first_the_carriers() -> None:
    """Found: a small spare took part of it, or publishes got it as the next segment."""
    volume = spacious()
    log = carrying(volume)
    placer = log.committer.placer
    write_all(log, carried(1))
    first, *_ = log.store.segments
    have_small(placer, placer.spares.small[0])
    volume.capacity_bytes = volume.used_bytes + 8
    assert [one.number for one in placer.wanted_spares()] == [NEW, CARRIER]
    log.store.segments.remove([first])
    remove(log.store, first.number)
    with pytest.raises(StoreFull):
        log.store.make_spare(placer.wanted_spares()[0])
    with pytest.raises(StoreFull):
        log.store.make_segment(
            placer.write_point.number + 1, carrier_missing=placer.carrier_missing
        )
    placer.spares.add(log.store.make_spare(placer.wanted_spares()[1]))
    assert placer.spares.carrier is not None
    assert not log.store.place_vacant
    volume.capacity_bytes += SMALL.segment_bytes
    make_spares(log)
    assert len(placer.spares.small) == SPARES


@pytest.mark.parametrize("needed", [False, True])
def test_a_snapshot_leaves_a_segment_that_nothing_needs(needed: bool) -> None:
    """So that it is free. Not where something in it is needed, nor where there is room for much more."""
    log = carrying(spacious())
    placer, segments = log.committer.placer, log.store.segments
    snapshot = definitions("x" * 200)._replace(snapshot=True)
    last = segments.last
    assert last is not None
    if needed:
        last.references = 1
    assert log.committer.segment_spent == (not needed)
    spares = len(placer.spares.small)
    log.write(snapshot)
    assert (segments.last is last) == needed
    assert last.sealed == (not needed)
    assert len(placer.spares.small) == spares - (not needed)
    assert not log.committer.segment_spent
    log.write(snapshot)
    assert len(placer.spares.small) == spares - (not needed)


def test_letters_without_acks_are_publishes() -> None:
    log = carrying(spacious())
    log.committer.placer.backlog.many_letters = True
    with pytest.raises(StoreFull):
        log.write(Draft(Kind.PUBLISH, bytes(200)))
    assert log.committer.placer.spares.carrier is not None


@pytest.mark.parametrize(
    ("at", "capacity_bytes", "spare_bytes", "leaves"),
    [
        (3000, 4096, 2048, True),
        (2048, 4096, 2048, False),
        (1400, 1600, 2048, False),
        (1400, 2048, 2048, True),
        (3000, 4096, 400, False),
    ],
)
def test_a_segment_is_left_only_where_little_fits_and_there_is_a_spare(
    at: int, capacity_bytes: int, spare_bytes: int, leaves: bool
) -> None:
    """Nor a spare: a snapshot in it would be followed by another one, for ever."""
    point = WritePoint(3, 1, at, capacity_bytes, 7)
    placer = Placer(SMALL, point, Segments(), ahead_ready=False, spares=[Spare(1, spare_bytes)])
    placer.keep_for_snapshot(SNAPSHOT_BYTES)
    assert not placer.can_leave
    placer.ahead = AheadState.REFUSED
    assert placer.can_leave == leaves


def test_a_snapshot_that_fits_no_spare_stays_in_its_segment() -> None:
    log = carrying(spacious())
    have_small(log.committer.placer, Spare(1, 200), Spare(2, 400))
    log.committer.placer.keep_for_snapshot(100)
    assert log.committer.segment_spent
    last = log.store.segments.last
    log.write(definitions("x" * 300)._replace(snapshot=True))
    assert log.store.segments.last is last


def test_a_small_spare_takes_what_no_segment_fits() -> None:
    """Although one was removed: others have taken its place."""
    volume = room()
    log = opened(volume)
    fill(log)
    placer = log.committer.placer
    have_small(placer, placer.spares.small[0])
    log.store.place_vacant = True
    volume.capacity_bytes = volume.used_bytes + SMALL.segment_bytes // 2
    placer.spares.add(log.store.make_spare(placer.wanted_spares()[0]))
    assert len(placer.spares.small) == SPARES


def test_of_unequal_spares_a_snapshot_takes_the_largest() -> None:
    """Found: it was given the first one, which did not take all of it."""
    volume = spacious()
    log = carrying(volume)
    volume.capacity_bytes += SMALL.segment_bytes
    small, large = sorted(log.committer.placer.spares.small)
    have_small(
        log.committer.placer,
        small,
        log.store.make_spare(large._replace(size_bytes=2048)),
    )
    log.write(*[definitions("x" * 500)._replace(snapshot=True)] * 3)
    assert log.committer.placer.spares.small == [small]


def test_a_commit_that_is_carried_out_again_takes_no_other_carrier() -> None:
    """Found: the second one has the first one's number, and its place was taken by it."""
    volume = spacious()
    log = carrying(volume)
    placer = log.committer.placer
    while placer.spares.carrier is not None:
        log.committer.append([carried(1)])
    commit = log.committer.begin(0.0)
    assert commit is not None
    volume.capacity_bytes += 3 * SMALL.segment_bytes
    with pytest.raises(StoreFull):  # Found: it was the one that had been given away.
        log.store.make_spare(Spare(CARRIER, SMALL.segment_bytes))
    log.store.carry_out(commit)
    placer.spares.add(log.store.make_spare(Spare(CARRIER, SMALL.segment_bytes)))
    log.store.carry_out(commit)
    assert spare_name(CARRIER) in volume.seen


def test_a_snapshot_too_large_for_any_spare_takes_the_carrier_but_its_copy_does_not() -> None:
    """Or no ack would be taken any more."""
    log = carrying(spacious())
    placer = log.committer.placer
    have_small(placer, Spare(1, 200), Spare(2, 400))
    write_all(log, acks(7, 0, 1))
    large = definitions("x" * 900)._replace(snapshot=True)
    before = log.store.segments.last
    log.write(large)
    assert placer.spares.carrier is None
    assert log.store.segments.last is not before
    placer.spares.carrier = Spare(CARRIER, SMALL.segment_bytes)
    write_all(log, large._replace(patient=True))
    assert placer.spares.carrier is not None
    log.write(acks(7, 0, 1))


def test_a_carrier_leaves_others_their_part_unless_it_takes_the_place_of_a_segment() -> None:
    volume = spacious()
    log = opened(volume, free_bytes_min=1000)
    wanted = Spare(CARRIER, SMALL.segment_bytes)
    volume.capacity_bytes = volume.used_bytes + SMALL.segment_bytes + 999
    with pytest.raises(StoreFull):
        log.store.make_spare(wanted)
    log.store.place_vacant = True
    assert log.store.make_spare(wanted) == wanted


def test_a_directory_with_the_name_of_the_carrier_is_set_aside(tmp_path: Path) -> None:
    """Found: the store stopped when it made the carrier."""
    name = spare_name(CARRIER)
    PlainLog(RealDisk(tmp_path)).close()
    (tmp_path / name).mkdir()
    (tmp_path / name / "letter").touch()
    log = PlainLog(RealDisk(tmp_path))
    assert log.store.make_spare(Spare(CARRIER, SMALL.segment_bytes)).is_carrier
    log.close()
    assert (tmp_path / name).is_file()
    assert (tmp_path / f"damaged.{name}" / "letter").exists()
