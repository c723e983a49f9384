"""Stores that have lost the file `keys`, where a start would read only what is plain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durable.errors import StoreFailed, StoreKeyMissing
from durable.log.checkpoints import END_UNKNOWN, Checkpoints, Root
from durable.log.cipher import Cipher
from durable.log.config import LogConfig
from durable.log.encryption import Encryption, read_cipher
from durable.log.log import open_log
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.record import Draft, Kind, Target
from durable.log.recovery import FindStart, StartPoint
from tests.logs import SMALL, STORE_ID, PlainLog, acks, encryption, inline, publish

KEYS = encryption(encrypt=False)
"""Held, but nothing more is to be encrypted."""
ENCRYPTED = [Draft(Kind.PUBLISH, b"%d" % number, (Target(8, number),)) for number in range(4)]
WIDE = replace(SMALL, segment_bytes=1 << 18)
"""Segments that have several marks."""


def write(
    volume: Volume, *drafts: Draft, use: Encryption | None, config: LogConfig = SMALL
) -> PlainLog:
    """Open, append, close."""
    log = PlainLog(MemoryDisk(volume), config, encryption=use)
    for draft in drafts:
        log.write(draft)
    log.close()
    return log


def contents(volume: Volume) -> dict[int, tuple[int, bytes]]:
    log = PlainLog(MemoryDisk(volume), encryption=KEYS)
    try:
        return log.contents()
    finally:
        log.close()


def half_plain(*before: Draft) -> tuple[Volume, int]:
    """These plain ones, some that are encrypted, and plain ones in several segments; the last log position."""
    volume = Volume()
    write(volume, *before, use=None)
    write(volume, *ENCRYPTED, use=encryption())
    log = write(volume, *[publish(number, 200) for number in range(30)], use=KEYS)
    assert len(log.store.segments) > 2
    return volume, log.committer.end - 1


def without_keys(volume: Volume) -> Volume:
    gone = volume.copy()
    MemoryDisk(gone).unlink("keys")
    return gone


def refused(match: str, volume: Volume, use: Encryption | None, *, start: int | FindStart) -> None:
    """It is not opened, and not touched."""
    before = {name: bytes(file.seen) for name, file in volume.seen.items()}
    with pytest.raises(StoreKeyMissing, match=match):
        PlainLog(MemoryDisk(volume), encryption=use, start=start)
    assert {name: bytes(file.seen) for name, file in volume.seen.items()} == before


@pytest.mark.parametrize("before", [[], [publish(99)]])
def test_they_are_missed_though_there_is_a_checkpoint_from_behind(before: list[Draft]) -> None:
    """Found: it was opened, and each encrypted message counted as damaged, and as settled from then on."""
    volume, last = half_plain(*before)
    cipher = read_cipher(MemoryDisk(volume), STORE_ID, KEYS)
    Checkpoints(MemoryDisk(volume), STORE_ID, lambda: END_UNKNOWN, cipher).write_root(
        Root(last, last, b"")
    )
    gone = without_keys(volume)

    def begin(store_id: bytes, cipher: Cipher | None) -> StartPoint:
        root = Checkpoints(MemoryDisk(gone), store_id, lambda: END_UNKNOWN, cipher).read_root()
        return StartPoint(0 if root is None else root.start)

    for use in (None, KEYS, encryption()):
        refused("keys in .* is gone, .* is encrypted", gone, use, start=begin)
    gone.seen["keys"] = volume.seen["keys"]
    log = PlainLog(MemoryDisk(gone), encryption=KEYS, start=begin)
    assert log.report.records < 10, "and with them a start reads the end only"
    assert log.contents() == contents(volume)


def test_the_first_record_of_a_segment_that_is_not_read_is_looked_at() -> None:
    """The root may be of software that wrote it in the plain."""
    volume, last = half_plain()
    gone = without_keys(volume)
    refused("keys in .* is gone, .* position 1 is encrypted", gone, None, start=last)


def test_so_is_that_of_a_segment_that_is_read_in_part() -> None:
    volume = Volume()
    write(volume, *ENCRYPTED, use=encryption(), config=WIDE)
    drafts = [publish(number, 1500) for number in range(100)]
    log = write(volume, *drafts, use=KEYS, config=WIDE)
    begin = StartPoint(100, range(0), log.store.segments.encoded_marks(100))
    gone = without_keys(volume)
    refused("keys in .* is gone, .* position 1 is encrypted", gone, None, start=lambda *_: begin)
    log = PlainLog(MemoryDisk(volume), WIDE, encryption=KEYS, start=lambda *_: begin)
    assert log.report.bytes_read < 100_000, "and with them it is read in part"


async def test_what_is_encrypted_is_not_taken_for_damage_by_whoever_reads_it() -> None:
    """Found: it was settled as damaged, and stayed lost when the keys were there again."""
    volume, last = half_plain(publish(99))
    gone = without_keys(volume)
    async with open_log(MemoryDisk(gone), SMALL, start=last, in_thread=inline) as log:
        assert [one.position for one in await log.read(last, 1)] == [last]
        with pytest.raises(StoreFailed, match=r"log position 2 is encrypted, .* keys is gone"):
            await log.read(2, 1000)
        with pytest.raises(StoreFailed):
            log.append_nowait([acks(8, 0, 1)])
    gone.seen["keys"] = volume.seen["keys"]
    assert contents(gone) == contents(volume)
