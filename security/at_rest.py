"""Encryption at rest: encryption of bodies with a store's data key, and wrapping of that key for a cluster's key pair.

    pair's X25519 secret ── keyed BLAKE2b ──> wrapping key ── SecretBox ──> data key ── AEGIS-256 ──> bodies

A store keeps one data key for its whole life, and the wrapped key may be stored beside the data. Any holder
of the pair can unwrap it, so key pairs can be rotated without rewriting any data.

AEGIS-256 has a nonce long enough to be drawn at random without limit, and is several times faster than
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
"""How much longer the ciphertext is than the plaintext: the nonce in front, the tag behind."""
WRAP_NONCE_BYTES: int = SecretBox.NONCE_SIZE
WRAPPED_BYTES: int = WRAP_NONCE_BYTES + DATA_KEY_BYTES + SecretBox.MACBYTES
PERSON = b"mesh-store-1"


def wrap(data_key: bytes, pair: ClusterKeys, context: bytes, nonce: bytes) -> bytes:
    """Return 72 bytes from which a holder of `pair` can get the data key back.

    Args:
        data_key: 32 bytes.
        context: identifies the owner of the data key; `unwrap` needs the same context.
        nonce: 24 random bytes, never used again.
    Raises:
        NoKey: `pair` is only a public half.
    """
    return bytes(_box(pair, context).encrypt(data_key, nonce))


def unwrap(wrapped: bytes, pair: ClusterKeys, context: bytes) -> bytes | None:
    """Return the data key, or None if it was not wrapped for this pair and context. Raises NoKey."""
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
    """Encrypt; return nonce, ciphertext and tag in one.

    Args:
        nonce: 32 random bytes, never used again under this key.
        associated: authenticated but not part of the result; `decrypt` needs the same bytes.
    """
    return nonce + crypto_aead_aegis256_encrypt(plain, associated, nonce, data_key)


def decrypt(data_key: bytes, encrypted: bytes, associated: bytes) -> bytes | None:
    """Return the plaintext, or None if this is not a ciphertext under this key with the same `associated`."""
    if len(encrypted) < OVERHEAD_BYTES:
        return None
    nonce, rest = encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:]
    try:
        return crypto_aead_aegis256_decrypt(rest, associated, nonce, data_key)
    except CryptoError:
        return None
