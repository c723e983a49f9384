"""Lanes as bytes, for checkpoints: two parts, because a start may use the second one without the first.

    enqueued:  index, own expiries, times          outcomes:  settled messages, how often the rest came back

Each item follows its length as u32, little endian, as the class writes it that keeps it.
"""

from __future__ import annotations

from .arrival_times import ArrivalTimes
from .block import Pieces
from .expiries import Expiries
from .index import Index
from .ranges import Ranges
from .settled import Settled


def encode_enqueued(index: Index, expiries: Expiries, times: ArrivalTimes) -> Pieces:
    """Return what was enqueued, in pieces. Later changes do not alter them; long ones are not copied."""
    parts = index.encode(), expiries.encode(), [times.encode()]
    return [piece for part in parts for piece in (sum(map(len, part)).to_bytes(4, "little"), *part)]


def decode_enqueued(data: bytes) -> tuple[Index, Expiries, ArrivalTimes]:
    """Raises ValueError for bytes that `encode_enqueued` has not written."""
    index, expiries, times = _unpack(data, 3)
    return Index.decode(index), Expiries.decode(expiries), ArrivalTimes.decode(bytes(times))


def encode_outcomes(settled: Settled, return_counts: Ranges) -> bytes:
    """Return what became of the messages."""
    parts = settled.encode(), return_counts.encode()
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def decode_outcomes(data: bytes) -> tuple[Settled, Ranges]:
    """Raises ValueError for bytes that `encode_outcomes` has not written."""
    settled, return_counts = map(bytes, _unpack(data, 2))
    return Settled.decode(settled), Ranges.decode(return_counts)


def decode_settled(data: bytes) -> Settled:
    """Return the settled messages only. Raises ValueError for bytes that `encode_outcomes` has not written."""
    return Settled.decode(bytes(_unpack(data, 2)[0]))


IN_ORDER_BYTES = len(encode_outcomes(Settled(), Ranges()))
"""Length of what `encode_outcomes` returns if messages were settled in order and none has come back."""


def _unpack(data: bytes, count: int) -> list[memoryview]:
    parts, at, view = [], 0, memoryview(data)
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "little")
        parts.append(view[at + 4 : at + 4 + size])
        at += 4 + size
    if at != len(data) or len(parts[-1]) != size:
        raise ValueError(f"{len(data)} bytes do not hold {count} parts")
    return parts
