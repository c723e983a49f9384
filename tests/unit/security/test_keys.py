"""Keys and keyrings: derivation is stable, secrets are not shown, two generations work."""

from __future__ import annotations

import pytest

from security.announcement import Announcement, read_announcement
from security.errors import Expired, Forged, KeyChoice, NoKey, Untrusted
from security.keyring import FileKeyring, NetworkKeyring
from security.keys import DOOR, derive, generate

SECRET, OLD = bytes(range(32)), bytes(32)


def test_derivation_depends_on_secret_and_name_only() -> None:
    assert derive(SECRET, "a") == derive(SECRET, "a")
    keys = {derive(secret, name).public for secret in (SECRET, OLD) for name in ("a", "b", DOOR)}
    assert len(keys) == 6
    pair = derive(SECRET, "a")
    assert pair.secret != pair.seed, "one secret per purpose"


def test_secrets_are_not_shown() -> None:
    pair = derive(SECRET, "a")
    assert pair.secret is not None
    assert repr(pair.secret)[2:-1] not in repr(pair)
    assert "seed" not in repr(pair)
    assert "00" * 8 not in repr(NetworkKeyring([OLD]))


def test_signatures() -> None:
    pair = derive(SECRET, "a")
    signature = pair.sign(b"x")
    assert pair.public_half().verifies(b"x", signature)
    assert not pair.verifies(b"y", signature)
    assert not pair.verifies(b"x", b"short")
    assert not derive(OLD, "a").verifies(b"x", signature)


def test_a_network_keyring_learns_and_forgets_but_never_its_own() -> None:
    ring = NetworkKeyring([SECRET], learned_max=2)
    own = ring.own("mine")[0]
    for name in ("a", "b", "c"):
        ring.learn(name)
    assert ring.admit(derive(SECRET, "a").public) is None, "the first learned gave way"
    assert ring.admit(derive(SECRET, "c").public) == "c"
    assert ring.admit(own.public) == "mine"
    assert ring.admit(ring.door()[0].public) == DOOR
    assert ring.by_id(own.key_id) == own
    assert ring.trusted("never-learned") == (derive(SECRET, "never-learned"),)
    assert ring.admit(derive(SECRET, "never-learned").public) is None, "asking is not learning"


def test_two_generations_newest_first() -> None:
    ring = NetworkKeyring([SECRET, OLD])
    assert ring.own("a") == (derive(SECRET, "a"), derive(OLD, "a"))
    assert {ring.admit(pair.public) for pair in ring.own("a")} == {"a"}
    for wrong in ([], [SECRET] * 3, [b"short"]):
        with pytest.raises(KeyChoice):
            NetworkKeyring(wrong)


def test_a_file_keyring_trusts_what_it_was_given() -> None:
    mine, theirs = generate("mine", b"m" * 64), generate("theirs", b"t" * 64).public_half()
    ring = FileKeyring([mine, theirs])
    assert ring.own("mine") == (mine,)
    with pytest.raises(NoKey, match="mesh keys new-cluster theirs"):
        ring.own("theirs")
    assert ring.trusted("theirs") == (theirs,)
    assert ring.trusted("nobody") == ()
    assert ring.door() == ()
    assert set(ring.introduction_keys()) == {mine, theirs}
    ring.learn("nobody")
    assert ring.trusted("nobody") == ()


def make(clusters: tuple[str, ...] = ("a",), **changes: object) -> Announcement:
    fields: dict[str, object] = {
        "node": bytes(16), "incarnation": 5, "issued_us": 10**15, "lifetime_s": 600,
        "host": bytes(8), "clusters": clusters, "endpoints": (), **changes,
    }  # fmt: skip
    return Announcement(**fields)  # type: ignore[arg-type]


def test_only_proven_clusters_count() -> None:
    mine, theirs = generate("a", b"m" * 64), generate("b", b"t" * 64)
    raw = make(("a", "b")).sign([mine, theirs])
    ring = FileKeyring([mine.public_half()])
    assert read_announcement(raw, ring, now_us=10**15).clusters == ("a",)
    raw = make(("a", "b")).sign([mine])
    assert read_announcement(raw, FileKeyring([mine, theirs]), now_us=10**15).clusters == ("a",)
    with pytest.raises(Untrusted):
        read_announcement(make(("b",)).sign([theirs]), ring, now_us=10**15)


def test_a_key_speaks_only_for_its_own_cluster() -> None:
    mine, theirs = generate("a", b"m" * 64), generate("b", b"t" * 64)
    raw = make(("b",)).sign([mine])
    with pytest.raises(Untrusted):
        read_announcement(raw, FileKeyring([mine, theirs]), now_us=10**15)


def test_expiry_and_skew() -> None:
    pair = derive(SECRET, "a")
    raw, ring = make().sign([pair]), NetworkKeyring([SECRET])
    late_us = 10**15 + 600 * 10**6
    assert read_announcement(raw, ring, now_us=late_us + 299 * 10**6)
    with pytest.raises(Expired) as caught:
        read_announcement(raw, ring, now_us=late_us + 301 * 10**6)
    assert caught.value.seconds == pytest.approx(1)
    assert read_announcement(raw, ring, now_us=10**15 - 299 * 10**6)


def test_a_wrong_signature_by_a_known_key_is_forged() -> None:
    pair = derive(SECRET, "a")
    raw = bytearray(make().sign([pair]))
    raw[-1] ^= 1
    ring = NetworkKeyring([SECRET])
    with pytest.raises(Forged):
        read_announcement(bytes(raw), ring, now_us=10**15)
    assert ring.admit(pair.public) is None, "nothing was learned from it"
