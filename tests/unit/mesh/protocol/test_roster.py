from __future__ import annotations

from random import Random

import pytest

from mesh.protocol.link import Link
from mesh.protocol.roster import Attempt, Peer, PeerPool, Roster
from security.announcement import Endpoint
from security.errors import BadAnnouncement
from security.keyring import FileKeyring, NetworkKeyring
from security.keys import DOOR, derive
from tests.machines import LIMITS, ME

from .peering_bench import (
    ELSEWHERE,
    HOST,
    LARGER,
    LIFETIME_S,
    SECRET,
    SMALLER,
    TOMBSTONE_S,
    WALL_US,
    announce,
    make_roster,
    place,
)


def learn(roster: Roster, raw: bytes, now_s: float = 0.0) -> tuple[Peer | None, bool]:
    return roster.learn(raw, now_s=now_s, wall_us=WALL_US)


def known(roster: Roster, raw: bytes) -> Peer:
    peer, news = learn(roster, raw)
    assert peer is not None
    assert news
    return peer


def test_an_announcement_makes_a_peer_and_a_newer_one_replaces_it() -> None:
    roster = make_roster()
    peer = known(roster, announce(version=1))
    assert known(roster, announce(version=2)) is peer
    assert (peer.raw, peer.announcement.incarnation) == (announce(version=2), 2)
    assert roster.announcements_except(ME, 5, Random(1)) == [announce(version=2)]
    assert roster.announcements_except(SMALLER, 5, Random(1)) == []


def test_a_replay_changes_nothing() -> None:
    roster = make_roster()
    peer = known(roster, announce(version=2))
    assert learn(roster, announce(version=2)) == (peer, False)
    assert learn(roster, announce(version=1)) == (peer, False)
    assert peer.announcement.incarnation == 2
    assert roster.refusals.counts == {"announcement replayed": 1}


def test_what_is_still_told_of_one_that_leaves_is_no_replay() -> None:
    """Found: gossip that is slower than a goodbye was logged as if somebody did it on purpose."""
    said: list[str] = []
    roster = make_roster(log=said.append)
    known(roster, announce(version=1))
    peer = known(roster, announce(version=2, left=True))
    assert learn(roster, announce(version=1)) == (peer, False)
    assert roster.refusals.counts == {"announcement of a node that left": 1}
    assert not said


def test_of_each_kind_of_refusal_the_first_is_logged() -> None:
    """Found: replays, what another key said of a node, and nodes over the limit were counted only."""
    said: list[str] = []
    roster = make_roster(peers_max=1, log=said.append)
    known(roster, announce(version=2))
    for _ in range(3):
        learn(roster, announce(version=1))
        learn(roster, announce(version=3, clusters=("y",)))
        learn(roster, announce(LARGER))
    kinds = ("announcement replayed", "announcement of another's node", "peers_max")
    assert roster.refusals.counts == dict.fromkeys(kinds, 3)
    assert len(said) == 3
    for line, words in zip(said, ("replayed", "another's node", "peers_max is 1"), strict=True):
        assert words in line


def test_the_same_version_said_otherwise_changes_nothing() -> None:
    roster = make_roster()
    peer = known(roster, announce(endpoints=[place("10.0.0.2:2")]))
    assert learn(roster, announce(endpoints=[place("10.6.6.6:2")])) == (peer, False)
    assert peer.announcement.endpoints == (place("10.0.0.2:2"),)


def test_the_bytes_that_were_replaced_are_checked_again() -> None:
    """Only what stands is taken without a look at its signature."""
    roster = make_roster()
    old = announce(version=1)
    known(roster, old)
    known(roster, announce(version=2))
    with pytest.raises(BadAnnouncement):
        roster.learn(old, now_s=0.0, wall_us=WALL_US + 10**12)


def test_our_own_is_no_peer() -> None:
    roster = make_roster()
    assert learn(roster, announce(ME)) == (None, False)
    assert not roster.peers


def test_a_goodbye_is_news_once_and_only_of_a_known_node() -> None:
    roster = make_roster()
    assert learn(roster, announce(left=True)) == (None, False)
    peer = known(roster, announce(version=1))
    goodbye = announce(version=2, left=True)
    assert learn(roster, goodbye) == (peer, True)
    assert peer.announcement.left
    assert learn(roster, goodbye) == (peer, False)


def test_who_left_stays_away_until_the_tombstone_ends() -> None:
    roster = make_roster()
    known(roster, announce(version=1))
    roster.forget(SMALLER, now_s=5.0, left=True)
    assert not roster.peers
    for raw in (announce(version=1), announce(version=9)):
        assert learn(roster, raw, 5.0 + TOMBSTONE_S - 0.01) == (None, False)
    assert roster.refusals.counts == {"announcement of a node that left": 2}
    peer, news = learn(roster, announce(version=9), 5.0 + TOMBSTONE_S)
    assert (peer is not None, news) == (True, True)


