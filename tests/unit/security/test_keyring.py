"""Keyrings: who is known, who is admitted, and that nobody can fill the tables with names."""

from __future__ import annotations

import pytest

from security import keyring
from security.errors import KeyChoice, NoKey
from security.keyring import FileKeyring, Keyring, NetworkKeyring
from security.keys import DOOR, ClusterKeys, derive, generate

SECRET, OLD = bytes(range(32)), bytes(32)
MINE, THEIRS = generate("mine", b"m" * 64), generate("theirs", b"t" * 64).public_half()


def test_secrets_are_not_shown() -> None:
    assert repr(NetworkKeyring([SECRET, OLD])) == "<NetworkKeyring of 2 generations>"
    assert repr(FileKeyring([MINE, THEIRS])) == "<FileKeyring of mine, theirs>"


def test_a_network_keyring_learns_and_forgets_but_never_its_own() -> None:
    ring = NetworkKeyring([SECRET], learned_max=2)
    own = ring.own("mine")[0]
    for name in ("a", "b", "c"):
        ring.learn(name)
    forgotten = derive(SECRET, "a")
    assert ring.admit(forgotten.public) is None, "the first learned gave way"
    assert ring.by_id(forgotten.key_id) is None
    assert ring.admit(derive(SECRET, "c").public) == "c"
    assert ring.admit(own.public) == "mine"
    assert ring.admit(ring.door()[0].public) == DOOR
    assert ring.by_id(own.key_id) == own


def test_the_cluster_not_heard_of_for_longest_gives_way() -> None:
    ring = NetworkKeyring([SECRET, OLD], learned_max=2)
    for name in ("a", "b", "a", "c"):
        ring.learn(name)
    known = {name: ring.admit(derive(OLD, name).public) for name in ("a", "b", "c")}
    assert known == {"a": "a", "b": None, "c": "c"}


def test_own_and_door_outlive_any_number_of_learned_ones() -> None:
    ring = NetworkKeyring([SECRET], learned_max=1)
    ring.learn("mine")
    ring.own("mine")  # Learned before it was our own: it does not give way any more.
    for name in (DOOR, "mine", "a", "b"):
        ring.learn(name)
    assert ring.admit(derive(SECRET, "mine").public) == "mine"
    assert ring.admit(derive(SECRET, DOOR).public) == DOOR
    assert ring.admit(derive(SECRET, "a").public) is None
    assert ring.admit(derive(SECRET, "b").public) == "b", "own ones take no place of learned ones"


def test_asking_is_not_learning() -> None:
    ring = NetworkKeyring([SECRET])
    pair = derive(SECRET, "x")
    assert ring.trusted("x") == (pair,)
    assert ring.admit(pair.public) is None
    assert ring.by_id(pair.key_id) is None
    ring.learn("x")
    assert (ring.admit(pair.public), ring.by_id(pair.key_id)) == ("x", pair)


def test_admitting_is_a_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may connect as often as they like: no key is derived for it."""
    ring = NetworkKeyring([SECRET])

    def no_derivation(*_: object) -> ClusterKeys:
        raise AssertionError("derived")

    monkeypatch.setattr(keyring, "derive", no_derivation)
    assert ring.admit(bytes(32)) is None
    assert ring.by_id(bytes(8)) is None
    with pytest.raises(AssertionError, match="derived"):
        ring.trusted("x")


def test_two_generations_newest_first() -> None:
    ring = NetworkKeyring([SECRET, OLD])
    both = (derive(SECRET, "a"), derive(OLD, "a"))
    assert ring.trusted("a") == both
    assert ring.own("a") == both
    assert {ring.admit(pair.public) for pair in both} == {"a"}
    assert ring.door() == ring.introduction_keys() == (derive(SECRET, DOOR), derive(OLD, DOOR))


@pytest.mark.parametrize("wrong", [[], [SECRET, OLD, b"x" * 32], [b"short"], [SECRET, SECRET]])
def test_secrets_that_cannot_be_meant(wrong: list[bytes]) -> None:
    with pytest.raises(KeyChoice):
        NetworkKeyring(wrong)


def test_a_file_keyring_trusts_what_it_was_given() -> None:
    ring = FileKeyring([MINE, THEIRS])
    assert ring.own("mine") == (MINE,)
    for name in ("theirs", "nobody"):
        with pytest.raises(NoKey, match=f"mesh keys new-network.*mesh keys new-cluster {name}"):
            ring.own(name)
    assert ring.trusted("theirs") == (THEIRS,)
    assert ring.admit(THEIRS.public) == "theirs"
    assert ring.admit(bytes(32)) is None
    assert ring.by_id(MINE.key_id) == MINE
    assert ring.door() == ()
    assert set(ring.introduction_keys()) == {MINE, THEIRS}


def test_a_file_keyring_learns_nothing() -> None:
    ring = FileKeyring([MINE])
    ring.learn("nobody")
    assert ring.trusted("nobody") == ()


def test_own_are_only_generations_with_a_secret() -> None:
    newer = generate("mine", b"n" * 64)
    ring = FileKeyring([newer.public_half(), MINE])
    assert ring.own("mine") == (MINE,)
    assert ring.trusted("mine") == (newer.public_half(), MINE)


def test_files_that_contradict_each_other() -> None:
    generations = [generate("mine", bytes([n]) * 64) for n in range(3)]
    assert FileKeyring(generations[:2])
    with pytest.raises(KeyChoice, match="more than 2 key generations of 'mine'"):
        FileKeyring(generations)
    with pytest.raises(KeyChoice, match="twice"):
        FileKeyring([MINE, MINE.public_half()])
    # Who holds the key of `theirs` would be taken for `alias`, or the other way round.
    alias = ClusterKeys("alias", THEIRS.public, bytes(32))
    with pytest.raises(KeyChoice, match="'theirs' and for 'alias'"):
        FileKeyring([THEIRS, alias])


@pytest.mark.parametrize("ring", [NetworkKeyring([SECRET]), FileKeyring([MINE])])
def test_both_are_keyrings(ring: Keyring) -> None:
    assert ring.own("mine")[0].secret is not None


def test_a_key_that_no_file_has_is_named_with_the_directory() -> None:
    """Found: with another cluster's directory the text told to make new keys, which nobody would trust."""
    ring = FileKeyring([MINE, THEIRS], "keys/mine")
    with pytest.raises(NoKey, match=r"'theirs' in keys/mine: copy theirs\.secret there") as caught:
        ring.own("theirs")
    assert "`mesh keys new-cluster theirs`" in str(caught.value)
    assert "new-network" not in str(caught.value)
