"""Key pairs of clusters: X25519 for links (CURVE), Ed25519 for announcements.

The pair of every cluster is derived from one network secret by keyed BLAKE2b, with a separate person string
for each purpose, so that this secret is the only key to configure. Where clusters must not be able to
impersonate each other, each has a generated pair, and only public halves are distributed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from nacl.bindings import crypto_scalarmult_base
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from .errors import NoKey

DOOR = "@door"
"""Pseudo cluster of a network secret. Every holder of the secret has its pair, which serves introductions only."""

SECRET_BYTES = 32
"""Length of a network secret, and of every half of a pair."""
GENERATE_BYTES = 64


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """One generation of one cluster's pair; `secret` and `seed` are None for the public half.

    `public` and `secret` are X25519 (CURVE), `verify` and `seed` Ed25519, 32 bytes each.
    """

    cluster: str
    public: bytes
    verify: bytes
    secret: bytes | None = field(default=None, repr=False)
    seed: bytes | None = field(default=None, repr=False)
    key_id: bytes = field(init=False)
    """8 bytes of BLAKE2b over both public keys; names the pair on the wire."""

    def __post_init__(self) -> None:
        _check_lengths(self.public, self.verify, self.secret, self.seed)
        name = blake2b(self.public + self.verify, digest_size=8, person=b"mesh-key-id").digest()
        object.__setattr__(self, "key_id", name)

    def sign(self, message: bytes) -> bytes:
        """Return an Ed25519 signature of 64 bytes. Raises NoKey if this is only the public half."""
        if self.seed is None:
            raise NoKey(self.cluster)
        return SigningKey(self.seed).sign(message).signature

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Return whether this pair's secret half signed `message`."""
        try:
            VerifyKey(self.verify).verify(message, signature)
        except (BadSignatureError, ValueError):
            return False
        return True

    def public_half(self) -> ClusterKeys:
        return ClusterKeys(self.cluster, self.public, self.verify)


def derive(network_secret: bytes, cluster: str) -> ClusterKeys:
    """Return the pair of `cluster` in the network of this secret. Raises ValueError unless it has 32 bytes."""
    # BLAKE2b would accept any key up to 64 bytes, even an empty one.
    if len(network_secret) != SECRET_BYTES:
        raise ValueError(f"a network secret of {len(network_secret)} bytes, want {SECRET_BYTES}")
    name = cluster.encode()
    secret = blake2b(name, key=network_secret, digest_size=32, person=b"mesh-curve-1").digest()
    seed = blake2b(name, key=network_secret, digest_size=32, person=b"mesh-sign-1").digest()
    return from_secrets(cluster, secret, seed)


def generate(cluster: str, randomness: bytes) -> ClusterKeys:
    """Return a new pair made from 64 random bytes. Raises ValueError for another number of bytes."""
    if len(randomness) != GENERATE_BYTES:
        raise ValueError(f"randomness: want {GENERATE_BYTES} bytes, got {len(randomness)}")
    return from_secrets(cluster, randomness[:32], randomness[32:])


def from_secrets(cluster: str, secret: bytes, seed: bytes) -> ClusterKeys:
    """Return the pair with these secret halves. Raises ValueError unless they have 32 bytes each."""
    # libsodium does not check: it reads 32 bytes, whatever the length.
    _check_lengths(secret, seed)
    public = crypto_scalarmult_base(secret)
    return ClusterKeys(cluster, public, bytes(SigningKey(seed).verify_key), secret, seed)


def _check_lengths(*halves: bytes | None) -> None:
    for half in halves:
        if half is not None and len(half) != SECRET_BYTES:
            raise ValueError(f"a key of {len(half)} bytes, want {SECRET_BYTES}")
