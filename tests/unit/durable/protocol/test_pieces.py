"""What is longer than a part goes in pieces and comes back whole; anything but the next piece is Malformed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import Malformed
from durable.protocol.pieces import HEADER, PIECE, Pieces, in_pieces, is_long
from mesh.errors import TooLarge

OVER = HEADER.size + 1
"""A part that takes one byte of it."""


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=3), st.integers(OVER, 30))
def test_what_was_sent_in_pieces_comes_back_whole(wholes: list[bytes], part_bytes_max: int) -> None:
    pieces, found = Pieces(40), []
    for whole in wholes:
        parts = list(in_pieces(whole, part_bytes_max, 40))
        assert all(len(part) <= part_bytes_max for part in parts)
        for part in parts:
            assert pieces.whole(b"\x93") == b"\x93"
            found.append(pieces.whole(part))
    assert [one for one in found if one is not None] == wholes


def test_only_what_is_longer_than_a_part_goes_in_pieces() -> None:
    assert [is_long(bytes(size), 16) for size in (16, 17)] == [False, True]
    assert [is_long(bytes(size), 1 << 30) for size in (1 << 20, (1 << 20) + 1)] == [False, True]


def test_more_than_anybody_takes_is_not_sent() -> None:
    assert len(list(in_pieces(bytes(100), 20, 100))) == 10
    with pytest.raises(TooLarge) as told:
        next(in_pieces(bytes(101), 20, 100))
    assert (told.value.size_bytes, told.value.limit_bytes) == (101, 100)


def piece(at: int, total: int, size: int) -> bytes:
    return HEADER.pack(PIECE, at, total) + bytes(size)


@pytest.mark.parametrize(
    "parts",
    [
        [piece(0, 101, 1)], [piece(0, 9, 10)], [piece(1, 9, 1)], [piece(0, 9, 0)], [b"P"],
        [piece(0, 9, 1), piece(2, 9, 1)], [piece(0, 9, 2), piece(1, 9, 1)],
        [piece(0, 9, 1), piece(1, 10, 1)], [piece(0, 9, 1), piece(0, 9, 1)],
        [piece(0, 9, 5), piece(5, 9, 5)],
    ],
)  # fmt: skip
def test_a_piece_that_is_not_the_next_one_is_malformed(parts: list[bytes]) -> None:
    pieces = Pieces(100)
    for part in parts[:-1]:
        assert pieces.whole(part) is None
    with pytest.raises(Malformed, match="piece"):
        pieces.whole(parts[-1])


@given(st.lists(st.binary(max_size=12).map(lambda rest: PIECE + rest), max_size=4))
def test_garbage_is_malformed_and_nothing_else(parts: list[bytes]) -> None:
    pieces = Pieces(100)
    for part in parts:
        with suppress(Malformed):
            pieces.whole(part)
