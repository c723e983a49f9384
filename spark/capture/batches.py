"""The batches in a chunk, as arrays with one item per batch; see mesh/protocol/batch.py for their bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from durable.errors import Malformed
from durable.protocol.properties import decode_properties
from mesh.protocol.batch import COUNT_MAX, FLAG_HEADERS, MAGIC, MESSAGES, VERSION
from mesh.protocol.batch import HEADER_BYTES as BATCH_BYTES

from .fields import field
from .gather import Bytes, Ints, Numbers, concat_ranges, joined, numbers, spans
from .segment import Chunk

FRONT = MAGIC | VERSION << 16 | MESSAGES << 24


class Records:
    """The batches of a chunk with these `indices`, in order, each with the header of its record."""

    def __init__(self, chunk: Chunk, indices: Ints) -> None:
        self.chunk, self._indices = chunk, indices
        self._buffer: Bytes = np.frombuffer(chunk.bodies, np.uint8)
        self.at, self.messages_before = chunk.at[indices], chunk.messages_before[indices]
        self._body, self._end = chunk.body_at[indices], chunk.body_end[indices]
        self.headers: Bytes = np.frombuffer(chunk.headers, np.uint8)
        self.size_bytes = self._end - self._body

    def __len__(self) -> int:
        return len(self.at)

    def pick(self, which: Numbers) -> Records:
        """Select some, by mask or by index."""
        return Records(self.chunk, self._indices[which])

    def valid_batches(self) -> Numbers:
        """Return which ones are batches of messages whose lengths add up. Other properties are valid only for those."""
        valid: Numbers = self._end - self._body >= BATCH_BYTES
        records = self.pick(valid)
        end, messages = records._end, records.messages
        fits = (
            (records._field(0, "<u4") == FRONT)
            & (records._field(8, "<u4") == end - records._body)
            & (messages > 0) & (messages <= COUNT_MAX)
            & (records._lengths_at + 4 * messages * records._columns <= end)
        )  # fmt: skip
        records = records.pick(fits)
        fits[fits] = records._values_at + records._sums(records._lengths) == records._end
        valid[valid] = fits
        return valid

    def _field(self, at: int, dtype: str) -> Numbers:
        return numbers(self._buffer, self._body + at, dtype)

    @property
    def messages(self) -> Ints:
        return self._field(16, "<u4").astype(np.int64)

    @property
    def rows(self) -> int:
        return int(self.messages.sum())

    @property
    def row_start(self) -> Ints:
        """The index of each batch's first row."""
        messages = self.messages
        return np.cumsum(messages) - messages

    @property
    def total_bytes(self) -> Ints:
        """How many bytes each record takes in its segment."""
        return field(self.headers, self.at, "total_bytes").astype(np.int64)

    @property
    def time_us(self) -> Ints:
        """When each record was stored."""
        return field(self.headers, self.at, "time_us")

    @property
    def epoch(self) -> Ints:
        return self._field(24, "<i8")

    @property
    def sequence(self) -> Ints:
        """The sequence of each batch's first message."""
        return self._field(32, "<i8")

    @property
    def published_us(self) -> Ints:
        return self._field(40, "<i8")

    def publishers(self) -> pa.Array:
        return spans(self.chunk.bodies, self._body + 48, self._body + BATCH_BYTES, pa.binary())

    def topics(self) -> pa.Array:
        return spans(self.chunk.bodies, self._body + BATCH_BYTES, self._topic_end, pa.string())

    def exchanges(self) -> pa.Array:
        shared = spans(self.chunk.bodies, self._topic_end, self._lengths_at, pa.binary())
        encoded = shared.dictionary_encode()
        names = [_exchange(one) for one in encoded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(encoded.indices)

    def values(self) -> pa.Array:
        """The payload of each row."""
        return self._rows(self._values_at, self._end, self._lengths)

    def raw_headers(self) -> pa.Array | None:
        """Return the headers of each row, a msgpack map or empty; None if no row has any."""
        if (self._columns == 1).all():
            return None
        lengths = np.zeros(self.rows, np.int64)
        lengths[np.repeat(self._columns == 2, self.messages)] = self._header_lengths
        return self._rows(self._headers_at, self._values_at, lengths)

    def _rows(self, start: Ints, end: Ints, lengths: Ints) -> pa.Array:
        """Return the values in [start, end) of each record: consecutive, of these lengths."""
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), joined(self.chunk.bodies, start, end)]
        return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)

    @property
    def _topic_end(self) -> Ints:
        return self._body + BATCH_BYTES + self._field(6, "<u2")

    @property
    def _lengths_at(self) -> Ints:
        return self._topic_end + self._field(20, "<u4")

    @property
    def _columns(self) -> Ints:
        """Columns of lengths: 2 if there are headers, otherwise 1."""
        return 1 + (self._field(4, "<u2") & FLAG_HEADERS).astype(np.int64) // FLAG_HEADERS

    @property
    def _lengths(self) -> Ints:
        return self._u32(self._lengths_at, self.messages)

    @property
    def _headers_at(self) -> Ints:
        return self._lengths_at + 4 * self.messages * self._columns

    @property
    def _header_lengths(self) -> Ints:
        """Lengths of the headers, for the rows of batches that have headers."""
        some = self._columns == 2
        return self._u32((self._lengths_at + 4 * self.messages)[some], self.messages[some])

    @property
    def _values_at(self) -> Ints:
        at, some = self._headers_at, self._columns == 2
        if some.any():
            at[some] += self.pick(some)._sums(self._header_lengths)
        return at

    def _u32(self, at: Ints, count: Ints) -> Ints:
        """Return `count` consecutive numbers from each `at` on."""
        # The index of each number within its own column.
        within = concat_ranges(np.zeros_like(count), count)
        return numbers(self._buffer, np.repeat(at, count) + 4 * within, "<u4").astype(np.int64)

    def _sums(self, values: Ints) -> Ints:
        """Add up one number per row for each record."""
        return np.add.reduceat(values, self.row_start) if len(values) else values


def _exchange(shared: bytes) -> str:
    try:
        return decode_properties(shared).exchange
    except Malformed:
        return ""
