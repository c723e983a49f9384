"""Converts Arrow batches to what is sent: payloads, headers and addresses, column by column, without work per
row where possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.errors import TooLarge
from mesh.message import encode_headers

from .errors import HeadersTooLarge, MissingValue
from .numbering import Ints
from .options import EXCHANGE, OFFSETS, QUEUES, SKIP, SinkOptions
from .pacing import Times

REPLAYED_FROM, REPLAY_ID = "x-replayed-from", "x-replay-id"
"""Headers of every replayed message: the queue or stream that it was captured in, and the id of the replay."""
HEADERS_BYTES_MAX = 64 * 1024
CACHED_HEADERS_MAX, CACHED_BYTES_MAX = 4096, 1024
"""How many encoded headers are cached, for all queries of a worker; larger ones than this are not."""
Pairs = tuple[tuple[str, Any], ...]


class Address(NamedTuple):
    """Where a message goes, and the queue and partition that it was captured in."""

    exchange: str
    key: str
    queue: str
    partition: int

    @property
    def lane(self) -> str:
        return lane_name(self.queue, self.partition)


def lane_name(queue: str, partition: int) -> str:
    return f"{queue}/{partition}"


class Messages(NamedTuple):
    """The rows of one batch that are to be sent, in order."""

    payloads: list[bytes]
    headers: list[bytes] | None
    addresses: Sequence[Address]
    address_index: Ints
    """For each row, the index of its address."""
    offsets: Ints | None
    times_us: Times
    skipped: int
    """How many rows were left out because they are marked as replayed."""


def read_messages(batch: pa.RecordBatch, options: SinkOptions) -> Messages:
    """Convert a batch. Raises MissingValue, HeadersTooLarge."""
    rows, skipped = batch.num_rows, 0
    lists = _header_lists(batch)
    if lists is not None and options.replays == SKIP:
        marked = _replayed_rows(lists)
        if marked is not None:
            batch = batch.filter(pa.array(~marked))
            lists = _header_lists(batch)
            skipped, rows = rows - batch.num_rows, batch.num_rows
    which, addresses = _addresses(batch, options)
    return Messages(
        payloads=payloads(batch.column("value")),
        headers=_headers(batch, lists, addresses, which, options.id if options.replay else ""),
        addresses=addresses,
        address_index=which,
        offsets=_ints(_non_null_column(batch, "offset")) if options.numbering == OFFSETS else None,
        times_us=_times(batch) if options.speed else np.zeros(rows, np.int64),
        skipped=skipped,
    )


def _addresses(batch: pa.RecordBatch, options: SinkOptions) -> tuple[Ints, list[Address]]:
    """Return for each row the index of its address, and the addresses."""
    needs_lane = options.numbering == OFFSETS or options.replay
    needs_queue = needs_lane or (options.to == QUEUES and options.queue is None)
    queue = _column(batch, "queue", "", needed=needs_queue)
    partition = _column(batch, "partition", 0, needed=needs_lane)
    columns = (*_routes(batch, options, queue), queue, partition)
    which, addresses = _distinct_rows(columns, batch.num_rows)
    return which, [Address(*one) for one in addresses]


def _routes(batch: pa.RecordBatch, options: SinkOptions, queue: Any) -> tuple[Any, Any]:
    """Return exchange and key, each as a column or as one value for all rows."""
    if options.to == QUEUES:
        return "", options.queue or queue
    exchange, key = options.exchange or "", options.topic
    if options.to == EXCHANGE and options.exchange is None:
        exchange = _column(batch, "exchange", "", needed=True)
    if key is None:
        key = _column(batch, "topic", "", needed=True)
    return exchange, key


def _distinct_rows(columns: Sequence[Any], rows: int) -> tuple[Ints, list[list[Any]]]:
    """Return for each row of these columns an index into the distinct ones, and these."""
    code, parts = np.zeros(rows, np.int64), []
    for column in columns:
        found, values = _dictionary_encode(column, rows)
        parts.append(values)
        code = code * len(values) + found
    codes, which = np.unique(code, return_inverse=True)
    sizes = [len(values) for values in parts]
    indices = (index.tolist() for index in np.unravel_index(codes, sizes))
    distinct = [[*map(getitem, parts, one)] for one in zip(*indices, strict=True)]
    return which.astype(np.int64), distinct


def _headers(
    batch: pa.RecordBatch, lists: pa.Array | None, addresses: Sequence[Address], which: Ints,
    replay_id: str,
) -> list[bytes] | None:  # fmt: skip
    """Return the encoded headers of each row; `replay_id` is the id of the replay, if any. Raises HeadersTooLarge."""
    if lists is None or not len(_keys(lists)):
        if not replay_id:
            return None
        packed = [_row_headers((), replay_id, one.queue) for one in addresses]
        found: list[bytes] = np.array(packed, object)[which].tolist()
        return found
    found = []
    try:
        for row, at in zip(lists.to_pylist(), which.tolist(), strict=True):
            found.append(_row_headers(_pairs(row), replay_id, addresses[at].queue))
    except TooLarge as error:
        at = len(found)
        raise HeadersTooLarge(
            _row_label(batch, at, addresses[int(which[at])]), str(error)
        ) from None
    return found


def _row_label(batch: pa.RecordBatch, at: int, address: Address) -> str:
    if "offset" in batch.schema.names:
        return f"offset {batch.column('offset')[at]} of {address.lane}"
    return f"a row of queue {address.queue!r}" if address.queue else "a row"


def payloads(column: pa.Array) -> list[bytes]:
    """Return the values as bytes; null becomes empty."""
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    count = len(column)
    if not count:
        return []
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, count + 1, column.offset * 4)
    first, last = int(ends[0]), int(ends[-1])
    raw = data[first:last].to_pybytes() if data is not None and last > first else b""
    lengths = np.diff(ends)
    size = int(lengths[0])
    if size and (lengths == size).all():
        alike: list[bytes] = np.frombuffer(raw, f"V{size}").tolist()  # 8 times faster than slices.
        return alike
    return [raw[a:b] for a, b in pairwise((ends - first).tolist())]


def _column(batch: pa.RecordBatch, name: str, default: str | int, *, needed: bool) -> Any:
    """Return a column without nulls. Raises MissingValue if it has some and is `needed`, so no default is right."""
    if name not in batch.schema.names:
        return default
    return _non_null_column(batch, name) if needed else batch.column(name).fill_null(default)


def _non_null_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column. Raises MissingValue if it has nulls."""
    column = batch.column(name)
    if column.null_count:
        raise MissingValue(name, column.null_count)
    return column