def test_who_was_only_forgotten_is_known_again_by_what_it_says_next() -> None:
    """It was unreachable for its announcement's lifetime: once it is back, nothing keeps it away.

    Found: what others still told of a node that had been killed was logged as replayed.
    """
    said: list[str] = []
    roster = make_roster(log=said.append)
    known(roster, announce(version=2))
    roster.forget(SMALLER, now_s=5.0)
    for version in (1, 2):
        assert learn(roster, announce(version=version), 6.0) == (None, False)
    assert roster.refusals.counts == {"announcement of a node that is gone": 2}
    assert not said
    known(roster, announce(version=3))


def test_what_another_cluster_said_of_a_node_keeps_nobody_away_but_it() -> None:
    roster = make_roster()
    known(roster, announce(version=1, clusters=("y",)))
    roster.forget(SMALLER, now_s=0.0, left=True)
    assert learn(roster, announce(version=2, clusters=("y",))) == (None, False)
    known(roster, announce(version=1, clusters=("x",)))


def test_tombstones_that_ended_are_forgotten_and_there_are_four_for_each_peer_at_most() -> None:
    roster, nodes = make_roster(peers_max=1), [bytes([number]) * 16 for number in range(6)]
    for node in nodes[:5]:
        known(roster, announce(node))
        roster.forget(node, now_s=0.0)
    assert list(roster._tombstones) == nodes[1:5]
    known(roster, announce(nodes[5]))
    roster.forget(nodes[5], now_s=TOMBSTONE_S)
    assert list(roster._tombstones) == nodes[5:]


def test_peers_over_the_limit_are_refused_and_counted() -> None:
    roster = make_roster(peers_max=2)
    for node in (SMALLER, LARGER):
        known(roster, announce(node))
    assert learn(roster, announce(b"c" * 16)) == (None, False)
    assert roster.refusals.counts == {"peers_max": 1}
    known(roster, announce(LARGER, version=2))
    roster.forget(SMALLER, now_s=0.0)
    known(roster, announce(b"c" * 16))


def test_a_peer_that_could_not_be_reached_makes_room_for_a_new_one() -> None:
    """A crash leaves one for its lifetime; who is linked or being dialled stays."""
    roster = make_roster(peers_max=4)
    nodes = [bytes([number]) * 16 for number in range(4)]
    linked, dialled, unlucky, lost = (known(roster, announce(node)) for node in nodes)
    linked.link = Link(linked.node, "x", b"k" * 16, dialled=True, limits=LIMITS)
    dialled.attempt = Attempt()
    linked.failures = dialled.failures = 9
    for peer in (unlucky, lost, lost):
        roster.failed(peer)
    assert roster.unreachable.draw(9, Random(7)) == [lost]
    for number in (4, 5):
        known(roster, announce(bytes([number]) * 16))
    assert list(roster.peers) == [linked.node, dialled.node, bytes([4]) * 16, bytes([5]) * 16]
    assert learn(roster, announce(LARGER)) == (None, False)
    assert learn(roster, lost.raw) == (None, False), "not known by its announcement either"
    roster.failed(lost)  # A dial that was under way when it was forgotten.
    assert roster.unreachable.draw(9, Random(7)) == []


def test_a_pool_is_a_set_to_draw_from() -> None:
    """Against a dict, which has the order that a pool gives up."""
    rng = Random(7)
    peers = [known(make_roster(), announce(bytes([number]) * 16)) for number in range(8)]
    pool, oracle = PeerPool(), dict[bytes, Peer]()
    for _ in range(500):
        peer = rng.choice(peers)
        if rng.random() < 0.5:
            pool.add(peer)
            oracle[peer.node] = peer
        else:
            pool.discard(peer.node)
            oracle.pop(peer.node, None)
        drawn = pool.draw(len(peers), rng)
        assert len(drawn) == len(oracle)
        assert {one.node: one for one in drawn} == oracle
        assert len(pool.draw(3, rng)) == min(3, len(oracle))


def test_the_key_of_another_cluster_cannot_speak_for_a_node() -> None:
    roster = make_roster()
    peer = known(roster, announce(version=1, clusters=("x",)))
    for clusters in (("y",), ("x", "y")):
        assert learn(roster, announce(version=2, clusters=clusters)) == (None, False)
        assert learn(roster, announce(version=2, clusters=clusters, left=True)) == (None, False)
    assert roster.peers == {SMALLER: peer}
    assert (peer.announcement.clusters, peer.announcement.left) == (("x",), False)
    assert roster.refusals.counts == {"announcement of another's node": 4}


