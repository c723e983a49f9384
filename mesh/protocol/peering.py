"""Peering: which links there are, how they are lost, and when they are given up.

One link per pair of nodes. The node that learns of the other one first introduces itself at once. Then the
node with the larger id dials; the other one waits `handshake_s` and dials if nothing came, because the
larger one may be unable to reach it. If both are in one cluster, the larger one dials without introducing
itself, because its key is known. If dials cross all the same, that of the larger id wins.

    link made     by dialling.py or accepting.py; up once both lanes have a connection
    lane lost     the dialler redials, both ends probe; after `resume_s` the link is given up
    goodbye       the link is given up, and its node stays away
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from random import Random
from typing import Protocol

from security.announcement import SIZE_BYTES_MAX
from security.errors import BadAnnouncement

from ..errors import RemoteProtocolError
from ..names import short_id
from .accepting import Acceptor
from .connections import Connections
from .dialling import Dialler, PeeringSettings
from .frame import Frame, Kind
from .hello import ANNOUNCEMENTS_MAX, decode_announcement, encode_announcements
from .instructions import Instruction, Probe, ProbeResult
from .lane import Conn
from .link import Link
from .proving import Prover
from .roster import Peer, Roster
from .timers import Timers

ANNOUNCEMENT_BYTES_MAX = SIZE_BYTES_MAX + 8
"""Most bytes that an announcement takes in a record with several."""
PROCESS_GONE_FAILURES = 3
"""How many failed dials a refused probe counts as."""
IN_FLIGHT_S = 0.1
"""Seconds after a refused probe within which frames prove nothing: the process may have sent them, then ended, and
the probe was refused because it had."""
HEARSAY_S = 1.0
"""Seconds for which to wait for the goodbye of a node that has left according to others: twice as long as a node
that leaves waits for us."""


class Ending(Enum):
    """How a link ended for good."""

    LOST = "lost"
    LEFT = "left"
    """The peer said goodbye, and so has acknowledged all that it will ever take."""
    HEARSAY = "left, according to others"
    """According to others the peer has left, and no goodbye came from itself."""


class PeeringListener(Protocol):
    """What peering reports to the core."""

    def link_up(self, link: Link, peer: Peer, idempotent: Sequence[str]) -> None: ...
    def path_lost(self, link: Link) -> None: ...
    def path_back(self, link: Link) -> None: ...
    def left_by_hearsay(self, link: Link) -> None: ...
    def link_down(self, link: Link, reason: str, ending: Ending) -> None: ...
    def request_flush(self, link: Link) -> None: ...


class Peering:
    """Owns the links. Time enters as `now_s`, chance as `rng`, instructions leave by `out`."""

    def __init__(
        self, settings: PeeringSettings, roster: Roster, timers: Timers, rng: Random,
        out: list[Instruction], listener: PeeringListener, wall_us: Callable[[], int],
    ) -> None:  # fmt: skip
        """
        Args:
            wall_us: microseconds since 1970, for the lifetimes of announcements only.
        """
        self._settings, self._roster, self._timers, self._rng = settings, roster, timers, rng
        self._out, self._listener, self._wall_us = out, listener, wall_us
        self.announcement = b""
        self.closing = False
        self.links: dict[bytes, Link] = {}
        self.prover = Prover(settings.me, settings.clusters, roster.keyring)
        self.connections = Connections(out)
        self.dialler = Dialler(settings, roster, timers, rng, out, self.connections, self)
        self._acceptor = Acceptor(
            settings, roster, timers, rng, out, self.connections, self.dialler, self
        )

    # Things found

    def learn_peer(
        self, raw: bytes, now_s: float, *, relay: bytes = b"", dial: bool = True
    ) -> Peer | None:
        """Take an announcement from a finder, a greeting, or by gossip from node `relay`; return its peer, None if it
        is not wanted, or has left.

        Args:
            dial: whether to begin a link, unless one is under way.
        Raises:
            BadAnnouncement: see Roster.learn.
        """
        peer, news = self._roster.learn(raw, now_s=now_s, wall_us=self._wall_us())
        if peer is None or not news:
            return peer
        if peer.announcement.left:
            if peer.link is not None and relay == peer.node:
                self.fail(peer.link, Ending.LEFT.value, now_s=now_s, ending=Ending.LEFT)
            elif peer.link is not None:
                self._left_by_hearsay(peer.link, now_s)
            self._roster.forget(peer.node, now_s=now_s, left=True)
            self._gossip(raw, relay)
            return None
        if peer.link is None and peer.attempt is None:
            self._gossip(raw, relay)
            if dial:
                self.dialler.connect(peer, now_s)
        return peer

    def goodbye_received(self, link: Link, now_s: float) -> None:
        """End a link on which its peer has said goodbye. That counts even if the announcement that came with it was
        refused because the clocks differ."""
        if self.links.get(link.peer) is link:
            self.fail(link, Ending.LEFT.value, now_s=now_s, ending=Ending.LEFT)
            self._roster.forget(link.peer, now_s=now_s, left=True)

    def _left_by_hearsay(self, link: Link, now_s: float) -> None:
        """Send nothing more to a peer that has left according to others, and wait for its own goodbye.

        Only the goodbye, which is on its way, acknowledges what the peer has taken. Without it all requests
        that are under way there may have been executed.
        """
        if not link.connected:
            self._fail_by_hearsay(link, now_s)
            return
        self._listener.left_by_hearsay(link)
        self._timers.call_at(now_s + HEARSAY_S, lambda now: self._fail_by_hearsay(link, now))

    def _fail_by_hearsay(self, link: Link, now_s: float) -> None:
        if self.links.get(link.peer) is link:
            self.fail(link, Ending.HEARSAY.value, now_s=now_s, ending=Ending.HEARSAY)

    def _gossip(self, raw: bytes, relay: bytes) -> None:
        # Each node to which this is news passes it on, so three copies from each are enough to reach nodes
        # that cannot reach the newcomer, and 1,000 nodes do not send 1,000 copies each.
        others = [link for node, link in self.links.items() if node != relay and link.up]
        body = encode_announcements([raw])
        for link in self._rng.sample(others, min(3, len(others))):
            link.send_control(Kind.GOSSIP, 0, body)
            self._listener.request_flush(link)

    def refuse_announcement(self, error: BadAnnouncement) -> None:
        """Count a refused announcement, and log the first one of each kind."""
        kind = f"announcement {type(error).__name__.lower()}"
        self._roster.refusals.count(kind, f"refused an announcement: {error}")

    # Connections

    def bind(
        self, conn: Conn, link: Link, peer: Peer, lane: int, expects: int,
        idempotent: Sequence[str], now_s: float,
    ) -> None:  # fmt: skip
        """Give a lane its connection: send again what the peer lacks, and report a link that is up or has its path
        back."""
        was_up, was_connected = link.up, link.connected
        for frame in link.attach(lane, conn, expects):
            self._out.append((conn, frame))
        self.connections.link_by_conn[conn] = link
        if link.up and not was_up:
            peer.failures = peer.denials = peer.wrong_nodes = 0
            peer.up_since_s = now_s
            self.dialler.retry_others_soon(now_s)
            peer.frames_at_refusal = None
            if not peer.listens:  # Now: once the path is lost, a refusal could mean either.
                self.probe(peer)
            self._listener.link_up(link, peer, idempotent)
        elif link.connected and not was_connected:
            link.resume_timer.cancel()
            self.dialler.retry_others_soon(now_s)
            self._listener.path_back(link)

    def lost(self, conn: Conn, now_s: float, *, denied: bool = False) -> None:
        """Note that a connection failed or ended by itself. `denied`: see Dialler.lost."""
        link = self.connections.ended(conn)
        if link is None:
            self.dialler.lost(conn, now_s, denied=denied)
            return
        was_connected = link.connected
        link.detach(conn)
        peer = self._roster.peers.get(link.peer)
        if not link.up:
            if link.dialled and peer is not None:
                self.dialler.try_again(peer, now_s)
            return
        if not link.dialled and not link.frames_received:
            # The peer gave the connection up before it had our WELCOME, so it has no link to resume.
            self.fail(link, "no frame ever came from its dialler", now_s=now_s)
            return
        if peer is None and link.control.conn is None:
            self._fail_by_hearsay(link, now_s)  # Others say that it left; no goodbye can come now.
            return
        self._listener.path_lost(link)
        if link.dialled:
            self.dialler.redial(link, now_s)
        if peer is not None:
            self.probe(peer)
        if was_connected:  # Else the timer runs already, from when the path was lost.
            due_s = now_s + self._settings.resume_s
            link.resume_timer = self._timers.call_at(due_s, lambda now: self._give_up(link, now))

    def violated(
        self, conn: Conn, link: Link | None, error: RemoteProtocolError, now_s: float
    ) -> None:
        """End a connection on which the peer broke the protocol, and its link if it has one."""
        self._note_violation(link, "a connection", str(error), now_s)
        self.dialler.lost(conn, now_s)  # If it was the answer to our dial, that has failed.
        self.connections.hang_up(conn)

    def cut_off(self, conns: Sequence[Conn], what: str, address: str, now_s: float) -> None:
        """Note that the transport has ended one of these connections because of `what` came on it, from `address`. If they
        are of two links, it may be either, so neither is ended."""
        links = {
            link for conn in conns if (link := self.connections.link_by_conn.get(conn)) is not None
        }
        link = links.pop() if len(links) == 1 else None
        self._note_violation(link, f"a connection from {address}", what, now_s)

    def _note_violation(self, link: Link | None, who: str, why: str, now_s: float) -> None:
        kind = "a connection"
        if link is not None:  # Counted by cluster, because there are ever new node ids.
            who, kind = (
                f"node {short_id(link.peer)} of {link.cluster}",
                f"a node of {link.cluster}",
            )
        self._roster.refusals.count(
            f"protocol violation by {kind}",
            f"{who} violated the protocol and was disconnected: {why}",
        )
        if link is not None:
            self.fail(link, f"protocol violation: {why}", now_s=now_s)

    def probe(self, peer: Peer) -> None:
        """Find out whether the peer's process is there at all: a refusal proves that it is gone, unless a probe was
        refused before while the process was there."""
        peer.pending_probes = set(self._roster.proving_endpoints(peer))
        self._out.extend(Probe(endpoint, peer.node) for endpoint in sorted(peer.pending_probes))

    def probe_again(self, link: Link) -> None:
        """Do as `probe` for the peer of a link whose path is still lost."""
        peer = self._roster.peers.get(link.peer)
        if peer is not None:
            self.probe(peer)

    def probed(self, node: bytes, endpoint: str, result: ProbeResult, now_s: float) -> None:
        """Take the result of a Probe."""
        link, peer = self.links.get(node), self._roster.peers.get(node)
        if peer is None or link is None:
            return
        if result is ProbeResult.LISTENS:
            peer.listens, peer.frames_at_refusal = True, None
        if result is not ProbeResult.REFUSED or endpoint not in peer.pending_probes:
            return
        peer.pending_probes.remove(endpoint)
        if peer.pending_probes:
            return
        if link.connected:
            self._timers.call_at(now_s + IN_FLIGHT_S, lambda _: self._note_refused(link, peer))
        elif peer.frames_at_refusal is None or link.frames_received <= peer.frames_at_refusal:
            self.fail(link, "nothing listens there any more", now_s=now_s, process_gone=True)

    def _note_refused(self, link: Link, peer: Peer) -> None:
        if self.links.get(peer.node) is link and link.connected:
            peer.frames_at_refusal = link.frames_received

    def _give_up(self, link: Link, now_s: float) -> None:
        if self.links.get(link.peer) is link:
            self.fail(link, f"no path for {self._settings.resume_s:.0f} s", now_s=now_s)

    def fail(
        self, link: Link, reason: str, *, now_s: float, process_gone: bool = False,
        ending: Ending = Ending.LOST,
    ) -> None:  # fmt: skip
        """Give the link up. `reason` is for people; `process_gone`: whether its process has certainly ended."""
        for lane in (link.control, link.data):
            if lane.conn is not None:
                self.connections.hang_up(lane.conn)
                lane.conn = None
        self.dialler.forget(link)
        peer = self._roster.peers.get(link.peer)
        if self.links.get(link.peer) is not link:
            if peer is not None and peer.attempt is not None and peer.attempt.link is link:
                self.dialler.try_again(peer, now_s)  # One lane had its WELCOME, the other has not.
            return
        del self.links[link.peer]
        was_up, link.up = link.up, False
        if peer is not None:
            peer.link = None
            self._roster.failed(peer)
            # If it is gone, the next dial comes later: a process takes a while to start again, if it does.
            failures = peer.failures + (PROCESS_GONE_FAILURES if process_gone else 0)
            self.dialler.connect_later(peer, now_s, self.dialler.backoff_s(failures))
        self.dialler.seeds.ask_later_for(link.peer, now_s)
        if was_up:
            self._listener.link_down(link, reason, ending)

    # Greetings

    def greeted(self, conn: Conn, cluster: str | None, frame: Frame, now_s: float) -> None:
        """Process a frame on a connection without a link. `cluster`: the one that ZAP admitted; None: we dialled.

        Raises:
            RemoteProtocolError: if it is not a greeting, or an impossible one.
        """
        if len(frame.records) != 1:
            raise RemoteProtocolError("first frame of a connection is not a greeting")
        kind, _, _, start, end = frame.records[0]
        body = bytes(frame.data[start:end])
        if frame.sequence:
            self._goodbye_without_link(kind, body, now_s)
        elif cluster is None:
            self.dialler.answered(conn, kind, body, now_s)
        else:
            self._acceptor.greeted(conn, cluster, frame.lane, kind, body, now_s)

    def _goodbye_without_link(self, kind: int, body: bytes, now_s: float) -> None:
        """Take a BYE that came behind a HELLO which we have refused: see Dialler.leave."""
        if kind != Kind.BYE:
            raise RemoteProtocolError("first frame of a connection is not a greeting")
        announcement = decode_announcement(body, "BYE")
        with suppress(BadAnnouncement):
            self.learn_peer(announcement, now_s, dial=False)

    # Now and then

    def tick(self, now_s: float) -> None:
        """Forget peers whose announcement has expired, and tell one peer of others. Call at every heartbeat."""
        for peer in self._roster.expired(wall_us=self._wall_us()):
            self.dialler.end_attempt(peer)
            self._roster.forget(peer.node, now_s=now_s)
        up_links = [link for link in self.links.values() if link.up]
        if up_links and len(self._roster.peers) > ANNOUNCEMENTS_MAX:
            link = self._rng.choice(up_links)
            self.gossip_peers(link)
            self._listener.request_flush(link)

    def gossip_peers(self, link: Link) -> None:
        """Tell the peer of nodes that we know, at most ANNOUNCEMENTS_MAX of them.

        If every node told every other all that it knows, a thousand nodes would send a billion announcements.
        Those left out when a link comes up follow in the end, because `tick` tells some peer of others.
        """
        known = self._roster.announcements_except(link.peer, ANNOUNCEMENTS_MAX, self._rng)
        # Fewer where payloads must be small.
        per_record = link.limits.record_bytes_max // ANNOUNCEMENT_BYTES_MAX
        for at in range(0, len(known), per_record):
            link.send_control(Kind.GOSSIP, 0, encode_announcements(known[at : at + per_record]))
