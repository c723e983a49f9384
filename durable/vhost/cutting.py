"""What compaction carries forward of a batch or group of which little is left.

    batch              | 0 1 2 3 4 5 6 7 8 9 |      all but 4 are settled
    becomes a group    | lost 4 | 4 | lost 5 |

A lane sees as many messages as before, of the same average size. A batch of the kind `lost`
(mesh/protocol/batch.py), without a topic, takes the place of those that were cut out. That also says that
they are settled, whatever became of the record that had said so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from mesh.protocol.batch import HEADER_BYTES, LOST, Batch, encode_lost

from ..log.record import Buffer
from ..protocol.properties import decode_properties
from ..queues.ranges import Span
from .groups import (
    DISTANCE_END,
    ENTRY_FIELDS,
    FIELD_BYTES,
    SPREAD_KIND,
    Front,
    batches_in,
    is_group,
    pack_group,
    read_front,
)

CUT_RATIO_MAX = 0.75
"""The group is not worth it if it has more than this part of the bytes of the original."""
ENTRY_BYTES = FIELD_BYTES * ENTRY_FIELDS[SPREAD_KIND]
LOST_BYTES = HEADER_BYTES + ENTRY_BYTES


def cut_settled(body: Buffer, settled: Sequence[Span], *, captured: bool) -> bytes | None:
    """Return a group of the same messages, with settled ones cut out where that saves space; None if it is
    not worth it.

    Args:
        settled: ranges of messages, counted from 0; ascending and disjoint.
        captured: whether the batch was published on the mesh; its headers then hold no time to live.
    Raises:
        RemoteProtocolError, Malformed: the body is invalid.
    """
    front = read_front(body) if is_group(body) else _front(Batch(body), captured)
    pieces: list[Batch] = []
    at = 0
    for batch, first in batches_in(body, 0, 0, front.messages):
        end = first + batch.count
        while at < len(settled) and settled[at][1] <= first:
            at += 1
        own: list[Span] = []
        for low, high in islice(settled, at, None):
            if low >= end:
                break
            own.append((max(0, low - first), min(end, high) - first))
        pieces += _pieces(batch, own)
    pieces = _joined(pieces)
    if front.spread and pieces[-1].base_sequence - front.first >= DISTANCE_END:
        return None  # A group cannot express that distance.
    made = pack_group(front._replace(batches=len(pieces)), pieces)
    return made if len(made) <= CUT_RATIO_MAX * len(body) else None


def cut_ranges(body: Buffer) -> list[Span]:
    """Return the messages of a group that were cut out. Raises RemoteProtocolError."""
    batches = batches_in(body, 0, 0, read_front(body).messages)
    return [(first, first + batch.count) for batch, first in batches if batch.kind == LOST]


def _front(batch: Batch, captured: bool) -> Front:
    shared = batch.shared_headers
    ttl_us = decode_properties(shared).ttl_us if shared and not captured else None
    bodies_bytes, first = batch.bodies_bytes, batch.base_sequence
    return Front(1, batch.count, bodies_bytes, batch.epoch, first, ttl_us, batch.publisher)


def _pieces(batch: Batch, settled: Sequence[Span]) -> Iterator[Batch]:
    """Yield what is left of the batch, and `lost` batches for the rest, in order."""
    if batch.kind == LOST or not settled:
        yield batch
        return
    sizes = batch.message_bytes()
    overhead_bytes = batch.size_bytes - sum(sizes)
    at, count = 0, batch.count
    cut_spans: list[Span] = []
    for start, end in settled:
        # One piece becomes two.
        more = overhead_bytes + ENTRY_BYTES if at < start and end < count else 0
        if (start, end) == (0, count):
            more = -overhead_bytes
        if sum(sizes[start:end]) > LOST_BYTES + more:
            cut_spans.append((start, end))
            at = end
    if not cut_spans:
        yield batch
        return
    edges = [0, *chain(*cut_spans), count]
    left = batch.cuts((start, end) for start, end in pairs(edges) if start < end)
    for (start, end), (low, high) in zip(pairs(edges), [*cut_spans, (count, count)], strict=True):
        if start < end:
            yield next(left)
        if low < high:
            yield _lost(batch, batch.base_sequence + low, high - low)


def pairs(edges: Sequence[int]) -> Iterator[Span]:
    """Pair the first with the second, the third with the fourth, and so on."""
    return zip(edges[::2], edges[1::2], strict=True)


def _lost(batch: Batch, first: int, count: int) -> Batch:
    return Batch(encode_lost(batch.publisher, batch.epoch, first, batch.time_us, b"", count))


def _joined(pieces: Iterable[Batch]) -> list[Batch]:
    """Merge `lost` batches that follow each other."""
    joined: list[Batch] = []
    for piece in pieces:
        if joined and joined[-1].kind == piece.kind == LOST:
            last = joined[-1]
            if last.next_sequence == piece.base_sequence:
                joined[-1] = _lost(last, last.base_sequence, last.count + piece.count)
                continue
        joined.append(piece)
    return joined
