"""All nodes known from a valid announcement, linked or not, and tombstones of those that are gone.

An announcement replaces an older one of the same node, never a newer one. A node that left stays refused for
`tombstone_s`; one that was only forgotten is refused until it sends a newer announcement. So a replay has no effect,
and a node that comes back is not kept away. A replay after `tombstone_s`, if the announcement is still valid then,
makes a peer that is dialled in vain until it expires.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from security.announcement import Announcement, read_announcement
from security.keyring import Keyring
from security.keys import DOOR, ClusterKeys

from ..names import short_id
from .link import Link
from .timers import NO_TIMER, Timer


@dataclass(slots=True, eq=False)
class Attempt:
    """A dial under way: an introduction (one connection) or a link (one per lane)."""

    conns: list[int] = field(default_factory=list)
    link: Link | None = None
    welcomed_lanes: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Peer:
    """What this node knows of another one."""

    node: bytes
    raw: bytes
    announcement: Announcement
    link: Link | None = None
    attempt: Attempt | None = None
    knows_us: bool = False
    failures: int = 0
    key_generation: int = 0
    """Which of our own key generations to dial with: the older one helps while keys rotate."""
    up_since_s: float = 0.0
    denials: int = 0
    """Dials in a row that ended because one side does not know the other's key."""
    reached_host: str = ""
    """The host part of the address at which it answered us last."""
    listens: bool = False
    """Whether something has answered at an address that it announces."""
    frames_at_refusal: int | None = None
    """How many frames of its link had come when a probe was refused although the link was connected. If more have
    come since, the process was there nevertheless, as behind a NAT, and a refused probe proves nothing."""
    wrong_nodes: int = 0
    """How many times in a row another node answered at one of its addresses."""
    pending_probes: set[str] = field(default_factory=set)
    """Addresses whose probes have not been refused yet: when none is left, the process is gone."""
    retry_timer: Timer = NO_TIMER
    retry_soon: bool = False
    """Whether the network has changed since the attempt under way began: if it fails, try again soon."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A node that was forgotten. `version`: announcements up to this one are refused; None: all, because it left."""

    until_s: float
    clusters: tuple[str, ...]
    version: tuple[int, int] | None

    def refuses(self, announcement: Announcement, now_s: float) -> bool:
        # If another cluster's key has signed for this node id, only announcements of that cluster are refused.
        if now_s >= self.until_s or announcement.clusters != self.clusters:
            return False
        return self.version is None or announcement.version <= self.version


class PeerPool:
    """Peers in no order. Adding or discarding one, and drawing some at random, takes no time for the others."""

    def __init__(self) -> None:
        self._peers: list[Peer] = []
        self._index_by_node: dict[bytes, int] = {}

    def add(self, peer: Peer) -> None:
        if peer.node not in self._index_by_node:
            self._index_by_node[peer.node] = len(self._peers)
            self._peers.append(peer)

    def discard(self, node: bytes) -> None:
        index = self._index_by_node.pop(node, None)
        if index is None:
            return
        last = self._peers.pop()
        if last.node != node:
            self._peers[index], self._index_by_node[last.node] = last, index

    def draw(self, count: int, rng: Random) -> list[Peer]:
        return rng.sample(self._peers, min(count, len(self._peers)))


