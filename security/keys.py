"""Key pairs of clusters: X25519 for links (CURVE), Ed25519 for announcements.

From one network secret every cluster's pair is derived by keyed BLAKE2b, each purpose with a person
string of its own, so one secret is all the configuration there is. Where clusters must not be able
to impersonate each other, a pair is generated for each and only its public half handed around.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from nacl.bindings import crypto_scalarmult_base
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from .errors import NoKey

DOOR = "@door"
"""Pseudo cluster of a network secret: its pair is for introductions only, by any holder of it."""

SECRET_BYTES = 32
"""Of a network secret, and of every half of a pair."""
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
    """8 bytes of BLAKE2b over both public keys: how a pair is named on the wire."""

    def __post_init__(self) -> None:
        _check_lengths(self.public, self.verify, self.secret, self.seed)
        name = blake2b(self.public + self.verify, digest_size=8, person=b"mesh-key-id").digest()
        object.__setattr__(self, "key_id", name)

    def sign(self, message: bytes) -> bytes:
        """64 bytes of Ed25519 signature. Raises NoKey when this is the public half."""
        if self.seed is None:
            raise NoKey(self.cluster)
        return SigningKey(self.seed).sign(message).signature

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Whether this pair's secret half signed `message`."""
        try:
            VerifyKey(self.verify).verify(message, signature)
        except (BadSignatureError, ValueError):
            return False
        return True

    def public_half(self) -> ClusterKeys:
        return ClusterKeys(self.cluster, self.public, self.verify)


def derive(network_secret: bytes, cluster: str) -> ClusterKeys:
    """The pair of `cluster` in the network of this secret. Raises ValueError unless it has 32 bytes."""
    if len(network_secret) != SECRET_BYTES:  # BLAKE2b takes any key up to 64 bytes, even none.
        raise ValueError(f"a network secret of {len(network_secret)} bytes, want {SECRET_BYTES}")
    name = cluster.encode()
    secret = blake2b(name, key=network_secret, digest_size=32, person=b"mesh-curve-1").digest()
    seed = blake2b(name, key=network_secret, digest_size=32, person=b"mesh-sign-1").digest()
    return from_secrets(cluster, secret, seed)


def generate(cluster: str, randomness: bytes) -> ClusterKeys:
    """A pair of its own, from 64 random bytes. Raises ValueError for another number of them."""
    if len(randomness) != GENERATE_BYTES:
        raise ValueError(f"randomness: want {GENERATE_BYTES} bytes, got {len(randomness)}")
    return from_secrets(cluster, randomness[:32], randomness[32:])


def from_secrets(cluster: str, secret: bytes, seed: bytes) -> ClusterKeys:
    """The pair with these secret halves. Raises ValueError when they are not 32 bytes each."""
    _check_lengths(secret, seed)  # Nothing else does: libsodium reads 32 bytes of whatever it gets.
    public = crypto_scalarmult_base(secret)
    return ClusterKeys(cluster, public, bytes(SigningKey(seed).verify_key), secret, seed)


def _check_lengths(*halves: bytes | None) -> None:
    for half in halves:
        if half is not None and len(half) != SECRET_BYTES:
            raise ValueError(f"a key of {len(half)} bytes, want {SECRET_BYTES}")
