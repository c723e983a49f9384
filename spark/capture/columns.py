"""Converts records to Arrow: columns of whole chunks at once, without work per message.

    records   topic, exchange, publisher, epoch, times      one value each
    runs      queue, partition, first offset                a record once per lane that wants it
    rows      value, headers, offset, sequence              the messages of each run

Values of a record or run are repeated for its rows only at the very end, so filters by topic, time and
lane cost nothing per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import mul

import numpy as np
import pyarrow as pa

from durable.log.scan import Damaged
from mesh.times import FIRST_US, LAST_US

from .batches import Records
from .gather import Ints, Numbers, concat_ranges
from .headers import header_lists, no_headers
from .plan import Carried, LaneTable, Times
from .rows import TIME
from .runs import Runs, find_runs
from .segment import Chunk

TABLE_BYTES_MAX = 16 << 20
"""Limit of the rows built at once: a record that went to a thousand queues makes a thousand times as many rows."""
ROW_BYTES = 128
"""Estimate of what a row takes besides its value."""
TOPICS_CACHED_MAX = 1 << 16
"""How many topics are remembered with whether they are wanted."""
LONG_RUN = 16
"""From so many rows per run on, it is faster to copy whole runs."""
Accepts = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class RowSpec:
    """What is to become rows, besides the lanes, and how."""

    schema: pa.Schema
    times: Times
    accepts: Accepts | None
    """Tells whether messages of a topic are wanted; None: all of them."""
    rows_max: int
    """Most rows in one Arrow batch."""


class Tables:
    """Makes Arrow batches of chunks, for one task."""

    def __init__(self, spec: RowSpec, lanes: LaneTable) -> None:
        self._spec, self._lanes = spec, lanes
        self._topic_cache: dict[str, bool] = {}

    def batches(self, chunk: Chunk, carried: Carried | None) -> Iterator[pa.RecordBatch | Damaged]:
        """Yield all wanted rows of a chunk, and Damaged for each record that holds no valid batch of messages."""
        records = Records(chunk, np.arange(len(chunk.at)))
        valid = records.valid_batches()
        if not valid.all():
            for one in np.flatnonzero(~valid):
                at = chunk.segment_at + int(chunk.at[one])
                yield Damaged(at, at + int(records.total_bytes[one]))
            records = records.pick(valid)
        low, high = self._spec.times
        in_time = (records.time_us >= low) & (records.time_us < high)
        if not in_time.all():
            records = records.pick(in_time)
        if self._spec.accepts is not None and len(records):
            records = records.pick(self._accepted(records.topics()))
        runs = find_runs(records, self._lanes, carried)
        for some in _slices(records, runs):
            table = self._table(records, some)
            for at in range(0, table.num_rows, self._spec.rows_max):
                yield table.slice(at, self._spec.rows_max)

    def damaged_row(self, data: bytes) -> pa.RecordBatch:
        """Return a row in which all is null except the value."""
        schema = self._spec.schema
        columns = [pa.array([data if one.name == "value" else None], one.type) for one in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _accepted(self, topics: pa.Array) -> Numbers:
        accepts, cache = self._spec.accepts, self._topic_cache
        assert accepts is not None, "asked for only then"
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(cache) > TOPICS_CACHED_MAX:
            cache.clear()
        for one in names:
            if one not in cache:
                cache[one] = accepts(one)
        accepted: Numbers = np.array([cache[one] for one in names], bool)
        found: Numbers = accepted[encoded.indices.to_numpy()]
        return found

    def _table(self, records: Records, runs: Runs) -> pa.RecordBatch:
        # Pick the records of these runs, each once and in order.
        is_new = np.append(True, runs.record[1:] != runs.record[:-1])
        records = records.pick(runs.record[is_new])
        record = np.cumsum(is_new) - 1
        messages = runs.high - runs.low
        # Which of the records' messages become rows; None: all of them, in order.
        rows = None
        if not is_new.all() or (messages != records.messages).any():
            rows = pa.array(concat_ranges(records.row_start[record] + runs.low, messages))
        repeat = _Repeat(messages)
        builders: dict[str, Callable[[], pa.Array]] = {
            "queue": lambda: repeat.texts(runs.queues()),
            "partition": lambda: repeat.numbers(runs.partition, pa.int32()),
            "offset": lambda: pa.array(concat_ranges(runs.first + runs.low, messages)),
            "timestamp": lambda: repeat.numbers(records.time_us[record], TIME),
            "exchange": lambda: repeat.texts(records.exchanges().take(pa.array(record))),
            "topic": lambda: repeat.texts(records.topics().take(pa.array(record))),
            "value": lambda: _take_rows(records.values(), rows),
            "publisher": lambda: repeat.texts(records.publishers().take(pa.array(record))),
            "epoch": lambda: repeat.numbers(records.epoch[record], pa.int64()),
            "sequence": lambda: pa.array(
                concat_ranges(records.sequence[record] + runs.low, messages)
            ),
            "published": lambda: repeat.numbers(
                records.published_us[record].clip(FIRST_US, LAST_US), TIME
            ),
            "headers": lambda: _headers(records, rows),
        }
        schema = self._spec.schema
        return pa.RecordBatch.from_arrays(
            [builders[name]() for name in schema.names], schema=schema
        )


def _slices(records: Records, runs: Runs) -> Iterator[Runs]:
    """Yield as many runs at a time as keep their rows below TABLE_BYTES_MAX, at least one."""
    sizes = np.cumsum((records.size_bytes + ROW_BYTES * records.messages)[runs.record])
    start = 0
    while start < len(sizes):
        before = int(sizes[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(sizes, before + TABLE_BYTES_MAX)))
        yield runs.pick(np.arange(start, min(stop, len(sizes))))
        start = stop


class _Repeat:
    """Repeats one value per run for each of the run's rows."""

    def __init__(self, messages: Ints) -> None:
        self._messages = messages
        self.rows = int(messages.sum())

    def numbers(self, values: Numbers, kind: pa.DataType) -> pa.Array:
        width = np.int32 if kind == pa.int32() else np.int64
        repeated = np.repeat(values.astype(width), self._messages)
        return pa.Array.from_buffers(kind, self.rows, [None, pa.py_buffer(repeated)])

    def texts(self, values: pa.Array) -> pa.Array:
        """Repeat text or bytes."""
        if len(values) == 1:
            return pa.repeat(values[0], self.rows)
        if self.rows < LONG_RUN * len(values):
            runs = np.repeat(np.arange(len(values)), self._messages)
            return values.take(pa.array(runs))
        # Few values with many rows each: copying whole runs is five times faster.
        raw = values.cast(pa.binary()).to_pylist()
        lengths = np.repeat(np.fromiter(map(len, raw), np.int64, len(raw)), self._messages)
        offsets = np.zeros(self.rows + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        data = b"".join(map(mul, raw, self._messages.tolist()))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(values.type, self.rows, buffers)


def _take_rows(values: pa.Array, rows: pa.Array | None) -> pa.Array:
    return values if rows is None else values.take(rows)


def _headers(records: Records, rows: pa.Array | None) -> pa.Array:
    raw = records.raw_headers()
    if raw is None:
        return no_headers(records.rows if rows is None else len(rows))
    return header_lists(_take_rows(raw, rows))