@dataclass(slots=True)
class Refusals:
    """Announcements and connections turned away, by reason. Plain counters."""

    log: Callable[[str], None]
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, reason: str, text: str = "") -> None:
        """Count a refusal. `text` is logged for the first one of its reason; empty: nothing to worry about."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if text and self.counts[reason] == 1:
            self.log(text)


class Roster:
    """Peers by node id, learned from announcements."""

    def __init__(
        self, me: bytes, host: bytes, keyring: Keyring, *, skew_s: int, tombstone_s: float,
        peers_max: int, refusals: Refusals,
    ) -> None:  # fmt: skip
        self.me, self.host, self.keyring = me, host, keyring
        self._skew_s, self._tombstone_s, self._peers_max = skew_s, tombstone_s, peers_max
        self._tombstones_max = 4 * peers_max
        self.refusals = refusals
        self.peers: dict[bytes, Peer] = {}
        self._tombstones: dict[bytes, Tombstone] = {}
        """By node, in the order in which they expire."""
        self._by_raw: dict[bytes, Peer] = {}
        self.unreachable = PeerPool()
        """Peers without a link whose dials have failed more than once."""

    def learn(self, raw: bytes, *, now_s: float, wall_us: int) -> tuple[Peer | None, bool]:
        """Take an announcement; return its peer (None: not wanted, or our own) and whether it is news.

        A goodbye is news once; its peer has `announcement.left` then.

        Raises:
            BadAnnouncement: if it is malformed, forged, expired, or of clusters that this keyring does not know.
        """
        known = self._by_raw.get(raw)  # Gossip repeats itself: no second signature check.
        if known is not None:
            return known, False
        announcement = read_announcement(raw, self.keyring, now_us=wall_us, skew_s=self._skew_s)
        node = announcement.node
        if node == self.me:
            return None, False
        peer = self.peers.get(node)
        tombstone = self._tombstones.get(node)
        if tombstone is not None and tombstone.refuses(announcement, now_s):
            self._refuse_gone(left=tombstone.version is None)
            return None, False
        if peer is not None and announcement.version <= peer.announcement.version:
            if announcement.version < peer.announcement.version:
                if peer.announcement.left:
                    self._refuse_gone(left=True)
                else:
                    self._refuse(node, "replayed")
            return peer, False
        if peer is not None and announcement.clusters != peer.announcement.clusters:
            # A node keeps its clusters for life, so this is another cluster's key speaking for it.
            self._refuse(node, "of another's node")
            return None, False
        if peer is None:
            if announcement.left:
                return None, False
            if len(self.peers) >= self._peers_max and not self._make_room():
                text = f"peers_max is {self._peers_max}: node {short_id(node)} is ignored"
                self.refusals.count("peers_max", text)
                return None, False
            peer = self.peers[node] = Peer(node, raw, announcement)
        else:
            self._by_raw.pop(peer.raw, None)
            peer.raw, peer.announcement = raw, announcement
        self._by_raw[raw] = peer
        return peer, True

    def _refuse_gone(self, *, left: bool) -> None:
        """Count it, without logging: gossip may come after a goodbye, or from nodes that have not noticed yet that a
        node is dead."""
        self.refusals.count(f"announcement of a node that {'left' if left else 'is gone'}")

    def _refuse(self, node: bytes, why: str) -> None:
        self.refusals.count(
            f"announcement {why}", f"refused an announcement of node {short_id(node)}: {why}"
        )

    def _make_room(self) -> bool:
        """Forget the peer whose dials failed most often; a node that crashed is known until its announcement expires.
        Return False if there is none."""
        without_link = [peer for peer in self.peers.values() if peer.link is None and peer.failures]
        idle = [peer for peer in without_link if peer.attempt is None]
        if not idle:
            return False
        worst = max(idle, key=lambda peer: peer.failures)
        worst.retry_timer.cancel()
        del self.peers[worst.node], self._by_raw[worst.raw]
        self.unreachable.discard(worst.node)
        return True

    def failed(self, peer: Peer) -> None:
        """Note that a dial has failed, or that the link is gone; `peer.link` has been cleared before."""
        peer.failures += 1
        if peer.failures > 1 and peer.link is None and self.peers.get(peer.node) is peer:
            self.unreachable.add(peer)

    def linked(self, peer: Peer, link: Link) -> None:
        """Note that the peer has a link, which may not be up yet."""
        peer.link = link
        self.unreachable.discard(peer.node)

    def forget(self, node: bytes, *, now_s: float, left: bool = False) -> None:
        """Forget the node, and refuse its announcements so far; if it has `left`, also all later ones."""
        peer = self.peers.pop(node, None)
        if peer is None:
            return
        self._by_raw.pop(peer.raw, None)
        self.unreachable.discard(node)
        tombstones, announcement = self._tombstones, peer.announcement
        tombstones.pop(node, None)
        version = None if left else announcement.version
        tombstones[node] = Tombstone(now_s + self._tombstone_s, announcement.clusters, version)
        while (
            next(iter(tombstones.values())).until_s <= now_s
            or len(tombstones) > self._tombstones_max
        ):
            del tombstones[next(iter(tombstones))]

    def expired(self, *, wall_us: int) -> list[Peer]:
        """Return peers without a link whose announcement has expired."""
        return [
            peer
            for peer in self.peers.values()
            if peer.link is None and peer.announcement.expires_us < wall_us
        ]

    def endpoints(self, peer: Peer, *, door: bool) -> list[tuple[str, ClusterKeys]]:
        """Return where to dial the peer, best first, each with the server key that *our keyring* has for it.

        Only with keys of its first cluster that we trust: the link's cluster is that of the key that answers,
        and must not depend on which end dials, or how often. The peer dials with a key of that cluster, too.
        """
        announcement = peer.announcement
        same_host = announcement.host == self.host
        found: list[tuple[str, ClusterKeys]] = []
        for endpoint in announcement.endpoints:
            keys = self.keyring.by_id(endpoint.key_id)
            if keys is None or keys.cluster != (DOOR if door else announcement.clusters[0]):
                continue
            loopback = is_loopback(endpoint.uri)
            if loopback and not same_host:
                continue
            found.append((endpoint.uri, keys))
        found.sort(
            key=lambda pair: (host_of(pair[0]) != peer.reached_host, not is_loopback(pair[0]))
        )
        return found

    def proving_endpoints(self, peer: Peer) -> list[str]:
        """Return addresses of the peer that prove, if probes of all of them are refused, that its process is gone.

        One is enough if it is certain to be the peer's: the one that led to it before, or our own loopback.
        Others may be another host's as seen from here, such as addresses of bridges, which every host has.
        """
        uris = [uri for uri, _ in self.endpoints(peer, door=False)]
        is_certain = bool(uris) and (host_of(uris[0]) == peer.reached_host or is_loopback(uris[0]))
        return uris[:1] if is_certain else uris

    def announcements_except(self, excluded: bytes, count: int, rng: Random) -> list[bytes]:
        """Return announcements of nodes other than `excluded`: all, or `count` of them at random."""
        others = [peer.raw for node, peer in self.peers.items() if node != excluded]
        return others if len(others) <= count else rng.sample(others, count)


def host_of(uri: str) -> str:
    return uri.rpartition(":")[0]


def is_loopback(uri: str) -> bool:
    return uri.startswith(("tcp://127.", "tcp://[::1]", "tcp://localhost"))
