"""What is longer than a part goes in pieces and comes back whole; anything but the next piece is Malformed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import Malformed
from durable.protocol.pieces import HEADER, PART_BYTES_MAX, PIECE, Pieces, in_pieces, is_long

OVER = HEADER.size + 1
"""A part that takes one byte of it."""


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=3), st.integers(OVER, 50))
def test_what_was_sent_in_pieces_comes_back_whole(wholes: list[bytes], part_bytes_max: int) -> None:
    pieces, found = Pieces(40), []
    for number, whole in enumerate(wholes):
        parts = list(in_pieces(number, whole, part_bytes_max))
        assert all(len(part) <= part_bytes_max for part in parts)
        for part in parts:
            assert pieces.join(b"\x93") == b"\x93"
            found.append(pieces.join(part))
            assert pieces.number == number
            assert pieces.kept_bytes <= len(whole)
        assert pieces.kept_bytes == 0
    assert [one for one in found if one is not None] == wholes


def test_only_what_is_longer_than_a_part_goes_in_pieces() -> None:
    assert [is_long(bytes(size), 16) for size in (16, 17)] == [False, True]
    limit = PART_BYTES_MAX
    assert [is_long(bytes(size), 1 << 30) for size in (limit, limit + 1)] == [False, True]
    assert all(len(part) <= limit for part in in_pieces(1, bytes(limit + 1), 1 << 30))


def piece(at: int, total: int, size: int, number: int = 1) -> bytes:
    return HEADER.pack(PIECE, number, at, total) + bytes(size)


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 2]))
def test_the_first_piece_of_a_whole_ends_the_one_before(size: int, kept: int, number: int) -> None:
    pieces = Pieces(100)
    assert pieces.join(piece(0, 50, kept)) is None
    assert pieces.join(piece(0, size + 1, size, number)) is None
    assert pieces.kept_bytes == size
    assert pieces.join(piece(size, size + 1, 1, number)) == bytes(size + 1)


def test_what_is_given_up_is_passed_over_to_its_end() -> None:
    pieces = Pieces(100)
    assert pieces.join(piece(0, 9, 5)) is None
    pieces.discard()
    assert pieces.kept_bytes == 0
    assert pieces.join(piece(5, 9, 4)) is None
    with pytest.raises(Malformed):
        pieces.join(piece(9, 9, 1))
    assert pieces.join(piece(0, 3, 3)) == bytes(3)


@pytest.mark.parametrize(
    "parts",
    [
        [piece(0, 101, 1)], [piece(0, 9, 10)], [piece(1, 9, 1)], [piece(0, 9, 0)], [b"P"],
        [piece(0, 9, 1), piece(2, 9, 1)], [piece(0, 9, 2), piece(1, 9, 1)],
        [piece(0, 9, 1), piece(1, 10, 1)], [piece(0, 9, 1), piece(1, 9, 1, number=2)],
        [piece(0, 9, 5), piece(5, 9, 5)],
    ],
)  # fmt: skip
def test_a_piece_that_is_not_the_next_one_is_malformed(parts: list[bytes]) -> None:
    pieces = Pieces(100)
    for part in parts[:-1]:
        assert pieces.join(part) is None
    with pytest.raises(Malformed, match="piece"):
        pieces.join(parts[-1])


@pytest.mark.parametrize("part", [b"\x93", piece(0, 1 << 30, 0)])
def test_a_part_that_should_have_been_several_is_malformed(part: bytes) -> None:
    with pytest.raises(Malformed, match=f"in one part, at most {PART_BYTES_MAX}"):
        Pieces(1 << 30).join(part + bytes(PART_BYTES_MAX))


@given(st.lists(st.binary(max_size=20).map(lambda rest: PIECE + rest), max_size=4))
def test_garbage_is_malformed_and_nothing_else(parts: list[bytes]) -> None:
    pieces = Pieces(100)
    for part in parts:
        with suppress(Malformed):
            pieces.join(part)
