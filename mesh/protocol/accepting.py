"""The accepting side: answers the introductions and greetings of nodes that have dialled this one.

INTRODUCE         ──> INTRODUCED, and a dial back
HELLO, new link   ──> untrusted | crossing | not me | WELCOME, and an older link is given up
HELLO, resume     ──> gone | WELCOME with what was received, then everything after that again
"""

from __future__ import annotations

from random import Random

from security.errors import Ahead, BadAnnouncement, Expired
from security.keys import DOOR

from ..errors import RemoteProtocolError
from .connections import Connections
from .dialling import Dialler, LinkOwner, PeeringSettings, greeting
from .frame import CONTROL, Kind
from .hello import (
    ANNOUNCEMENTS_MAX,
    BAD,
    CLOCK,
    CROSSING,
    FULL,
    GONE,
    NOT_ME,
    UNTRUSTED,
    Hello,
    Welcome,
    decode_announcement,
    decode_hello,
    encode_announcements,
)
from .instructions import Instruction
from .lane import Conn
from .link import Link, negotiate_limits
from .roster import Peer, Roster
from .timers import Timers

DIAL_BACK_DELAY_S = 0.005


class Acceptor:
    """Answers the first frame of each connection that another node has opened."""

    def __init__(
        self, settings: PeeringSettings, roster: Roster, timers: Timers, rng: Random,
        out: list[Instruction], connections: Connections, dialler: Dialler, peering: LinkOwner,
    ) -> None:  # fmt: skip
        self._settings, self._roster, self._timers, self._rng = settings, roster, timers, rng
        self._out, self._connections = out, connections
        self._dialler, self._peering = dialler, peering

    def greeted(
        self, conn: Conn, cluster: str, lane: int, kind: int, body: bytes, now_s: float
    ) -> None:
        """Answer the first frame of a connection. `cluster`: the one whose key the dialler has.

        Raises:
            RemoteProtocolError: if it is not a greeting, or an impossible one.
        """
        try:
            if kind == Kind.INTRODUCE:
                self._on_introduce(conn, body, now_s)
            elif kind == Kind.HELLO:
                hello = decode_hello(body)
                refusal = self._on_hello(conn, cluster, hello, now_s)
                if refusal is not None:
                    self._send_greeting(conn, hello.lane, Kind.REFUSE, refusal.encode())
            else:
                raise RemoteProtocolError(f"record type {kind} before HELLO")
        except BadAnnouncement as error:
            self._peering.refuse_announcement(error)
            reason = CLOCK if isinstance(error, Ahead | Expired) else UNTRUSTED
            self._send_greeting(conn, lane, Kind.REFUSE, reason.encode())

    def _send_greeting(self, conn: Conn, lane: int, kind: int, body: bytes) -> None:
        self._out.append((conn, greeting(lane, kind, body)))

    def _on_introduce(self, conn: Conn, body: bytes, now_s: float) -> None:
        peer = self._peering.learn_peer(decode_announcement(body, "INTRODUCE"), now_s, dial=False)
        # Our own announcement first, then enough others to start from. Links bring the rest.
        excluded = peer.node if peer else b""
        others = self._roster.announcements_except(excluded, ANNOUNCEMENTS_MAX - 1, self._rng)
        answer = encode_announcements([self._peering.announcement, *others])
        self._send_greeting(conn, CONTROL, Kind.INTRODUCED, answer)
        if peer is not None:
            # Our answer must arrive before our dial, or the peer does not know our key and refuses it.
            peer.knows_us = True
            self._dialler.connect_later(peer, now_s, DIAL_BACK_DELAY_S)

    def _on_hello(self, conn: Conn, cluster: str, hello: Hello, now_s: float) -> str | None:
        """Accept the HELLO, or return the reason to refuse it."""
        if hello.target != self._settings.me:
            return NOT_ME
        if hello.node == self._settings.me or cluster == DOOR:
            return BAD
        peer = self._peering.learn_peer(hello.announcement, now_s, dial=False)
        if peer is None or peer.node != hello.node or cluster not in peer.announcement.clusters:
            return UNTRUSTED
        peer.knows_us = True
        link, announced = peer.link, peer.announcement
        proven = self._peering.prover.proven_by_hello(
            cluster, hello.link_id, announced, hello.proof
        )
        if link is not None and not link.take_proof(proven):
            return UNTRUSTED
        if link is not None and link.link_id == hello.link_id:
            if link.cluster != cluster or link.dialled:
                return BAD
            # First: if it raised once the old connection is closed, the link would stay without this lane for ever.
            link.lane(hello.lane).check_resume(hello.expects)
            old_conn = link.lane(hello.lane).conn
            if old_conn is not None:
                self._connections.hang_up(old_conn)
                link.detach(old_conn)
        elif hello.resume:
            self._dialler.connect(peer, now_s)
            return GONE
        else:
            if self._peering.closing:
                return FULL
            if self._own_dial_wins(peer, now_s):
                return CROSSING
            link = self._new_link(peer, cluster, hello, now_s)
            link.take_proof(proven)
        self._accept(conn, link, peer, hello, now_s)
        return None

    def _own_dial_wins(self, peer: Peer, now_s: float) -> bool:
        """Return whether our own dial to the same node, under way or just completed, has precedence."""
        if self._settings.me < peer.node:
            return False
        dialling = peer.attempt is not None and peer.attempt.link is not None
        link, recent_s = peer.link, 2 * self._settings.handshake_s
        recent = link is not None and link.dialled and now_s - peer.up_since_s < recent_s
        return dialling or recent

    def _new_link(self, peer: Peer, cluster: str, hello: Hello, now_s: float) -> Link:
        limits = negotiate_limits(self._settings.limits, hello.limits)
        link = Link(peer.node, cluster, hello.link_id, dialled=False, limits=limits)
        # Before an older link is given up for it.
        link.lane(hello.lane).check_resume(hello.expects)
        if peer.link is not None:
            self._peering.fail(peer.link, "the peer started a new link", now_s=now_s)
        self._dialler.end_attempt(peer)
        self._peering.links[peer.node] = link
        self._roster.linked(peer, link)
        half_open_s = 2 * self._settings.handshake_s
        self._timers.call_at(now_s + half_open_s, lambda now: self._fail_half_open(link, now))
        return link

    def _fail_half_open(self, link: Link, now_s: float) -> None:
        if not link.up and self._peering.links.get(link.peer) is link:
            self._peering.fail(link, "the peer never opened the second lane", now_s=now_s)

    def _accept(self, conn: Conn, link: Link, peer: Peer, hello: Hello, now_s: float) -> None:
        lane, settings, peering = link.lane(hello.lane), self._settings, self._peering
        welcome = Welcome(
            lane=hello.lane, node=settings.me, link_id=link.link_id, expects=lane.expected,
            limits=settings.limits.wire_limits(),
            announcement=peering.announcement, idempotent=settings.idempotent,
            proof=peering.prover.prove(Kind.WELCOME, link.link_id, peer.node, link.cluster),
        )  # fmt: skip
        self._send_greeting(conn, hello.lane, Kind.WELCOME, welcome.encode())
        peering.bind(conn, link, peer, hello.lane, hello.expects, hello.idempotent, now_s)
