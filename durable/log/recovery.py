"""Opens a directory that a crash may have left in any state: valid records stay, and the rest is reported exactly.

    msgs.1   | header | record | record | seal |
    msgs.2   | header | record | ~~~~~~ | record | seal |     damage: a copy is kept, the gap reported
    msgs.3   | header | record | record | ~~~~ 0 0 0 |        torn tail: a copy is kept, then zeros
    msgs.4   | 0 0 0 0 |                                      made ahead, not used yet

Damage never prevents a store from opening. Everything is read first, and nothing is changed by that (verification.py);
then the end is prepared for writing (repair.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import StoreKeyMissing
from .check import Check
from .cipher import Cipher, as_written
from .config import LogConfig
from .disk import Disk
from .encryption import Encryption, ensure_cipher, read_cipher, refuse_encrypted
from .identity import identify
from .placing import WritePoint
from .record import FIRST_POSITION, Buffer
from .repair import Repair
from .report import RecoveryReport
from .scan import WINDOW_BYTES, Decrypt
from .segments import Segments
from .store_keys import KEYS_NAME
from .verification import Verification, Visit


class StartPoint(NamedTuple):
    """What is known before anything is read."""

    start: int
    """The log position from which recovery has to read."""
    known_durable: range = range(0)
    """Log positions that were durable; from the first of them on nothing has been freed."""
    marks: Buffer = b""
    """Marks of the segment with `start`, from `Marks.encode`. Without them that segment is read from its front."""


FindStart = Callable[[bytes, Cipher | None], StartPoint]
"""Called with the store id and the cipher for checkpoints."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state from which a log continues."""

    segments: Segments
    write_point: WritePoint
    chain: int
    ahead_ready: bool
    report: RecoveryReport
    cipher: Cipher | None
    decrypt: Decrypt
    """For all records that are read from now on."""


def recover(
    disk: Disk, config: LogConfig, *, new_store_id: bytes, now_us: int, clock: Callable[[], float],
    start: int | FindStart, visit: Visit | None, encryption: Encryption | None, check: Check,
) -> Recovered:  # fmt: skip
    """Read everything from log position `start` on, verify it, and prepare the end for writing.

    Args:
        disk: must be locked by the caller.
        visit: called with every valid record from `start` on, in order; some come together as a series.
        check: called before each segment; what it raises ends recovery, and nothing has been changed.
    Raises:
        ForeignStore, NewerFormat: the directory is not for us to change.
        StoreKeyMissing, StoreKeyWrong: it cannot be read without another key.
    """
    begun_s = clock()
    # glibc takes new pages for each block larger than any freed so far, as each window would be: so free one now.
    freed = bytes(2 * WINDOW_BYTES)
    del freed
    identity = identify(disk, new_store_id=new_store_id, now_us=now_us)
    cipher = read_cipher(disk, identity.store_id, encryption)
    start_point = StartPoint(start) if isinstance(start, int) else start(identity.store_id, cipher)
    decrypt: Decrypt | None = None if cipher is None else cipher.decrypt
    if encryption is not None and encryption.as_written:
        decrypt = as_written
    # A data key is to be made. If the store had one and lost the file, reading everything finds what is encrypted.
    reads_all = cipher is None and encryption is not None and encryption.wants_key
    verification = Verification(
        disk, identity, 0 if reads_all else start_point.start, start_point.marks,
        visit_start=start_point.start, visit=visit, decrypt=decrypt, check=check,
    )  # fmt: skip
    try:
        found = verification.run()
    except StoreKeyMissing as error:
        what = f"the file {KEYS_NAME} in {disk.path} is gone, and {error.what}"
        raise StoreKeyMissing(what) from error
    # Nothing was changed before this: what cannot be decrypted has been refused by now.
    cipher = ensure_cipher(disk, identity.store_id, cipher, encryption)
    unused = []
    while found and not found[-1].used:
        unused.append(found.pop())
    segments = Segments()
    for segment in (*verification.skipped, *(one.segment for one in found)):
        segments.add(segment)
    for one in found[:-1]:
        # Also without a seal, which may be damaged: nothing more is written to it.
        one.segment.sealed = True
    continuity, repair = verification.continuity, Repair(disk, config)
    found_end = continuity.expected or FIRST_POSITION
    continuity.finish(start_point.known_durable, segments.start or None)
    point = repair.run(found, unused, segments.last, continuity)
    report = RecoveryReport(
        store_id=identity.store_id, formatted=identity.formatted,
        start=segments.start or point.position, end=point.position, found_end=found_end,
        epoch=continuity.epoch + 1, segments=len(segments), records=continuity.records,
        bytes_read=verification.bytes_read, seconds=clock() - begun_s, gaps=tuple(continuity.gaps),
        absent=tuple(continuity.absent), damage=tuple(repair.damage), torn=repair.torn,
        encrypted=cipher is not None and cipher.encrypting,
    )  # fmt: skip
    decrypt = decrypt or (refuse_encrypted if cipher is None else cipher.decrypt)
    chain, ahead_ready = continuity.chain or 0, repair.ahead_ready
    return Recovered(segments, point, chain, ahead_ready, report, cipher, decrypt)
