"""The messages in a log that no broker has open."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mesh.errors import RemoteProtocolError
from mesh.message import NO_HEADERS, decode_headers
from mesh.protocol.batch import Batch

from ..errors import DurableError, Malformed
from ..log.bodies import batch_bytes
from ..log.reader import READ_BYTES
from ..log.record import Record
from ..protocol.properties import Properties, decode_properties
from ..queues.lane import Lane
from ..queues.queue import Queue
from ..queues.runs import Run
from ..vhost.groups import batches_in
from ..vhost.stream import Stream
from .offline import OfflineVhost

READS_KEPT_MAX = 4
"""How many reads are kept, each of neighbouring records. Records are read at several places in turn: of a record that
compaction carried forward twice, one copy is far from the other."""


class Message(NamedTuple):
    """One message of a queue or stream."""

    position: int
    lane: int
    sequence: int
    key: str
    exchange: str
    priority: int
    returned: int
    """How often it was returned by a consumer."""
    time_us: int
    headers: Mapping[str, Any]
    payload: bytes


def messages(offline: OfflineVhost, member: Queue | Stream) -> Iterator[Message | int]:
    """Yield unsettled messages, highest priority first; an int stands for so many that cannot be read."""
    if isinstance(member, Stream):
        yield from _lane_messages(offline, member.lane, [(member.start, member.end)])
        return
    for lane in sorted(member.lanes, key=lambda one: -one.id):
        yield from _lane_messages(offline, lane, lane.ready_ranges())


def _lane_messages(
    offline: OfflineVhost, lane: Lane, ranges: list[tuple[int, int]]
) -> Iterator[Message | int]:
    read = CachedReader(offline)
    for low, high in ranges:
        for run in lane.index.runs(low, high):
            start, end = max(low, run.first), min(high, run.first + run.count)
            if start >= end:
                continue
            try:
                for batch, first in read.batches(run, start, end):
                    wanted = range(max(start, first), min(end, first + batch.count))
                    yield from _batch_messages(batch, lane, run.position, first, wanted)
                    start = wanted.stop
            except (DurableError, RemoteProtocolError):
                yield end - start


def _batch_messages(
    batch: Batch, lane: Lane, position: int, first: int, sequences: range
) -> Iterator[Message]:
    try:
        properties = decode_properties(batch.shared_headers)
    except Malformed:  # A captured message has whatever headers its publisher gave it on the mesh.
        properties = Properties("")
    column, payloads = batch.message_headers(), batch.payloads
    returned = {
        sequence: times
        for low, high, times in lane.returns_between(sequences.start, sequences.stop)
        for sequence in range(low, high)
    }
    for sequence in sequences:
        index = sequence - first
        yield Message(
            position, lane.id, sequence, batch.topic, properties.exchange,
            properties.priority, returned.get(sequence, 0), batch.time_us,
            NO_HEADERS if column is None else decode_headers(column[index]), payloads[index],
        )  # fmt: skip


class CachedReader:
    """Reads records by position, many at once, since neighbours are usually wanted next, at a few places in turn."""

    def __init__(self, offline: OfflineVhost) -> None:
        self._offline = offline
        self._reads: deque[dict[int, Record]] = deque(maxlen=READS_KEPT_MAX)

    def batches(self, run: Run, start: int, end: int) -> list[tuple[Batch, int]]:
        """As `batches_in`. Raises DurableError or RemoteProtocolError if the record cannot be read."""
        body = batch_bytes(self.record(run.position))
        return batches_in(body, run.first, start, end)

    def record(self, position: int) -> Record:
        """Return a record. Raises RecordDamaged or NotInLog if it cannot be read."""
        for records in self._reads:
            if position in records:
                return records[position]
        reader, end = self._offline.store.reader, self._offline.end
        some = {one.position: one for one in reader.read_some(position, end, READ_BYTES)}
        self._reads.append(some)
        return some.get(position) or reader.record(position, end)
