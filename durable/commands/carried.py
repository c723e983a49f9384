"""A log without what compaction did to it: what was carried forward stands at its place again.

    read      1 2 3     6 7 8(4) 9(5) 10       4 and 5 were freed, and moved before that
    written   1 2 3 4 5 6 7           8        log positions anew

A moved record names the log position that it had first. Copied as it is, that would be another record's,
and who tells by it what stands twice, as Spark does, would take the copy for one of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..errors import DurableError
from ..log.bodies import decode_moved
from ..log.record import Buffer, Draft, Kind, Record, Target
from ..vhost.snapshot import placeless
from .offline import Offline
from .stored import Reading


class Carried:
    """Of one log, which is read once from its beginning to its end."""

    def __init__(self, offline: Offline) -> None:
        self._void = offline.replay.void
        self._moved = deque(sorted(offline.moved))
        self._reading = Reading(offline)
        self._origin = 0
        self._known: set[Target] = set()
        """What of the record that had this log position first is written already."""

    def drafts(self, records: Iterable[Record]) -> Iterator[Draft]:
        """What is to be written of the next records.

        Raises:
            RecordDamaged, NotInLog: one was moved, and cannot be read any more.
            DurableError: one was moved that only a later release can put back.
        """
        for record in records:
            yield from self._put_back(record.position, ())
            if record.kind != Kind.MOVED and record.position not in self._void:
                definitions = record.kind == Kind.DEFINITIONS
                body = placeless(record) if definitions else record.body
                yield _draft(record, record.kind, body, record.targets)
            yield from self._put_back(record.position + 1, record.targets)

    def _put_back(self, end: int, standing: Collection[Target]) -> Iterator[Draft]:
        """What stood before log position `end`, but for what is `standing` there."""
        while self._moved and self._moved[0][0] < end:
            origin, position = self._moved.popleft()
            if origin != self._origin:
                self._origin, self._known = origin, set(standing)
            record = self._reading.record(position)
            # The first copy has all that the later ones have, if it can be read.
            targets = tuple(one for one in record.targets if one not in self._known)
            if targets:
                self._known.update(targets)
                moved = decode_moved(record)
                if moved.kind not in (Kind.PUBLISH, Kind.CAPTURE):  # Moved, it counts as messages.
                    raise DurableError(
                        f"the record at log position {position} was of kind {moved.kind} before it was "
                        "moved, which this release does not know: use the one that wrote it"
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
