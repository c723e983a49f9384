"""Undoes compaction while a log is copied: records that were carried forward return to their first place.

    read      1 2 3     6 7 8(4) 9(5) 10       4 and 5 were freed, after copies were appended as 8 and 9
    written   1 2 3 4 5 6 7           8        log positions are assigned anew

A moved record names the log position that it had first. In a copy, another record has that position, and a
reader that recognises duplicates by it, as Spark does, would take the moved record for a duplicate of that one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..errors import DurableError
from ..log.bodies import decode_moved
from ..log.record import Buffer, Draft, Kind, Record, Target
from ..vhost.snapshot import strip_start
from .offline import OfflineVhost
from .stored import CachedReader


class Uncompaction:
    """Yields drafts for the copy of one log, which is read once from beginning to end."""

    def __init__(self, offline: OfflineVhost) -> None:
        self._void = offline.replay.ignored_acks
        self._moved = deque(sorted(offline.moved))
        self._reader = CachedReader(offline)
        self._origin = 0
        self._written_targets: set[Target] = set()
        """The targets of the record first at `_origin` that are written already."""

    def drafts(self, records: Iterable[Record]) -> Iterator[Draft]:
        """Yield what to write for the next records.

        Raises:
            RecordDamaged, NotInLog: a moved record cannot be read any more.
            DurableError: a record was moved that only a later release can put back.
        """
        for record in records:
            yield from self._put_back(record.position, ())
            if record.kind != Kind.MOVED and record.position not in self._void:
                definitions = record.kind == Kind.DEFINITIONS
                body = strip_start(record) if definitions else record.body
                yield _draft(record, record.kind, body, record.targets)
            yield from self._put_back(record.position + 1, record.targets)

    def _put_back(self, end: int, present: Collection[Target]) -> Iterator[Draft]:
        """Yield moved records that first stood before log position `end`, except targets `present` there still."""
        while self._moved and self._moved[0][0] < end:
            origin, position = self._moved.popleft()
            if origin != self._origin:
                self._origin, self._written_targets = origin, set(present)
            record = self._reader.record(position)
            # The first copy has all targets that later copies have, if it can be read.
            targets = tuple(one for one in record.targets if one not in self._written_targets)
            if targets:
                self._written_targets.update(targets)
                moved = decode_moved(record)
                # Replay would take a moved record of any other kind for messages.
                if moved.kind not in (Kind.PUBLISH, Kind.CAPTURE):
                    raise DurableError(
                        f"the record at log position {position} was of kind {moved.kind} before it was "
                        "moved; this release does not know that kind: use the release that wrote it"
                    )
                yield _draft(record, moved.kind, bytes(moved.body), targets)


def _draft(record: Record, kind: int, body: Buffer, targets: Sequence[Target]) -> Draft:
    header = record.header
    return Draft(
        kind,
        body,
        targets,
        header.time_us,
        grouped=header.grouped,
        spread=header.spread,
        cut=header.cut,
    )
