"""The dialling side: from a found address to a link that both ends have welcomed.

    address ──INTRODUCE──> INTRODUCED: announcements ──> peers without a link
    peer ──(INTRODUCE, if it cannot know our key yet)──> HELLO x 2 lanes ──> WELCOME x 2 ──> link

libzmq never reconnects a connection; this node dials a new one instead. So HELLO is the first frame of
every connection, and a connection belongs to one lane of one link for good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from security.errors import BadAnnouncement
from security.keys import ClusterKeys

from ..errors import RemoteProtocolError
from ..names import short_id
from .connections import Connections
from .frame import CONTROL, DATA, Kind, pack_frame, pack_record
from .hello import (
    CLOCK,
    CROSSING,
    GONE,
    NOT_ME,
    UNTRUSTED,
    Hello,
    Welcome,
    decode_announcements,
    decode_welcome,
    encode_announcements,
)
from .instructions import Dial, Instruction
from .lane import Conn
from .link import Link, LinkLimits, negotiate_limits
from .proving import Prover
from .roster import Attempt, Peer, Roster, host_of
from .seeds import LinkTable, Seed, Seeds
from .timers import Timers

BACKOFF_S, BACKOFF_S_MAX = 0.1, 5.0
TIMEOUT_FACTOR_MAX = 4
"""After failures a dial may take up to so many times `handshake_s`: machines too busy for a handshake in that
time, or too far away, would otherwise spend all their time on handshakes that fail."""
RETRY_SOON_MAX = 16
"""Most peers that are tried again at once when some link has come up."""
DENIALS_LOGGED_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PeeringSettings:
    me: bytes
    clusters: tuple[str, ...]
    limits: LinkLimits
    idempotent: tuple[str, ...]
    handshake_s: float
    resume_s: float


@dataclass(slots=True, eq=False)
class PendingDial:
    """A dialled connection without an answer yet: an introduction if `link` is None, otherwise one lane of a
    new link or, with `resume`, of an existing one."""

    owner: Peer | Seed
    lane: int
    link: Link | None = None
    resume: bool = False
    prior_attempts: int = 0
    """How many attempts to resume there were before: each is at the next address of the peer."""
    endpoint: str = ""
    due_s: float = math.inf
    """When it has failed if there is no answer."""

    @property
    def failures(self) -> int:
        """Failed dials in a row before this one."""
        if self.resume:
            return self.prior_attempts
        return self.owner.misses if isinstance(self.owner, Seed) else self.owner.failures


class LinkOwner(LinkTable, Protocol):
    """What the dialler and the acceptor need of peering."""

    announcement: bytes
    prover: Prover

    def learn_peer(self, raw: bytes, now_s: float, *, dial: bool = True) -> Peer | None: ...
    def bind(
        self, conn: Conn, link: Link, peer: Peer, lane: int, expects: int,
        idempotent: Sequence[str], now_s: float,
    ) -> None: ...  # fmt: skip
    def fail(
        self, link: Link, reason: str, *, now_s: float, process_gone: bool = False
    ) -> None: ...
    def probe(self, peer: Peer) -> None: ...
    def refuse_announcement(self, error: BadAnnouncement) -> None: ...


class Dialler:
    """Owns each connection that this node has opened, until the connection belongs to a link."""

    def __init__(
        self, settings: PeeringSettings, roster: Roster, timers: Timers, rng: Random,
        out: list[Instruction], connections: Connections, peering: LinkOwner,
    ) -> None:  # fmt: skip
        self._settings, self._roster, self._timers, self._rng = settings, roster, timers, rng
        self._out, self._connections, self._peering = out, connections, peering
        self._pending_dials: dict[Conn, PendingDial] = {}
        self.seeds = Seeds(roster, timers, self, peering)
        self._next_conn = 0

    # Opening

    def connect(self, peer: Peer, now_s: float) -> None:
        """Take the next step towards a link with `peer`: introduce this node, dial, or wait for the peer's dial."""
        if peer.link is not None or peer.attempt is not None or self._peering.closing:
            return
        if self._roster.peers.get(peer.node) is not peer:
            return
        doors = self._roster.endpoints(peer, door=True)
        # Without a door (per-cluster key files) introductions go to the peer's own endpoint. Only the node
        # that must not dial needs them there: with one it asks the peer to dial.
        endpoints = doors or self._roster.endpoints(peer, door=False)
        if not endpoints:
            return
        if self._must_introduce(peer, doors=bool(doors)):
            endpoint, server = endpoints[peer.failures % len(endpoints)]
            peer.attempt = Attempt()
            client_keys = self.client_keys()
            client_key = client_keys[peer.key_generation % len(client_keys)]
            peer.attempt.conns.append(self.introduce(peer, endpoint, server, client_key, now_s))
        elif self._settings.me > peer.node or peer.failures:
            self._dial_link(peer, now_s)
        else:
            self._roster.failed(peer)
            self.connect_later(peer, now_s, self._settings.handshake_s)

    def _must_introduce(self, peer: Peer, *, doors: bool) -> bool:
        """Return whether the peer must know of us first: to admit our key, or because it is the one that dials."""
        if peer.knows_us:
            return False
        if self._settings.me < peer.node:
            return True
        # A peer of our own cluster has its key, but perhaps not the generation that we use.
        ours = self._settings.clusters[0] in peer.announcement.clusters
        return doors and (not ours or peer.denials > 0)

    def connect_later(self, peer: Peer, now_s: float, delay_s: float) -> None:
        """Try again after `delay_s`, and not when it was planned before: otherwise plans and dials would multiply."""
        peer.retry_timer.cancel()
        peer.retry_timer = self._timers.call_at(
            now_s + delay_s, lambda now: self.connect(peer, now)
        )

    def retry_others_soon(self, now_s: float) -> None:
        """Try some other peers soon: a link came up, or its path is back, so what kept them away may be over, too."""
        for peer in self._roster.unreachable.draw(RETRY_SOON_MAX, self._rng):
            if peer.attempt is None:
                self.connect_later(peer, now_s, self._rng.uniform(0, BACKOFF_S))
            else:
                peer.retry_soon = True  # Soon after this attempt, begun too early, has failed.

    def backoff_s(self, failures: int) -> float:
        spread = self._rng.uniform(0.75, 1.25)
        return float(min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(failures, 10)) * spread)

    def redial(self, link: Link, now_s: float, prior_attempts: int = 0) -> None:
        """Dial each lane of an established link that has no connection, to resume it.

        The first attempt goes to the address at which the link was made, others to the peer's other addresses.
        """
        peer = self._roster.peers.get(link.peer)
        if self._peering.links.get(link.peer) is not link or peer is None:
            return
        endpoints = self._roster.endpoints(peer, door=False)
        if not endpoints:
            return
        endpoint, server = endpoints[prior_attempts % len(endpoints)]
        dialling = {dial.lane for dial in self._pending_dials.values() if dial.link is link}
        for lane in (CONTROL, DATA):
            if link.lane(lane).conn is None and lane not in dialling:
                self._dial_lane(
                    peer, link, lane, endpoint, server, now_s, resume=True,
                    prior_attempts=prior_attempts,
                )  # fmt: skip

    def client_keys(self) -> tuple[ClusterKeys, ...]:
        """Return the keys with which this node introduces itself, newest generation first."""
        return self._roster.keyring.door() or self._own_keys()

    def _own_keys(self) -> tuple[ClusterKeys, ...]:
        return self._roster.keyring.own(self._settings.clusters[0])

    def _open(
        self, dial: PendingDial, endpoint: str, server: ClusterKeys, client: ClusterKeys, kind: int,
        body: bytes, now_s: float,
    ) -> int:  # fmt: skip
        self._next_conn += 1
        conn = self._next_conn
        self._pending_dials[conn] = dial
        dial.endpoint = endpoint
        dial.due_s = now_s + self._timeout_s(dial)
        self._timers.call_at(dial.due_s, lambda now: self._on_timeout(conn, now))
        self._out.append(Dial(conn, dial.lane, endpoint, server, client))
        self._out.append((conn, greeting(dial.lane, kind, body)))
        return conn

    def _timeout_s(self, dial: PendingDial) -> float:
        return self._settings.handshake_s * min(1 + dial.failures, TIMEOUT_FACTOR_MAX)

    def dialled(self, conn: int, now_s: float) -> None:
        """Count the time allowed from now, when the shell has dialled: a loop that is late may have taken most of it
        between the instruction and the dial."""
        dial = self._pending_dials.get(conn)
        if dial is not None:
            dial.due_s = now_s + self._timeout_s(dial)

    def introduce(
        self, owner: Peer | Seed, endpoint: str, server: ClusterKeys, client: ClusterKeys,
        now_s: float,
    ) -> int:  # fmt: skip
        body = encode_announcements([self._peering.announcement])
        dial = PendingDial(owner, CONTROL)
        return self._open(dial, endpoint, server, client, Kind.INTRODUCE, body, now_s)

    def _dial_link(self, peer: Peer, now_s: float) -> None:
        endpoints = self._roster.endpoints(peer, door=False)
        if not endpoints:
            return
        endpoint, server = endpoints[peer.failures % len(endpoints)]
        link = Link(
            peer.node, server.cluster, self._rng.randbytes(16), dialled=True,
            limits=self._settings.limits,
        )  # fmt: skip
        peer.attempt = attempt = Attempt(link=link)
        for lane in (CONTROL, DATA):
            attempt.conns.append(self._dial_lane(peer, link, lane, endpoint, server, now_s))

    def _dial_lane(
        self, peer: Peer, link: Link, lane: int, endpoint: str, server: ClusterKeys, now_s: float,
        *, resume: bool = False, prior_attempts: int = 0,
    ) -> int:  # fmt: skip
        settings, own_keys = self._settings, self._own_keys()
        hello = Hello(
            lane=lane, node=settings.me, target=peer.node, link_id=link.link_id,
            resume=resume, expects=link.lane(lane).expected, limits=settings.limits.wire_limits(),
            announcement=self._peering.announcement, idempotent=settings.idempotent,
            proof=self._peering.prover.prove(Kind.HELLO, link.link_id, peer.node, server.cluster),
        )  # fmt: skip
        client = own_keys[peer.key_generation % len(own_keys)]
        dial = PendingDial(peer, lane, link, resume, prior_attempts)
        return self._open(dial, endpoint, server, client, Kind.HELLO, hello.encode(), now_s)

    # Closing

    def leave(self, body: bytes) -> None:
        """Say goodbye behind each HELLO, too: a peer that accepts both lanes' HELLOs has the link before we do."""
        for conn, dial in self._pending_dials.items():
            link = dial.link
            if link is not None and not dial.resume:
                control_conn = conn if dial.lane == CONTROL else link.control.conn
                if control_conn is not None:
                    self._out.append((control_conn, link.bye_frame(body)))

    def hang_up(self, conn: Conn) -> None:
        """Give up a dial."""
        self._pending_dials.pop(conn, None)
        self._connections.hang_up(conn)

    def end_attempt(self, peer: Peer) -> None:
        attempt, peer.attempt = peer.attempt, None
        for conn in attempt.conns if attempt is not None else ():
            self.hang_up(conn)

    def forget(self, link: Link) -> None:
        """Give up the dials to resume a link that is given up."""
        for conn in [conn for conn, dial in self._pending_dials.items() if dial.link is link]:
            self.hang_up(conn)

    def _on_timeout(self, conn: int, now_s: float) -> None:
        dial = self._pending_dials.get(conn)
        if dial is not None and now_s < dial.due_s:
            self._timers.call_at(dial.due_s, lambda now: self._on_timeout(conn, now))
        elif dial is not None:
            self._connections.hang_up(conn)
            self.lost(conn, now_s)

    def lost(self, conn: Conn, now_s: float, *, denied: bool = False) -> None:
        """Note that a dial has failed, if `conn` is of one. `denied`: because the peer does not admit our key, or does
        not have the one that we expect."""
        dial = self._pending_dials.pop(conn, None)
        if dial is None:
            return
        owner, link = dial.owner, dial.link
        if isinstance(owner, Seed):
            self.seeds.failed(owner, now_s)
            return
        if denied:
            owner.key_generation += 1
            owner.knows_us = False
            owner.denials += 1
            if owner.denials >= DENIALS_LOGGED_MIN:
                self._roster.refusals.count(
                    "denied",
                    f"node {short_id(owner.node)} does not accept our key, or has another key than it announced",
                )
        if link is not None and dial.resume:
            self._peering.probe(owner)
            self._redial_later(dial, link, now_s)
        else:
            self.try_again(owner, now_s)

    def _redial_later(self, dial: PendingDial, link: Link, now_s: float) -> None:
        prior_attempts = dial.prior_attempts + 1
        self._timers.call_at(now_s + BACKOFF_S, lambda now: self.redial(link, now, prior_attempts))

    def try_again(self, peer: Peer, now_s: float) -> None:
        """End an attempt that has failed; plan another one, perhaps at another address."""
        self._roster.failed(peer)
        self.end_attempt(peer)
        retry_soon, peer.retry_soon = peer.retry_soon, False
        self.connect_later(peer, now_s, BACKOFF_S if retry_soon else self.backoff_s(peer.failures))
        self.seeds.ask_later_for(peer.node, now_s)

    # Answers

    def answered(self, conn: Conn, kind: int, body: bytes, now_s: float) -> None:
        """Process the first frame on a connection that this node has opened.

        Raises:
            RemoteProtocolError: if it is no answer, or an impossible one. The dial is still to be ended, by `lost`.
        """
        if kind == Kind.INTRODUCED:
            self._introduced(conn, body, now_s)
        elif kind == Kind.WELCOME:
            self._welcomed(conn, decode_welcome(body), now_s)
        elif kind == Kind.REFUSE:
            self._refused(conn, body.decode("ascii", "replace"), now_s)
        else:
            raise RemoteProtocolError(f"record type {kind} before WELCOME")

    def _introduced(self, conn: Conn, body: bytes, now_s: float) -> None:
        """Process an INTRODUCED. The first announcement in it is that of the node that answers."""
        dial = self._pending_dials.get(conn)
        if dial is None or dial.link is not None:
            raise RemoteProtocolError("INTRODUCED without INTRODUCE")
        announcements = decode_announcements(body)
        self.hang_up(conn)
        owner = dial.owner
        for at, raw in enumerate(announcements):
            try:
                peer = self._peering.learn_peer(raw, now_s)
            except BadAnnouncement as error:
                self._peering.refuse_announcement(error)
                continue
            if at == 0 and peer is not None:
                peer.knows_us = True
            if at == 0 and isinstance(owner, Seed):
                node, ours = (
                    peer.node if peer is not None else b"",
                    raw == self._peering.announcement,
                )
                self.seeds.answered(owner, node, now_s, ours=ours)
        if isinstance(owner, Seed):
            owner.awaits_answer = False
            return
        owner.attempt = None
        if owner.knows_us:
            owner.listens = True
            self.connect(owner, now_s)
        else:  # Another node answers at an address that this one has announced.
            self.try_again(owner, now_s)

    def _welcomed(self, conn: Conn, welcome: Welcome, now_s: float) -> None:
        """Process a WELCOME on one lane. A new link counts as a link once both lanes have theirs."""
        dial = self._pending_dials.get(conn)
        if dial is None or dial.link is None or not isinstance(dial.owner, Peer):
            raise RemoteProtocolError("WELCOME without HELLO")
        peer, link, attempt = dial.owner, dial.link, dial.owner.attempt
        expected = dial.lane, link.link_id, peer.node
        if (welcome.lane, welcome.link_id, welcome.node) != expected:
            raise RemoteProtocolError("WELCOME for another link")
        if not dial.resume and (attempt is None or attempt.link is not link):
            raise RemoteProtocolError("WELCOME for a link that was given up")
        link.lane(dial.lane).check_resume(welcome.expects)
        proven = self._peering.prover.proven_by_welcome(link, peer.announcement, welcome.proof)
        if not link.take_proof(proven):
            raise RemoteProtocolError("WELCOME that proves less than the previous one")
        limits = negotiate_limits(link.limits, welcome.limits)
        # No check has failed. Until here the dial had to stay in the table, because an error leads to `lost`,
        # which plans another attempt only for a dial that it finds there.
        del self._pending_dials[conn]
        if attempt is not None and not dial.resume:
            link.adopt(limits)
            attempt.welcomed_lanes.add(dial.lane)
            if len(attempt.welcomed_lanes) == 2:
                peer.attempt, peer.reached_host, peer.listens = None, host_of(dial.endpoint), True
                self._roster.linked(peer, link)
                self._peering.links[peer.node] = link
        self._peering.bind(conn, link, peer, dial.lane, welcome.expects, welcome.idempotent, now_s)

    def _refused(self, conn: Conn, reason: str, now_s: float) -> None:
        """Process a REFUSE, with one of the reasons of hello.py."""
        dial = self._pending_dials.get(conn)
        self.hang_up(conn)
        if dial is None:
            return
        if isinstance(dial.owner, Seed):
            self.seeds.refused(dial.owner, reason, now_s)
            return
        peer, link = dial.owner, dial.link
        wrong_node = reason == NOT_ME
        if link is not None and dial.resume:
            if wrong_node and host_of(dial.endpoint) != peer.reached_host:
                self._redial_later(dial, link, now_s)
            else:
                self._peering.fail(
                    link, f"refused by the peer: {reason}", now_s=now_s, process_gone=wrong_node
                )
            return
        self.end_attempt(peer)
        peer.wrong_nodes = peer.wrong_nodes + 1 if wrong_node else 0
        if wrong_node and peer.wrong_nodes >= len(self._roster.endpoints(peer, door=False)):
            self._roster.forget(peer.node, now_s=now_s)
            self.seeds.ask_later_for(peer.node, now_s)
            return
        self._roster.failed(peer)
        if reason in (UNTRUSTED, CLOCK, GONE):
            peer.knows_us = False
        crossing_s = 2 * self._settings.handshake_s
        self.connect_later(
            peer, now_s, crossing_s if reason == CROSSING else self.backoff_s(peer.failures)
        )


def greeting(lane: int, kind: int, body: bytes) -> bytes:
    """Return a frame outside the sequence with one record."""
    return pack_frame(lane, 0, 0, 0, 1, [pack_record(kind, 0, body)])
