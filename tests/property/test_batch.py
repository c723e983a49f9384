"""Batches against a decoder so slow and plain that it is obviously the layout in batch.py's text."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import Batch, batch_pieces

sequences = st.integers(0, 2**64 - 1)
topics = st.text(max_size=12)
few = st.lists(st.binary(max_size=12), min_size=1, max_size=12)
equal = st.integers(0, 9).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=12)
)


@dataclass(frozen=True)
class Plain:
    """What a batch says."""

    publisher: bytes
    epoch: int
    sequence: int
    time_us: int
    topic: str
    shared: bytes
    payloads: list[bytes]
    headers: list[bytes] | None

    def pack(self) -> bytes:
        pieces, size = batch_pieces(
            self.publisher, self.epoch, self.sequence, self.time_us, self.topic.encode(),
            self.payloads, shared_headers=self.shared, message_headers=self.headers,
        )  # fmt: skip
        raw = b"".join(pieces)
        assert len(raw) == size
        return raw


@st.composite
def plains(draw: st.DrawFn) -> Plain:
    payloads = draw(st.one_of(few, equal))
    count = len(payloads)
    column = st.lists(st.binary(max_size=5), min_size=count, max_size=count)
    return Plain(
        draw(st.binary(min_size=16, max_size=16)), draw(sequences), draw(sequences),
        draw(st.integers(-(2**63), 2**63 - 1)), draw(topics), draw(st.binary(max_size=9)),
        payloads, draw(st.one_of(st.none(), column)),
    )  # fmt: skip


def decode_slowly(raw: bytes) -> Plain:
    """The text of batch.py, line by line."""
    at = 64

    def number(at: int, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(raw[at : at + size], "little", signed=signed)

    def take(lengths: list[int]) -> list[bytes]:
        nonlocal at
        found = []
        for length in lengths:
            found.append(raw[at : at + length])
            at += length
        return found

    def column() -> list[int]:
        return [int.from_bytes(one, "little") for one in take([4] * count)]

    assert raw[:4] == b"\x4d\x42\x01\x00"
    assert number(8, 4) == len(raw)
    count = number(16, 4)
    topic, shared = take([number(6, 2), number(20, 4)])
    lengths = column()
    headers = take(column()) if number(4, 2) & 1 else None
    payloads = take(lengths)
    assert at == len(raw)
    return Plain(
        raw[48:64], number(24, 8), number(32, 8), number(40, 8, signed=True), topic.decode(),
        shared, payloads, headers,
    )  # fmt: skip


def read(batch: Batch) -> Plain:
    return Plain(
        batch.publisher, batch.epoch, batch.base_sequence, batch.time_us, batch.topic,
        batch.shared_headers, batch.payloads, batch.message_headers(),
    )  # fmt: skip


@given(plains(), st.binary(max_size=9), st.binary(max_size=9), st.booleans())
def test_agrees_with_a_slow_decoder_wherever_it_stands(
    plain: Plain, before: bytes, after: bytes, view: bool
) -> None:
    raw = plain.pack()
    assert decode_slowly(raw) == plain
    around = before + raw + after
    batch = Batch(memoryview(around) if view else around, len(before), len(before) + len(raw))
    assert read(batch) == plain
    assert batch.raw() == raw
    assert batch.next_sequence == plain.sequence + len(plain.payloads)


@given(plains())
def test_no_part_of_a_batch_is_one(plain: Plain) -> None:
    """Every truncation, at either end, is refused at once: the length is in the header."""
    raw = plain.pack()
    for size in range(len(raw)):
        with pytest.raises(RemoteProtocolError):
            Batch(raw[:size])
        with pytest.raises(RemoteProtocolError):
            Batch(raw, 0, size)
    with pytest.raises(RemoteProtocolError):
        Batch(raw + b"\x00")


changes = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


@given(plains(), changes, st.booleans())
def test_whatever_passes_the_check_can_be_read(
    plain: Plain, changed: list[tuple[int, int]], columns_only: bool
) -> None:
    """Goal: a lie costs the link when it arrives, and nobody else later. Oracle: reading it all."""
    raw = bytearray(plain.pack())
    first = 64 if columns_only else 0
    for place, value in changed:
        raw[first + place % (len(raw) - first)] = value
    try:
        batch = Batch(bytes(raw))
        batch.check()
    except RemoteProtocolError:
        return
    payloads, headers = batch.payloads, batch.message_headers()
    columns = 4 * len(payloads) + (0 if headers is None else 4 * len(headers))
    text = 64 + len(batch.topic.encode()) + len(batch.shared_headers)
    if batch.kind == 0:
        assert len(payloads) == batch.count
        assert headers is None or len(headers) == batch.count
        assert text + columns + sum(map(len, payloads + (headers or []))) == len(raw)
    else:
        assert (payloads, headers) == ([], None)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Batch(raw)
