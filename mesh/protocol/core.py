"""The whole protocol of one node, without I/O: frames, lost connections and found addresses in; instructions out.

    received ──> link (sequence, credit) ──> records ──> patterns
    request, publish, ... ──> outboxes ──> flush ──> frames ──> `out`

After every call the shell carries out `out`, in order. Nothing here reads a clock or a random
source; `now_s` is monotonic seconds, `wall_us` is microseconds since 1970. Not safe for threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol

from security.announcement import Endpoint
from security.errors import BadAnnouncement
from security.keyring import Keyring

from ..config import MeshConfig
from ..errors import LimitReached, NodeClosed, RemoteProtocolError
from .balancer import Candidate, choose_of_two
from .dialling import PeeringSettings
from .frame import Buffer, Frame, Kind, largest_frame, pack_record
from .hello import decode_announcements, encode_announcements
from .identity import Identity, OwnAnnouncement
from .inbox import Inbox
from .instructions import Instruction, ProbeResult
from .lane import Conn
from .link import Link, LinkLimits, Received, largest_record
from .membership import Change, Membership, State
from .patterns import Patterns
from .peering import Ending, Peering
from .request import Pending
from .roster import Peer, Refusals, Roster
from .rotation import Rotation
from .timers import Timers
from .topics import TopicStream
from .tunnel import TunnelEnd
from .values import decode_values, encode_values

CORE_KINDS = frozenset((int(Kind.HEARTBEAT), int(Kind.GOSSIP), int(Kind.BYE)))
TICK_S = 0.25
CHECK_DELAYS_S = (0.002, 0.02, 0.2)
"""Seconds after a monitor's report that a connection has ended, at which an empty frame is sent on it to find out:
libzmq tells its socket a little later than the monitor."""
SUSPECT_GRACE_S = 0.5
"""A reset connection is redialled in milliseconds; only a path lost for longer than this is reported."""


class Shell(Protocol):
    """What the core reports to the shell, beside instructions to the transport."""

    def opened(self, end: TunnelEnd, cluster: str, endpoint: str) -> None: ...
    def member_changed(self, change: Change) -> None: ...
    def announced(self, raw: bytes) -> None: ...
    def streams_freed(self, streams: Sequence[TopicStream]) -> None: ...
    def audience_grew(self) -> None: ...
    def log(self, text: str) -> None: ...


class Core:
    """One node. Its subscriptions, requests and tunnels are kept by state machines of their own."""

    def __init__(
        self, identity: Identity, config: MeshConfig, keyring: Keyring, shell: Shell, rng: Random,
        wall_us: Callable[[], int], *, idempotent: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """
        Args:
            idempotent: targets of this node's services whose requests may be executed twice.
        """
        self.identity, self.config = identity, config
        self._shell, self._rng = shell, rng
        self.out: list[Instruction] = []
        self._frame_bytes_max = largest_frame(config.frame_bytes_max)
        self.timers = Timers()
        self.refusals = Refusals(shell.log)
        self.left = False
        self._leave_reason = "the node has left"
        self._to_flush: dict[Link, None] = {}
        self._now_s = 0.0
        """Time of the latest call, and so of what peering and membership report during it."""
        self._tick_due_s = self._heartbeat_due_s = 0.0
        self._own_announcement = OwnAnnouncement(identity, config, keyring, wall_us)
        roster = Roster(
            identity.node, identity.host, keyring, skew_s=config.clock_skew_s,
            tombstone_s=config.tombstone_s, peers_max=config.peers_max, refusals=self.refusals,
        )  # fmt: skip
        self.roster = roster
        limits = LinkLimits(
            window_bytes=config.window_bytes, frame_bytes_max=config.frame_bytes_max,
            chunk_bytes=config.chunk_bytes, outbox_bytes=config.outbox_bytes,
            record_bytes_max=largest_record(config.payload_bytes_max),
            reassembly_bytes_max=config.reassembly_bytes_max, ack_delay_s=config.ack_delay_s,
        )  # fmt: skip
        settings = PeeringSettings(
            me=identity.node, clusters=config.clusters, limits=limits, idempotent=idempotent,
            handshake_s=config.handshake_s, resume_s=config.resume_s,
        )  # fmt: skip
        self.peering = Peering(settings, roster, self.timers, rng, self.out, self, wall_us)
        self._connections = self.peering.connections
        self.membership = Membership(
            stalled_s=config.stalled_s, suspect_grace_s=SUSPECT_GRACE_S,
            dead_after_s=config.dead_s - config.suspect_s, changed=self._member_changed,
            forget_s=max(config.tombstone_s, 2 * config.resume_s),
        )  # fmt: skip
        self.rotation = Rotation(self.membership, self.peering.links)
        self.patterns = Patterns(
            identity.node, identity.incarnation, config, self.rotation, self.timers, rng,
            opened=shell.opened, audience_grew=shell.audience_grew,
            request_flush=self.request_flush, wall_us=wall_us,
        )  # fmt: skip

    # Life

    @property
    def closing(self) -> bool:
        """Whether the node takes no more work."""
        return self.peering.closing

    def announce(self, endpoints: Sequence[Endpoint], now_s: float) -> None:
        """Announce that the node can be reached at these endpoints from now on."""
        self._own_announcement.endpoints = endpoints
        self._sign(now_s)
        self._tick_due_s = now_s + TICK_S
        self.timers.call_at(self._tick_due_s, self._tick)

    def _sign(self, now_s: float, *, left: bool = False) -> None:
        self.peering.announcement = self._own_announcement.sign(now_s, left=left)
        self._shell.announced(self.peering.announcement)

    def drain(self) -> None:
        """Take no more work; handlers that run go on."""
        self.peering.closing = True
        for dispatcher in self.patterns.dispatchers.values():
            dispatcher.draining = True
        self.patterns.tunnels.draining = True
        self.patterns.publisher.drain()
        # Callers are told at once that there is no room here, before they try.
        self._send_loads()

    def is_busy(self) -> bool:
        """Return whether handlers run, or anything waits to leave or is not yet acknowledged."""
        if any(dispatcher.running for dispatcher in self.patterns.dispatchers.values()):
            return True
        if self.patterns.publisher.waiting:
            return True
        return any(
            link.connected and (link.outbox or link.data.unacked)
            for link in self.peering.links.values()
        )

    def unsent_bytes(self) -> int:
        """Return how many bytes wait for the member for which most do, including those sent and not acknowledged."""
        links = self.peering.links.values()
        waiting = (link.outbox.size_bytes + link.data.unacked_bytes for link in links)
        # Messages that are not packed yet have no size here; 1 says that there are some.
        return max(waiting, default=0) + (1 if self.patterns.publisher.waiting else 0)

    def leave(self, now_s: float) -> None:
        """Say goodbye on every link, and to those that may have one soon."""
        self.left = True
        self._sign(now_s, left=True)
        body = encode_announcements([self.peering.announcement])
        for link in self.peering.links.values():
            link.send_control(Kind.BYE, 0, body)
            link.flush(self.out)
        self.peering.dialler.leave(body)

    def close(self) -> None:
        """End everything, and wake all that wait, because the node has left or crashed."""
        self.peering.closing = self.left = True
        self.patterns.close(self._leave_reason)

    def abandon(self, reason: str) -> None:
        """Make this node unusable without telling peers or waking tasks, in a forked child."""
        self.peering.closing = self.left = True
        self._leave_reason = reason
        self.patterns.tunnels.abandon(reason)
        self.patterns.publisher.streams.clear()  # Publishing to one of them would check nothing.

    def goodbye_acked(self) -> bool:
        """Return whether every peer has acknowledged the goodbye, or is gone."""
        return not any(
            link.connected and link.control.unacked for link in self.peering.links.values()
        )

    # Things that happen

    def found(self, endpoint: str, announcement: bytes, now_s: float) -> None:
        """Take an address, or an announcement, from a finder."""
        self._now_s = now_s
        try:
            if announcement:
                self.peering.learn_peer(announcement, now_s)
            else:
                self.peering.dialler.seeds.found(endpoint, now_s)
        except BadAnnouncement as error:
            self.peering.refuse_announcement(error)

    def received(self, conn: Conn, cluster: str | None, data: Buffer, now_s: float) -> None:
        """Process a frame from `conn`; `cluster` is the one that ZAP admitted, None if we dialled."""
        self._now_s = now_s
        link = self._connections.link_by_conn.get(conn)
        if link is None and conn in self._connections.recently_ended:
            return
        try:
            if len(data) > self._frame_bytes_max:
                most = self._frame_bytes_max
                raise RemoteProtocolError(f"frame of {len(data)} bytes, the limit is {most}")
            frame = Frame(data)
            if link is None:
                self.peering.greeted(conn, cluster, frame, now_s)
                return
            records = link.receive(frame, len(data), now_s)
            member = self.membership.members.get(link.peer)
            if member is not None:
                self.membership.heard(member, now_s)
            self._process_records(link, records, now_s)
            if link.up:
                if link.needs_ack_now():
                    link.send_unsequenced(self.out, [])
                self._to_flush[link] = None
        except RemoteProtocolError as error:
            self.peering.violated(conn, link, error, now_s)

    def _process_records(self, link: Link, records: Sequence[Received], now_s: float) -> None:
        on_record = self.patterns.on_record
        for record in records:
            if record[0] in CORE_KINDS:
                self._on_core_record(link, record, now_s)
            elif link.up:
                on_record(link, record, now_s)
            else:
                link.early_records.append(record)

    def lost(self, conn: Conn, now_s: float, *, denied: bool = False) -> None:
        """Note that a connection failed or ended. `denied`: see Dialler.lost."""
        self._now_s = now_s
        self.peering.lost(conn, now_s, denied=denied)

    def cut_off(self, conns: Sequence[Conn], what: str, address: str, now_s: float) -> None:
        """Note that the transport has ended one of these connections because of `what` came on it, from `address`."""
        self._now_s = now_s
        self.peering.cut_off(conns, what, address, now_s)

    def check_inbound(self, conns: Sequence[Conn], now_s: float) -> None:
        """Check accepted connections of which one may have ended: an empty frame sent on it shows that."""
        for conn in conns:
            if conn in self._connections.link_by_conn:
                for delay_s in CHECK_DELAYS_S:
                    self.timers.call_at(now_s + delay_s, partial(self._send_empty_frame, conn))

    def _send_empty_frame(self, conn: Conn, _now_s: float) -> None:
        link = self._connections.link_by_conn.get(conn)
        if link is not None:
            link.send_empty_frame(conn, self.out)

    def probed(self, node: bytes, endpoint: str, result: ProbeResult, now_s: float) -> None:
        self._now_s = now_s
        self.peering.probed(node, endpoint, result, now_s)

    def _on_core_record(self, link: Link, record: Received, now_s: float) -> None:
        kind, _, data, start, end = record
        body = bytes(data[start:end])
        if kind == Kind.HEARTBEAT:
            (loads,) = decode_values(body, "HEARTBEAT", (dict,))
            if not all(type(k) is str and type(v) is int for k, v in loads.items()):
                raise RemoteProtocolError("HEARTBEAT with invalid loads")
            self.rotation.update_loads(link.peer, loads)
            return
        if kind == Kind.BYE:  # The peer waits for this ack: frames unread when it ends are lost.
            link.send_unsequenced(self.out, [])
        for raw in decode_announcements(body):
            try:
                self.peering.learn_peer(raw, now_s, relay=link.peer)
            except BadAnnouncement as error:
                self.peering.refuse_announcement(error)
        if kind == Kind.BYE:
            self.peering.goodbye_received(link, now_s)

    # Time

    def tick(self, now_s: float) -> None:
        """Run the timers that are due. Call at `timers.due_s()`; more often does no harm."""
        self._now_s = now_s
        self.timers.run(now_s)

    def _tick(self, now_s: float) -> None:
        lag_s = now_s - self._tick_due_s
        if lag_s > 2 * TICK_S:  # This loop did not run: silence meanwhile proves nothing.
            self.membership.shift(lag_s, now_s)
        self.membership.tick(now_s)
        if now_s >= self._heartbeat_due_s:
            self._heartbeat_due_s = now_s + self.config.heartbeat_s
            self._heartbeat(now_s)
        self._tick_due_s = now_s + TICK_S
        self.timers.call_at(self._tick_due_s, self._tick)

    def _heartbeat(self, now_s: float) -> None:
        self._send_loads()
        self.peering.tick(now_s)
        if self._own_announcement.is_due(now_s) and not self.closing:
            self._sign(now_s)
            body = encode_announcements([self.peering.announcement])
            for link in self.peering.links.values():
                if link.up:
                    link.send_control(Kind.GOSSIP, 0, body)
                    self.request_flush(link)

    def _send_loads(self) -> None:
        loads = {name: one.reported_load for name, one in self.patterns.dispatchers.items()}
        record = pack_record(Kind.HEARTBEAT, 0, encode_values(loads))
        for link in self.peering.links.values():
            link.send_unsequenced(self.out, [record])

    @property
    def needs_flush(self) -> bool:
        """Whether, since the last flush, a link has got something to send, or a blocked publisher may go on."""
        return bool(self._to_flush or self.patterns.publisher.freed_blockers)

    def request_flush(self, link: Link) -> None:
        """Note that the link has something to send."""
        self._to_flush[link] = None

    def flush(self, now_s: float) -> None:
        """Put everything that may leave into `out`: gathered topics first, then link by link."""
        self._now_s = now_s
        publisher = self.patterns.publisher
        if publisher.dirty:
            publisher.flush_gathered()
        if self._to_flush:
            self._flush_links()
        if publisher.freed_blockers and (freed := publisher.retry_blocked()):
            self._shell.streams_freed(freed)
        if self.patterns.requests.waiting:
            self.patterns.requests.assign_all_waiting(self._now_s)
        if self._to_flush:
            self._flush_links()

    def _flush_links(self) -> None:
        to_flush, self._to_flush = self._to_flush, {}
        publisher = self.patterns.publisher
        losses = publisher.losses
        for link in to_flush:
            if link in losses.by_link and link.may_send_data:
                losses.report(link)
            link.flush(self.out)
            publisher.blocker_freed(link)
            if link.control_overflowed:
                self.peering.fail(link, "the peer takes no control records", now_s=self._now_s)
                continue
            if link.ack_due_s is not None and not link.ack_timer:
                link.ack_timer = True
                self.timers.call_at(link.ack_due_s, partial(self._ack, link))

    def _ack(self, link: Link, now_s: float) -> None:
        link.ack_timer = False
        if link.ack_due_s is None:
            return
        if link.ack_due_s <= now_s:
            link.send_unsequenced(self.out, [])
        else:  # Acknowledged meanwhile by other frames, and more came since.
            self._to_flush[link] = None

    # What peering reports

    def link_up(self, link: Link, peer: Peer, idempotent: Sequence[str]) -> None:
        uris = tuple(endpoint.uri for endpoint in peer.announcement.endpoints)
        if link.dialled:  # A frame on each lane tells the other end that its WELCOMEs have come.
            for conn in (link.control.conn, link.data.conn):
                link.send_empty_frame(conn, self.out)
        self.patterns.link_up(link, idempotent)
        self.peering.gossip_peers(link)
        self.request_flush(link)
        self.membership.linked(link.peer, link.clusters, uris, self._now_s)
        self._rotation_grew(link.clusters)
        early_records, link.early_records = link.early_records, []
        try:
            self._process_records(link, early_records, self._now_s)
        except RemoteProtocolError as error:
            self.peering.violated(link.data.conn, link, error, self._now_s)

    def path_lost(self, link: Link) -> None:
        self.membership.path_lost(link.peer, self._now_s)
        self.rotation.invalidate()

    def path_back(self, link: Link) -> None:
        self.membership.path_back(link.peer, self._now_s)
        self.request_flush(link)
        member = self.membership.members.get(link.peer)
        self._rotation_grew(member.clusters if member is not None else ())

    def _rotation_grew(self, clusters: Sequence[str]) -> None:
        self.rotation.invalidate()
        for cluster in clusters:
            self.patterns.requests.assign_waiting(cluster, self._now_s)
        self._shell.audience_grew()

    def left_by_hearsay(self, link: Link) -> None:
        self.membership.gone(link.peer, State.LEFT, Ending.LEFT.value)

    def link_down(self, link: Link, reason: str, ending: Ending) -> None:
        self.rotation.invalidate()
        if ending is Ending.LOST:
            self.membership.gone(link.peer, State.DEAD, reason)
        else:  # Reported as left also if only others said so.
            self.membership.gone(link.peer, State.LEFT, Ending.LEFT.value)
        self.patterns.link_down(link, reason, self._now_s, left=ending is Ending.LEFT)
        self.rotation.forget(link.peer)
        self._to_flush.pop(link, None)

    def _member_changed(self, change: Change) -> None:
        self.rotation.invalidate()
        link = self.peering.links.get(change.member.node)
        if change.kind == "dead" and link is not None:
            self.patterns.requests.lost(link, self._now_s)
        if change.kind == "suspect" and link is not None and not link.connected:
            # When the path was lost, a dying process may not have closed its listening sockets yet.
            self.peering.probe_again(link)
        if change.kind == "alive":
            self._rotation_grew(change.member.clusters)
        self._shell.member_changed(change)

    # What the application asks for

    def check_open(self) -> None:
        """Raise NodeClosed once the node has left. Not while it drains: handlers may still need other members."""
        if self.left:
            raise NodeClosed(self._leave_reason)

    def choose(self, cluster: str, tried: Sequence[bytes]) -> Candidate | None:
        """Return a member that may take a tunnel and was not tried; None if there is none."""
        candidates = self.rotation.candidates(cluster)
        untried = [one for one in candidates if one.node not in tried]
        return choose_of_two(untried, self._rng) if untried else None

    def request(
        self, target: str, payload: bytes, *, now_s: float, deadline_s: float,
        expires_s: float, wake: Callable[[], object], only: Candidate | None = None,
    ) -> Pending:  # fmt: skip
        """Begin a request. Raises InvalidName, LimitReached, NodeClosed."""
        self.check_open()
        return self.patterns.requests.start(
            target, payload, now_s=now_s, deadline_s=deadline_s, expires_s=expires_s, wake=wake,
            only=only,
        )  # fmt: skip

    def subscribe(
        self, pattern: str, policy: str, limit_bytes: int, wake: Callable[[], object]
    ) -> Inbox:
        """Begin a subscription, and tell all peers of it. Raises InvalidName, LimitReached, NodeClosed."""
        self.check_open()
        limit = self.config.subscriptions_max
        if len(self.patterns.subscriptions.inboxes) >= limit:
            raise LimitReached("subscriptions_max", limit)
        inbox = self.patterns.subscriptions.subscribe(pattern, policy, limit_bytes, wake)
        for link in self.peering.links.values():
            if link.up:
                self.patterns.subscriptions.send_subscribe(link, inbox)
        return inbox

    def unsubscribe(self, inbox: Inbox) -> None:
        if not self.patterns.subscriptions.unsubscribe(inbox):
            return
        for link in self.peering.links.values():
            if link.up:
                link.send_control(Kind.UNSUBSCRIBE, inbox.ident, b"")
                self.request_flush(link)
