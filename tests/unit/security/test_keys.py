"""Key pairs: derivation is pinned, purposes and generations differ, secrets are not shown."""

from __future__ import annotations

from dataclasses import fields

import pytest
from nacl.bindings import crypto_scalarmult_base

from security.errors import NoKey
from security.keys import DOOR, ClusterKeys, derive, from_secrets, generate

SECRET, OLD = bytes(range(32)), bytes(32)


def test_derivation_is_pinned() -> None:
    """Another value here cuts every network in two, the nodes before and after the change."""
    pair = derive(SECRET, "databases")
    assert pair.public.hex() == "4a26808e38595e04a0d739b065f73ca92a6990a9e890a2b4a5d28867684b2c16"
    assert pair.verify.hex() == "8610c07a4b55da4b26be6028f79249a4401be8af66a1c034aae4e1fa407d766c"
    assert pair.key_id.hex() == "a56098a102a649e4"


def test_derivation_depends_on_secret_and_name_only() -> None:
    assert derive(SECRET, "a") == derive(SECRET, "a")
    keys = {derive(secret, name).public for secret in (SECRET, OLD) for name in ("a", "b", DOOR)}
    assert len(keys) == 6
    pair = derive(SECRET, "a")
    assert pair.secret != pair.seed, "one secret per purpose"


def test_halves_belong_together() -> None:
    pair = generate("a", bytes(range(64)))
    assert pair == from_secrets("a", bytes(range(32)), bytes(range(32, 64)))
    assert pair.secret is not None
    assert crypto_scalarmult_base(pair.secret) == pair.public
    assert len({pair.public, pair.verify, pair.secret, pair.seed}) == 4


def test_the_public_half_keeps_the_name_and_loses_the_secrets() -> None:
    pair = derive(SECRET, "a")
    half = pair.public_half()
    assert half == ClusterKeys("a", pair.public, pair.verify)
    assert (half.secret, half.seed) == (None, None)
    assert half.key_id == pair.key_id
    with pytest.raises(NoKey, match="new-cluster a"):
        half.sign(b"x")


def test_a_key_id_depends_on_both_keys() -> None:
    one, other = derive(SECRET, "a"), derive(SECRET, "b")
    ids = {ClusterKeys("a", p, v).key_id for p in (one.public, other.public) for v in (one.verify, other.verify)}  # fmt: skip
    assert len(ids) == 4
    assert {len(key_id) for key_id in ids} == {8}


def test_secrets_are_not_shown() -> None:
    pair = generate("a", b"secret half, 32 bytes, of CURVE " + b"seed of signatures, 32 bytes too")
    assert "secret half" not in repr(pair)
    assert "seed of" not in repr(pair)
    assert {field.name for field in fields(pair) if not field.repr} == {"secret", "seed"}


def test_signatures() -> None:
    pair = derive(SECRET, "a")
    signature = pair.sign(b"x")
    assert pair.public_half().verifies(b"x", signature)
    assert not pair.verifies(b"y", signature)
    assert not pair.verifies(b"x", b"short")
    assert not derive(OLD, "a").verifies(b"x", signature)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_keys_of_a_wrong_length_are_refused(size: int) -> None:
    """libsodium would read on in memory behind a short secret."""
    with pytest.raises(ValueError, match=str(size)):
        from_secrets("a", bytes(size), bytes(32))
    with pytest.raises(ValueError, match=str(size)):
        from_secrets("a", bytes(32), bytes(size))
    with pytest.raises(ValueError, match=str(size)):
        ClusterKeys("a", bytes(32), bytes(size))
    with pytest.raises(ValueError, match=str(size)):
        derive(bytes(size), "a")
    with pytest.raises(ValueError, match="64"):
        generate("a", bytes(size // 2))
