"""Key files: who has the key of one cluster cannot pass for a node that is in another one as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.frame import CONTROL, DATA, Kind
from mesh.protocol.hello import (
    NO_PROOF,
    UNTRUSTED,
    Hello,
    Proof,
    Welcome,
    decode_hello,
    decode_welcome,
)
from mesh.protocol.link import Link
from mesh.protocol.proving import Prover
from security.announcement import Announcement, read_announcement
from security.keyring import FileKeyring, Keyring, NetworkKeyring
from security.keys import ClusterKeys, derive, generate
from tests.machines import LANES, LIMITS, ME, OTHER

from .peering_bench import HELLO, LARGER, SECRET, WALL_US, WAY_IN, Bench, announce, place, say

OLD_Y = generate("y", b"o" * 64)
X, Y, Z = (derive(SECRET, cluster) for cluster in "xyz")
"""The node in question is in x and y; who has the key of x only wants to pass for it at one in z."""
LINK_ID = HELLO.link_id
RAW = announce(LARGER, clusters=("x", "y"), endpoints=WAY_IN)


def files(*own: ClusterKeys, trusted: Sequence[ClusterKeys]) -> FileKeyring:
    return FileKeyring([*own, *(one.public_half() for one in trusted)])


MEMBER, HIS_PEER = files(X, Y, trusted=[Z]), files(Z, trusted=[X, Y])
CLAIMED = read_announcement(RAW, HIS_PEER, now_us=WALL_US)
IT = Prover(LARGER, ("x", "y"), MEMBER)
"""The node itself."""


def proven(
    proof: Proof, *, keyring: Keyring = HIS_PEER, link_id: bytes = LINK_ID, me: bytes = ME,
    claimed: Announcement = CLAIMED, kind: Kind = Kind.HELLO,
) -> tuple[str, ...]:  # fmt: skip
    prover = Prover(me, ("z",), keyring)
    if kind == Kind.HELLO:
        return prover.proven_by_hello("x", link_id, claimed, proof)
    link = Link(claimed.node, "x", link_id, dialled=True, limits=LIMITS)
    return prover.proven_by_welcome(link, claimed, proof)


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.WELCOME])
def test_who_has_all_the_keys_proves_it_to_one_peer_on_one_link(kind: Kind) -> None:
    proof = IT.prove(kind, LINK_ID, ME, "z")
    assert proven(proof, kind=kind) == ("x", "y")
    other = Kind.WELCOME if kind == Kind.HELLO else Kind.HELLO
    assert proven(proof, kind=other) == ("x",)
    assert proven(proof, kind=kind, link_id=b"l" * 16) == ("x",)
    assert proven(proof, kind=kind, me=OTHER) == ("x",)
    assert proven(proof, kind=kind, claimed=replace(CLAIMED, node=OTHER)) == ("x",)
    assert proven(replace(proof, at="x"), kind=kind) == ("x",), "it is signed, where it is for"
    assert proven(IT.prove(kind, LINK_ID, ME, "x"), kind=kind) == ("x",), "for another cluster"


def test_a_key_proves_its_own_cluster_only() -> None:
    """And none that the node does not say it is in."""
    (x, y) = IT.prove(Kind.HELLO, LINK_ID, ME, "z").signatures
    assert (x[0], y[0]) == (X.key_id, Y.key_id)
    for forged in ((), (x,), ((Y.key_id, x[1]),), ((b"unknown.", y[1]),)):
        assert proven(Proof("z", forged)) == ("x",)
    assert proven(Proof("z", (y,)), claimed=replace(CLAIMED, clusters=("x",))) == ("x",)


def test_while_keys_rotate_either_generation_proves_it() -> None:
    rotating = Prover(LARGER, ("x", "y"), FileKeyring([X, Y, OLD_Y, Z.public_half()]))
    proof = rotating.prove(Kind.HELLO, LINK_ID, ME, "z")
    assert len(proof.signatures) == 3
    assert proven(proof, keyring=files(Z, trusted=[X, OLD_Y])) == ("x", "y")
    assert proven(proof) == ("x", "y")


def test_there_is_nothing_to_prove_of_one_cluster_or_under_one_secret() -> None:
    network = NetworkKeyring([SECRET])
    assert Prover(LARGER, ("x",), MEMBER).prove(Kind.HELLO, LINK_ID, ME, "z") == NO_PROOF
    assert Prover(LARGER, ("x", "y"), network).prove(Kind.HELLO, LINK_ID, ME, "z") == NO_PROOF
    assert proven(NO_PROOF, keyring=network) == ("x", "y")
    assert proven(NO_PROOF) == ("x",)


# What follows for links

PROVEN = replace(HELLO, announcement=RAW, proof=IT.prove(Kind.HELLO, LINK_ID, ME, "x"))
"""To one in x, as the nodes of a bench are."""


def bench() -> Bench:
    return Bench(keyring=files(X, trusted=[Y]))


def test_found_whoever_had_the_key_of_one_of_its_clusters_took_over_its_link() -> None:
    """And got what was asked of the other cluster: an announcement, which all know, was all it took."""
    victim = bench()
    for lane in LANES:
        assert say(victim, replace(PROVEN, lane=lane), b"%d" % lane) == "WELCOME"
    link = victim.peering.links[LARGER]
    assert link.clusters == ("x", "y")
    theirs = replace(PROVEN, proof=NO_PROOF)
    assert say(victim, replace(theirs, link_id=b"l" * 16), b"l") == UNTRUSTED
    assert say(victim, replace(theirs, resume=True), b"r") == UNTRUSTED
    assert say(victim, replace(PROVEN, link_id=b"l" * 16), b"p") == UNTRUSTED, (
        "another link's proof"
    )
    assert victim.peering.links == {LARGER: link}
    assert link.connected


def test_who_proves_less_is_taken_for_no_more_and_gives_way_to_who_proves_more() -> None:
    victim = bench()
    for lane in LANES:
        hello = replace(PROVEN, lane=lane, link_id=b"l" * 16)
        assert say(victim, hello, b"%d" % lane) == "WELCOME"
    assert victim.peering.links[LARGER].clusters == ("x",)
    assert say(victim, PROVEN, b"c") == "WELCOME"
    assert victim.peering.links[LARGER].clusters == ("x", "y")
    assert say(victim, replace(PROVEN, lane=DATA, proof=NO_PROOF), b"d") == UNTRUSTED


def test_who_answers_a_dial_has_to_prove_it_as_well() -> None:
    for signs in (True, False):
        dialling = bench()
        dialling.hear(announce(clusters=("x", "y"), endpoints=[place("127.0.0.1:2")]))
        hellos = [item for item in dialling.take() if isinstance(item, tuple)]
        assert len(hellos) == 2
        for at, (conn, frame) in enumerate(hellos):
            hello = decode_hello(frame[48:])
            it = Prover(hello.target, ("x", "y"), MEMBER)
            proof = it.prove(Kind.WELCOME, hello.link_id, hello.node, "x")
            welcome = Welcome(
                lane=hello.lane, node=hello.target, link_id=hello.link_id, expects=1,
                limits=LIMITS.wire_limits(), announcement=RAW, proof=proof if signs or not at else NO_PROOF,
            )  # fmt: skip
            if signs or not at:
                dialling.answer(conn, Kind.WELCOME, welcome.encode(), lane=hello.lane)
            else:
                with pytest.raises(RemoteProtocolError, match="proves less"):
                    dialling.answer(conn, Kind.WELCOME, welcome.encode(), lane=hello.lane)
        clusters = [link.clusters for link in dialling.peering.links.values() if link.up]
        assert clusters == ([("x", "y")] if signs else [])


# As bytes

SIGNATURE = b"s" * 64
WRONG = {
    "no cluster": [b"z"],
    "a number": ["z", 1],
    "one half": ["z", [X.key_id]],
    "numbers": ["z", [1, 2]],
    "a short key id": ["z", [b"k", SIGNATURE]],
    "a short signature": ["z", [X.key_id, b"s"]],
    "too many": ["z", *[[X.key_id, SIGNATURE]] * 33],
}


class Fake(Proof):
    """What no node of ours says."""

    def fields(self) -> list[object]:
        return [WRONG[self.at]]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_proof_that_is_none_is_a_violation(wrong: str) -> None:
    with pytest.raises(RemoteProtocolError, match="proof"):
        decode_hello(replace(HELLO, proof=Fake(wrong)).encode())


def test_a_proof_travels_in_both_greetings_behind_all_else() -> None:
    assert decode_hello(PROVEN.encode()) == PROVEN
    welcome = Welcome(
        lane=CONTROL, node=LARGER, link_id=LINK_ID, expects=1, limits=LIMITS.wire_limits(), announcement=RAW,
        proof=PROVEN.proof,
    )  # fmt: skip
    assert decode_welcome(welcome.encode()) == welcome
    short: Hello = replace(PROVEN, proof=NO_PROOF)
    assert PROVEN.encode()[1:].startswith(short.encode()[1:])
