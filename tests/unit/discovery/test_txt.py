"""The TXT record: pinned bytes, round trip, and any bytes from the network."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from discovery.errors import AnnouncementTooLarge
from discovery.txt import ANNOUNCEMENT_BYTES_MAX, decode_txt, encode_txt


def test_the_bytes_are_pinned() -> None:
    assert encode_txt(b"\x00=\xff") == b"\x09txtvers=1\x06a0=\x00=\xff"
    two = encode_txt(b"x" * 250 + b"y")
    assert two == b"\x09txtvers=1\xfda0=" + b"x" * 250 + b"\x04a1=y"


@given(st.binary(min_size=1, max_size=ANNOUNCEMENT_BYTES_MAX))
@example(b"=" * ANNOUNCEMENT_BYTES_MAX)
def test_round_trip(announcement: bytes) -> None:
    assert decode_txt(encode_txt(announcement)) == announcement


@given(st.binary(max_size=400))
def test_any_bytes_are_decoded_or_refused(record: bytes) -> None:
    decode_txt(record)


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x00",
        b"\x09txtvers=1",  # no announcement
        b"\x09txtvers=1\x03a0=",  # an empty one
        b"\x09txtvers=2\x04a0=x",  # a later version
        b"\x04a0=x",
        b"\x09txtvers=1\x05a0=x",  # cut
        b"\x09txtvers=1\x04a1=x",  # the first piece is missing
        encode_txt(b"x" * 1250) + b"\x37a5=" + b"x" * 51 + b"\x00",  # one byte too many
    ],
)
def test_not_ours(record: bytes) -> None:
    assert decode_txt(record) is None


def test_unknown_keys_are_skipped_and_the_first_of_equal_keys_counts() -> None:
    assert decode_txt(b"\x03n=1\x09txtvers=1\x04a0=x\x02a1\x04a0=y\x04flag") == b"x"


def test_too_large_is_refused_with_both_sizes() -> None:
    with pytest.raises(AnnouncementTooLarge) as caught:
        encode_txt(bytes(ANNOUNCEMENT_BYTES_MAX + 1))
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (1301, 1300)