def test_a_peer_without_a_link_expires() -> None:
    roster = make_roster()
    peer, linked = known(roster, announce(SMALLER)), known(roster, announce(LARGER))
    linked.link = Link(LARGER, "x", b"k" * 16, dialled=True, limits=LIMITS)
    ends_us = WALL_US + LIFETIME_S * 10**6
    assert roster.expired(wall_us=ends_us) == []
    assert roster.expired(wall_us=ends_us + 1) == [peer]


def uris(roster: Roster, endpoints: list[Endpoint], host: bytes, *, door: bool) -> list[str]:
    peer = known(roster, announce(endpoints=endpoints, host=host))
    return [uri.removeprefix("tcp://") for uri, _ in roster.endpoints(peer, door=door)]


ENDPOINTS = [
    place("10.0.0.2:1", DOOR), place("10.0.0.2:2"), place("192.168.1.2:2"), place("127.0.0.1:1", DOOR),
    place("localhost:2"), place("127.0.0.1:2"), place("[::1]:2"),
]  # fmt: skip


def test_loopback_is_first_on_the_same_host_and_elsewhere_not_there() -> None:
    assert uris(make_roster(), ENDPOINTS, HOST, door=False) == [
        "localhost:2", "127.0.0.1:2", "[::1]:2", "10.0.0.2:2", "192.168.1.2:2",
    ]  # fmt: skip
    assert uris(make_roster(), ENDPOINTS, ELSEWHERE, door=False) == ["10.0.0.2:2", "192.168.1.2:2"]
    assert uris(make_roster(), ENDPOINTS, HOST, door=True) == ["127.0.0.1:1", "10.0.0.2:1"]
    assert uris(make_roster(), ENDPOINTS, ELSEWHERE, door=True) == ["10.0.0.2:1"]


def test_where_it_answered_before_is_first_and_the_one_place_that_tells_whether_it_lives() -> None:
    roster = make_roster()
    peer = known(roster, announce(endpoints=ENDPOINTS, host=ELSEWHERE))
    both = ["tcp://10.0.0.2:2", "tcp://192.168.1.2:2"]
    assert roster.proving_endpoints(peer) == both
    peer.reached_host = "tcp://192.168.1.2"
    assert [uri for uri, _ in roster.endpoints(peer, door=False)] == both[::-1]
    assert roster.proving_endpoints(peer) == both[1:]
    neighbour = known(roster, announce(LARGER, endpoints=ENDPOINTS))
    assert roster.proving_endpoints(neighbour) == ["tcp://localhost:2"]


def test_only_endpoints_under_a_key_of_ours_and_a_claimed_cluster_are_dialled() -> None:
    keyring = NetworkKeyring([SECRET])
    keyring.own("other")
    roster = make_roster(keyring=keyring)
    unknown = Endpoint("tcp://10.0.0.2:3", b"strange!")
    found = uris(
        roster, [unknown, place("10.0.0.2:4", "other"), place("10.0.0.2:5")], HOST, door=False
    )
    assert found == ["10.0.0.2:5"]


def test_of_several_clusters_only_the_first_that_is_trusted_is_dialled() -> None:
    """Found: at each failed dial at another's, so what the peer was taken for was up to chance."""
    endpoints = [place("10.0.0.2:1", "b"), place("127.0.0.1:2", "b"), place("10.0.0.2:3", "a")]
    raw = announce(endpoints=endpoints, clusters=("a", "b"))
    roster = make_roster()
    peer = known(roster, raw)
    assert [(uri, keys.cluster) for uri, keys in roster.endpoints(peer, door=False)] == [
        ("tcp://10.0.0.2:3", "a")
    ]
    only_b = make_roster(keyring=FileKeyring([derive(SECRET, "b")]))
    peer = known(only_b, raw)
    assert {keys.cluster for _, keys in only_b.endpoints(peer, door=False)} == {"b"}


def test_no_more_are_told_of_than_asked_for_and_each_at_some_time() -> None:
    roster, rng = make_roster(peers_max=20), Random(1)
    nodes = [b"%016d" % n for n in range(20)]
    raws = {announce(node) for node in nodes}
    for raw in raws:
        roster.learn(raw, now_s=0.0, wall_us=WALL_US)
    excluded = announce(nodes[3])
    told = [roster.announcements_except(nodes[3], 4, rng) for _ in range(100)]
    assert {len(some) for some in told} == {4}
    assert {raw for some in told for raw in some} == raws - {excluded}
