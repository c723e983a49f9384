"""Contents of records that are read together, in columns: a start applies thousands of them at once.

    Series ──┬──> messages ──┬──> publishers: ranges of sequences
             │               └──> lanes: arrivals
             └──> acks ─────────> lanes: ranges that are settled

For a series that is not as simple as most, the functions here return None, and the caller reads its records
one by one. Topics are not checked, as those in groups are not: invalid ones were refused when published.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from operator import add, lt
from typing import NamedTuple

from mesh.errors import RemoteProtocolError
from mesh.protocol import batch

from ..errors import DurableError, RecordDamaged
from ..log.bodies import What, acks_bytes, decode_acks
from ..log.column import leading_constant, leading_rising
from ..log.record import Kind
from ..log.series import HEADER_WORDS, LENGTHS, POSITION, TARGETS, TIME, WORD_BYTES, Series
from ..protocol.properties import decode_properties
from ..queues.arrivals import Arrivals
from ..queues.block import LIMIT
from ..queues.expiries import expiries_us
from .groups import merged

_FRONT, _TOTAL, _COUNT, _EPOCH, _SEQUENCE, _, *_ID = range(batch.HEADER_BYTES // WORD_BYTES)
"""Numbers of the words of a batch. The high half of _COUNT is the length of the shared headers."""
_TOPIC_BITS = 48
"""Low bits of _FRONT; the bits above them are the length of the topic."""
_PLAIN = batch.MAGIC | batch.VERSION << 16 | batch.MESSAGES << 24
"""The low bits of _FRONT in a batch of messages without headers of their own."""
_ONE_SETTLED = 1 | What.SETTLED << 32
"""The word behind the lane in an acks block with one range, which is settled."""
_INVALID_ERRORS = (RemoteProtocolError, DurableError, LookupError, TypeError, ValueError)

SettledRanges = dict[int, list[tuple[int, int]]]
"""Ranges of sequences by lane."""


class Published(NamedTuple):
    """Sequences [`first`, `end`) of a publisher."""

    publisher: bytes
    epoch: int
    first: int
    end: int


class Messages:
    """The messages of records with one batch each. Made by `read_messages`."""

    def __init__(
        self, series: Series, at: int, counts: list[int], sizes_bytes: list[int], *, uniform: bool
    ) -> None:  # fmt: skip
        """
        Args:
            at: the word at which batches begin.
            uniform: whether all counts and sizes are the same.
        Raises:
            RemoteProtocolError, ValueError: shared headers are invalid.
        """
        self._series, self._batch_word = series, at
        self._counts, self._sizes_bytes, self._uniform = counts, sizes_bytes, uniform
        self._captured = series.header.kind == Kind.CAPTURE
        self._times_us = series.column(TIME).tolist()
        self._expires_us = self._expiries()

    def _word(self, index: int) -> array[int]:
        """Return this word of each batch."""
        return self._series.column(self._batch_word + index)

    def _expiries(self) -> list[int] | None:
        lengths = self._series.highs(self._batch_word + _COUNT)
        # The headers of a captured batch come from the mesh and are not properties of ours.
        if self._captured or lengths == array("I", bytes(lengths.itemsize * len(lengths))):
            return None
        begin = WORD_BYTES * self._batch_word + batch.HEADER_BYTES
        fronts = self._word(_FRONT)
        some = fronts[:1] if _is_constant(fronts) else fronts
        starts = [begin + (front >> _TOPIC_BITS) for front in some] * (len(fronts) // len(some))
        headers = self._series.slices(starts, lengths)
        ttls_us = {one: decode_properties(one).ttl_us if one else None for one in set(headers)}
        if all(ttl_us is None for ttl_us in ttls_us.values()):
            return None
        expires_us = expiries_us(self._times_us, headers, ttls_us)
        if max(expires_us) >= LIMIT:
            raise ValueError("messages expire later than any broker allows")
        return expires_us

    def published(self) -> Iterator[Published]:
        """Yield the sequences of each publisher, ascending; nothing for captured messages."""
        if self._captured:
            return
        epochs, firsts, *ids = map(self._word, (_EPOCH, _SEQUENCE, *_ID))
        if all(map(_is_constant, (epochs, *ids))) and _is_contiguous(
            firsts, self._counts, uniform=self._uniform
        ):
            yield _published(
                ids[0][0], ids[1][0], epochs[0], firsts[0], firsts[-1] + self._counts[-1]
            )
            return
        spans: dict[tuple[int, ...], list[int]] = {}
        publishers = list(zip(*ids, epochs, strict=True))
        for publisher, first, count in zip(publishers, firsts, self._counts, strict=True):
            span = spans.get(publisher)
            if span is None:
                spans[publisher] = [first, first + count]
            elif span[-1] == first:
                span[-1] += count
            else:
                span += first, first + count
        # As when read one by one, the publisher of the last record has to count as most recently used.
        for publisher in reversed(dict.fromkeys(reversed(publishers))):
            id_head, id_tail, epoch = publisher
            span = spans[publisher]
            for first, end in zip(span[::2], span[1::2], strict=True):
                yield _published(id_head, id_tail, epoch, first, end)

    def arrivals(self) -> Iterator[tuple[int, Arrivals]]:
        """Yield arrivals by lane; those of one lane in order."""
        positions = self._series.column(POSITION)
        for target in range(self._series.header.target_count):
            at = HEADER_WORDS + 2 * target
            lanes, firsts = self._series.column(at), self._series.column(at + 1)
            everything = Arrivals(
                firsts,
                self._counts,
                positions,
                self._sizes_bytes,
                self._times_us,
                self._expires_us,
                self._uniform,
            )
            if _is_constant(lanes):
                yield from _in_order(lanes[0], everything)
                continue
            by_lane: dict[int, list[int]] = {}
            for index, lane in enumerate(lanes):
                by_lane.setdefault(lane, []).append(index)
            for lane, indices in by_lane.items():
                yield from _in_order(lane, _pick(everything, indices))


def read_messages(series: Series) -> Messages | None:
    """Read a series of message records. None: they have to be read one by one."""
    targets, bodies = series.lows(TARGETS), series.highs(LENGTHS)
    shortest = bodies[0] if series.one_size else min(bodies)
    if not _is_constant(targets) or shortest < batch.HEADER_BYTES:
        return None
    at = HEADER_WORDS + 2 * targets[0]
    if targets[0] > 1 and _is_shared(series, targets[0]):
        return None
    numbers = [POSITION, TIME, *range(HEADER_WORDS + 1, at, 2)]
    if not all(series.column(word).tobytes()[7::8].isascii() for word in numbers):
        return None  # A number of 2^63 or more: no broker writes such times or numbers.
    columns = [
        bodies, series.column(at + _FRONT), series.lows(at + _TOTAL), series.lows(at + _COUNT),
        series.highs(at + _COUNT),
    ]  # fmt: skip
    if series.one_size and all(map(_is_constant, columns)):
        columns = [column[:1] for column in columns]
    bodies, fronts, totals, each_count, each_headers = columns
    rest = 1 << _TOPIC_BITS
    if totals != bodies or any(front % rest != _PLAIN for front in set(fronts)):
        return None
    counts = each_count.tolist()
    sizes_bytes = [
        body - batch.HEADER_BYTES - (front >> _TOPIC_BITS) - headers - 4 * count
        for body, front, headers, count in zip(bodies, fronts, each_headers, counts, strict=True)
    ]
    if min(sizes_bytes) < 0 or not 0 < min(counts) <= max(counts) <= batch.COUNT_MAX:
        return None
    times = series.count // len(counts)
    uniform = _all_equal(counts) and _all_equal(sizes_bytes)
    try:
        return Messages(series, at, counts * times, sizes_bytes * times, uniform=uniform)
    except _INVALID_ERRORS:  # Reading them one by one will report which record is invalid.
        return None


def _is_shared(series: Series, targets: int) -> bool:
    """Whether a lane is a target at several places. Arrivals are made place by place, so those of such a lane
    would be out of order."""
    lanes = [set(series.column(HEADER_WORDS + 2 * target)) for target in range(targets)]
    return sum(map(len, lanes)) > len(set().union(*lanes))


def read_acks(series: Series) -> SettledRanges | None:
    """Read a series of acks. None: they have to be read one by one, because they say more than what is
    settled, or are invalid."""
    uniform = _is_constant(series.column(LENGTHS)) and not any(series.lows(TARGETS))
    one_range = uniform and series.header.body_bytes == acks_bytes(1)
    settled = _one_range_each(series) if one_range else _decode_each(series)
    if settled is None:
        return None
    return {lane: merged(ranges) for lane, ranges in settled.items()}


def _one_range_each(series: Series) -> SettledRanges | None:
    lanes, whats, starts, ends = (series.column(HEADER_WORDS + word) for word in range(4))
    if whats.count(_ONE_SETTLED) < len(whats) or not all(map(lt, starts, ends)):
        return None
    if _is_constant(lanes) and starts[1:] == ends[:-1]:
        return {lanes[0]: [(starts[0], ends[-1])]}
    settled: SettledRanges = {}
    for lane, start, end in zip(lanes, starts, ends, strict=True):
        settled.setdefault(lane, []).append((start, end))
    return settled


def _decode_each(series: Series) -> SettledRanges | None:
    settled: SettledRanges = {}
    try:
        for record in series.records():
            for lane, ranges, what, _ in decode_acks(record):
                if what != What.SETTLED:
                    return None
                settled.setdefault(lane, []).extend(ranges)
    except RecordDamaged:
        return None
    return settled


def _in_order(lane: int, arrivals: Arrivals) -> Iterator[tuple[int, Arrivals]]:
    """Yield the arrivals together if their sequences have no gaps; else one by one."""
    if _is_contiguous(arrivals.firsts, arrivals.counts, uniform=arrivals.is_uniform):
        yield lane, arrivals
    else:
        for at in range(len(arrivals.firsts)):
            yield lane, _pick(arrivals, [at])


def _pick(arrivals: Arrivals, indices: list[int]) -> Arrivals:
    firsts, counts, positions, sizes_bytes, times_us, expires_us, uniform = arrivals
    return Arrivals(
        array("Q", [firsts[at] for at in indices]), [counts[at] for at in indices],
        array("Q", [positions[at] for at in indices]), [sizes_bytes[at] for at in indices],
        [times_us[at] for at in indices], expires_us and [expires_us[at] for at in indices],
        uniform,
    )  # fmt: skip


def _all_equal(numbers: list[int]) -> bool:
    return numbers.count(numbers[0]) == len(numbers)


def _is_constant(column: array[int]) -> bool:
    return leading_constant(column) == len(column)


def _is_contiguous(firsts: array[int], counts: list[int], *, uniform: bool) -> bool:
    """Whether ranges that begin at `firsts`, with so many numbers each, leave nothing out between them."""
    if uniform:
        return leading_rising(firsts, counts[0]) == len(firsts)
    return firsts[1:].tolist() == [*map(add, firsts, counts)][:-1]


def _published(id_head: int, id_tail: int, epoch: int, first: int, end: int) -> Published:
    publisher = b"".join(half.to_bytes(WORD_BYTES, "little") for half in (id_head, id_tail))
    return Published(publisher, epoch, first, end)
