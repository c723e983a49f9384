"""Data keys: wrapped for a pair, and what they encrypt."""

from __future__ import annotations

import pytest

from security.at_rest import OVERHEAD_BYTES, WRAPPED_BYTES, decrypt, encrypt, unwrap, wrap
from security.errors import NoKey
from security.keys import derive, generate

PAIR = derive(b"n" * 32, "broker")
KEY, STORE, NONCE = b"k" * 32, b"s" * 16, b"u" * 24


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_data_key_unwraps_for_its_pair_and_its_store_only() -> None:
    wrapped = wrap(KEY, PAIR, STORE, NONCE)
    assert len(wrapped) == WRAPPED_BYTES == 72
    assert KEY not in wrapped
    assert unwrap(wrapped, PAIR, STORE) == KEY
    assert unwrap(wrapped, PAIR, b"t" * 16) is None
    assert unwrap(wrapped, derive(b"n" * 32, "shop"), STORE) is None
    assert unwrap(wrapped, derive(b"o" * 32, "broker"), STORE) is None
    assert unwrap(wrapped, generate("broker", bytes(64)), STORE) is None


@pytest.mark.parametrize("at", [0, 24, 71])
def test_a_wrapped_key_that_was_touched_is_none(at: int) -> None:
    assert unwrap(flipped(wrap(KEY, PAIR, STORE, NONCE), at), PAIR, STORE) is None


def test_a_public_half_neither_wraps_nor_unwraps() -> None:
    with pytest.raises(NoKey, match="broker"):
        wrap(KEY, PAIR.public_half(), STORE, NONCE)
    with pytest.raises(NoKey, match="broker"):
        unwrap(bytes(72), PAIR.public_half(), STORE)


def test_what_was_encrypted_decrypts_with_all_of_it_as_it_was() -> None:
    encrypted = encrypt(KEY, b"v" * 32, b"plain", b"of 7")
    assert len(encrypted) == len(b"plain") + OVERHEAD_BYTES == 69
    assert decrypt(KEY, encrypted, b"of 7") == b"plain"
    assert decrypt(KEY, encrypted, b"of 8") is None
    assert decrypt(b"l" * 32, encrypted, b"of 7") is None
    for at in range(len(encrypted)):
        assert decrypt(KEY, flipped(encrypted, at), b"of 7") is None
    for size in range(len(encrypted)):
        assert decrypt(KEY, encrypted[:size], b"of 7") is None


def test_nothing_encrypts_too() -> None:
    assert decrypt(KEY, encrypt(KEY, b"v" * 32, b"", b""), b"") == b""
