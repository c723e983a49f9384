"""Encryption at rest: what a store's data key does, and how key pairs of clusters keep that key.

    pair's X25519 secret ── keyed BLAKE2b ──> wrapping key ── SecretBox ──> data key ── AEGIS-256 ──> bodies

A store has one data key for life; wrapped, it can stand beside the data. Who holds the pair unwraps it,
so keys rotate without a byte of the data being written again.

AEGIS-256 has a nonce long enough to be drawn at random for ever, and is several times faster than
XChaCha20-Poly1305 where the processor has AES instructions.
"""

from __future__ import annotations

from hashlib import blake2b

from nacl.bindings import (
    crypto_aead_aegis256_ABYTES,
    crypto_aead_aegis256_decrypt,
    crypto_aead_aegis256_encrypt,
    crypto_aead_aegis256_KEYBYTES,
    crypto_aead_aegis256_NPUBBYTES,
)
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from .errors import NoKey
from .keys import ClusterKeys

DATA_KEY_BYTES: int = crypto_aead_aegis256_KEYBYTES
NONCE_BYTES: int = crypto_aead_aegis256_NPUBBYTES
OVERHEAD_BYTES: int = NONCE_BYTES + crypto_aead_aegis256_ABYTES
"""By which ciphertext is longer than what was encrypted: the nonce in front, the tag behind."""
WRAP_NONCE_BYTES: int = SecretBox.NONCE_SIZE
WRAPPED_BYTES: int = WRAP_NONCE_BYTES + DATA_KEY_BYTES + SecretBox.MACBYTES
PERSON = b"mesh-store-1"


def wrap(data_key: bytes, pair: ClusterKeys, context: bytes, nonce: bytes) -> bytes:
    """72 bytes from which the holder of `pair` gets the data key back.

    Args:
        data_key: 32 bytes.
        context: whose data key it is; it unwraps under the same only.
        nonce: 24 random bytes, never used again.
    Raises:
        NoKey: this is the public half of a pair.
    """
    return bytes(_box(pair, context).encrypt(data_key, nonce))


def unwrap(wrapped: bytes, pair: ClusterKeys, context: bytes) -> bytes | None:
    """The data key; None when it was not wrapped for this pair and context. Raises NoKey."""
    try:
        return _box(pair, context).decrypt(wrapped)
    except CryptoError:
        return None


def _box(pair: ClusterKeys, context: bytes) -> SecretBox:
    if pair.secret is None:
        raise NoKey(pair.cluster)
    key = blake2b(context, key=pair.secret, digest_size=SecretBox.KEY_SIZE, person=PERSON)
    return SecretBox(key.digest())


def encrypt(data_key: bytes, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
    """Nonce, ciphertext, tag.

    Args:
        nonce: 32 random bytes, never used again under this key.
        associated: not in the result; what was encrypted with it decrypts with it only.
    """
    return nonce + crypto_aead_aegis256_encrypt(plain, associated, nonce, data_key)


def decrypt(data_key: bytes, encrypted: bytes, associated: bytes) -> bytes | None:
    """What was encrypted; None when it was not, under this key and with `associated`."""
    if len(encrypted) < OVERHEAD_BYTES:
        return None
    nonce, rest = encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:]
    try:
        return crypto_aead_aegis256_decrypt(rest, associated, nonce, data_key)
    except CryptoError:
        return None