def _dictionary_encode(values: Any, rows: int) -> tuple[Ints, list[Any]]:
    """Return an index for each row, and the distinct values that the indices stand for."""
    if isinstance(values, str | int):
        return np.zeros(rows, np.int64), [values]
    encoded = values.dictionary_encode()
    default: Any = 0 if pa.types.is_integer(values.type) else ""
    return _ints(encoded.indices), encoded.dictionary.to_pylist() or [default]


def _ints(column: pa.Array) -> Ints:
    found: Ints = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _times(batch: pa.RecordBatch) -> Times:
    column = _non_null_column(batch, "timestamp")
    return _ints(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()))


def _header_lists(batch: pa.RecordBatch) -> pa.Array | None:
    """Return the column of headers, if there is one. Raises MissingValue if a header has no name."""
    if "headers" not in batch.schema.names:
        return None
    found = batch.column("headers")
    nameless = _keys(found).null_count
    if nameless:
        raise MissingValue("headers.key", nameless)
    return found


def _replayed_rows(lists: pa.Array) -> Any:
    """Return which rows are marked as replayed; None if none is."""
    keys = _keys(lists)
    if not len(keys) or not pc.any(pc.equal(keys, REPLAYED_FROM)).as_py():
        return None
    return np.array(
        [any(key == REPLAYED_FROM for key, _ in _pairs(row)) for row in lists.to_pylist()]
    )


def _keys(lists: pa.Array) -> pa.Array:
    """Return the names of all headers, perhaps including those of other rows in the same buffers."""
    return lists.keys if pa.types.is_map(lists.type) else lists.flatten().field("key")


def _pairs(row: Any) -> Pairs:
    """Return the headers of a row, which is either a map or a list of structs."""
    if not row:
        return ()
    if isinstance(row[0], Mapping):
        return tuple((one["key"], one["value"]) for one in row)
    return tuple(row)


def _row_headers(pairs: Pairs, replay_id: str, queue: str) -> bytes:
    """Encode headers. Most messages of a batch have the same ones, so small ones are cached; but only if all values
    are text or bytes: others may be equal and yet encoded differently, as 1 and True."""
    size = 0
    for key, value in pairs:
        if type(value) is not bytes and type(value) is not str:
            return _encode_headers(pairs, replay_id, queue)
        size += len(key) + len(value)
    return (
        _cached_headers(pairs, replay_id, queue)
        if size <= CACHED_BYTES_MAX
        else _encode_headers(pairs, replay_id, queue)
    )


@lru_cache(maxsize=CACHED_HEADERS_MAX)
def _cached_headers(pairs: Pairs, replay_id: str, queue: str) -> bytes:
    return _encode_headers(pairs, replay_id, queue)


def _encode_headers(pairs: Pairs, replay_id: str, queue: str) -> bytes:
    headers = {key: _value(value) for key, value in pairs}
    if replay_id:
        headers |= {REPLAYED_FROM: queue, REPLAY_ID: replay_id}
    return encode_headers(headers, HEADERS_BYTES_MAX) if headers else b""


def _value(value: Any) -> Any:
    """Return bytes as text if they are UTF-8: a captured header is bytes even if it was text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value
