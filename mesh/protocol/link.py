"""One link: the state that two adjacent nodes share, without I/O.

Two lanes, each a connection of its own, so that control never waits behind data:

    control  acks and credit, heartbeats, interest, cancel, busy, gossip     sequence, unacked
    data     requests, replies, batches, broadcasts, tunnels ──> outbox ──>  sequence, unacked

The caller feeds every frame of a bound connection to `receive` and sends what `flush` appends, in
order, before the next call. A link survives its connections: `attach` binds a new one to a lane and
says what to send again. Nothing here reads a clock: time enters as `now_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..errors import RemoteProtocolError
from ..names import short_id
from .frame import (
    CONTROL,
    DATA,
    FRAME_BYTES,
    MORE,
    Buffer,
    Frame,
    Kind,
    Part,
    pack_frame,
    pack_record,
)
from .hello import Limits
from .instructions import Instruction
from .lane import Conn, Lane
from .outbox import Outbox
from .timers import NO_TIMER

Received = tuple[int, int, Buffer, int, int]
"""(kind, id, data, start, end) of a complete record; its body is `data[start:end]`."""

CONTROL_QUEUE_BYTES_MAX = 4 << 20
"""Bytes of control records that may wait for a peer; more means that it has stopped reading for good."""

FRAME_BYTES_MIN = 1024
RECORD_EXTRA_BYTES = 64 * 1024
"""Most bytes that a record may have beside its payload: names, headers, lengths."""

PIECE_BYTES_MIN = 512
"""Every piece but the last has at least this size, the smallest chunk that two nodes can agree on. Smaller
ones would cost more memory than the bytes that are counted for unfinished records."""
KEPT_FRAME_PARTS = 4
"""A piece of at least this part of its frame (a quarter) is not copied, and keeps the whole frame in memory: at
most so many times the bytes that are counted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """What both ends agreed on: of each limit the smaller value."""

    window_bytes: int
    frame_bytes_max: int
    chunk_bytes: int
    outbox_bytes: int
    record_bytes_max: int
    reassembly_bytes_max: int
    ack_delay_s: float

    @property
    def payload_bytes_max(self) -> int:
        """Largest payload of a request, reply, broadcast or tunnel part."""
        return self.record_bytes_max - RECORD_EXTRA_BYTES

    def wire_limits(self) -> Limits:
        """Return those limits that the peer has to know."""
        return Limits(
            window=self.window_bytes, frame_max=self.frame_bytes_max,
            record_max=self.record_bytes_max, reassembly_max=self.reassembly_bytes_max,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """Plain counters since the link came up; bytes are of frames."""

    peer: bytes
    cluster: str
    dialled: bool
    frames_sent: int
    frames_received: int
    bytes_sent: int
    bytes_received: int
    frames_sent_again: int
    duplicates_dropped: int
    resumes: int
    unacked_bytes: int
    outbox_bytes: int


@dataclass(slots=True)
class PartialRecord:
    """A record of which some pieces have arrived."""

    pieces: list[Buffer] = field(default_factory=list)
    size_bytes: int = 0


class Link:
    """State of one link. It comes `up` when both lanes have a connection for the first time."""

    def __init__(
        self, peer: bytes, cluster: str, link_id: bytes, *, dialled: bool, limits: LinkLimits
    ) -> None:
        self.peer, self.cluster, self.link_id = peer, cluster, link_id
        self.dialled, self.limits = dialled, limits
        self.payload_bytes_max = limits.payload_bytes_max
        self.control = Lane(CONTROL, limits.window_bytes)
        self.data = Lane(DATA, limits.window_bytes)
        self.outbox = Outbox(
            limit_bytes=limits.outbox_bytes, chunk_bytes=limits.chunk_bytes,
            reassembly_bytes=limits.reassembly_bytes_max,
        )  # fmt: skip
        self.clusters: tuple[str, ...] = ()
        """What the peer has proven to be a member of; empty until its first greeting."""
        self.up = False
        self.resume_timer = NO_TIMER
        """Timer by which peering gives the link up if it has had no path for too long."""
        self.ack_due_s: float | None = None
        self.ack_timer = False
        self.control_overflowed = False
        """Whether so many control records wait that the link has to be given up; the core does so at its next flush."""
        self.outstanding = 0
        """How many of our requests this link carries; kept by the request table."""
        self.next_id = 0
        self.early_records: list[Received] = []
        """Records received while the link was not up at this end. They wait, because nothing could be answered
        yet, and nothing of them may remain if the link never comes up. The window bounds them, because they
        are not acknowledged before."""
        self._ack_bytes = limits.window_bytes // 8
        self._control: list[bytes] = []
        self._control_bytes = 0
        self._pieces: dict[tuple[int, int], PartialRecord] = {}
        self._pieces_bytes = 0
        self._frames_sent = self._bytes_sent = self._bytes_received = 0
        self.frames_received = 0
        """Frames of any kind. The first one proves that the peer knows of the link."""
        self._sent_again = self._duplicates = self._resumes = 0

    def __repr__(self) -> str:
        lanes = f"{self.control.conn!r}/{self.data.conn!r}"
        return f"<Link to {short_id(self.peer)} ({self.cluster}) {lanes} up={self.up}>"

    @property
    def connected(self) -> bool:
        """Whether both lanes have a connection now, so that frames leave at once."""
        return self.control.conn is not None and self.data.conn is not None

    def adopt(self, limits: LinkLimits) -> None:
        """Take over the limits agreed on, when the peer has answered; nothing has been sent before."""
        self.limits = limits
        self.payload_bytes_max = limits.payload_bytes_max
        self.control.window_bytes = self.data.window_bytes = limits.window_bytes
        self._ack_bytes = limits.window_bytes // 8
        self.outbox.chunk_bytes = limits.chunk_bytes
        self.outbox.reassembly_bytes = limits.reassembly_bytes_max

    def take_proof(self, clusters: tuple[str, ...]) -> bool:
        """Keep the clusters that the first greeting proves, and return whether a later one proves them as well. One
        that proves less may come from somebody else, who holds the key of only some of the peer's clusters."""
        self.clusters = self.clusters or clusters
        return set(self.clusters) <= set(clusters)

    def lane(self, number: int) -> Lane:
        return self.data if number == DATA else self.control

    # Connections

    def attach(self, lane_number: int, conn: Conn, peer_expects: int) -> list[bytes]:
        """Bind `conn` to a lane; return the frames to send again on it, before anything else."""
        lane = self.lane(lane_number)
        resent = lane.resume(peer_expects)
        lane.conn = conn
        # Our greeting has acknowledged these bytes: the peer has its credit back.
        lane.ack_pending_bytes = 0
        self._sent_again += len(resent)
        if self.up:
            self._resumes += 1
        elif self.connected:
            self.up = True
        return resent

    def detach(self, conn: Conn) -> Lane | None:
        """Unbind a connection that has ended; return its lane, None if it belonged to neither."""
        lane = self._lane_of(conn)
        if lane is not None:
            lane.conn = None
        return lane

    def _lane_of(self, conn: Conn) -> Lane | None:
        lanes = (lane for lane in (self.control, self.data) if lane.conn == conn)
        return next(lanes, None)

    # Sending

    def send_control(self, kind: int, ident: int, body: bytes) -> None:
        """Queue a control record. If too many wait, because the peer takes none, the link is `control_overflowed`."""
        chunk = self.limits.chunk_bytes
        for at in range(0, len(body) or 1, chunk):
            flags = MORE if at + chunk < len(body) else 0
            record = pack_record(kind, ident, body[at : at + chunk], flags)
            self._control.append(record)
            self._control_bytes += len(record)
        self.control_overflowed = self._control_bytes > CONTROL_QUEUE_BYTES_MAX

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    @property
    def may_send_data(self) -> bool:
        """Whether data may leave now: the data lane has a connection and credit."""
        data = self.data
        return data.conn is not None and data.credit_bytes() >= self.limits.frame_bytes_max

    def flush(self, out: list[Instruction]) -> None:
        """Append to `out` the frames that may leave now: of lanes with a connection, as far as there is credit."""
        if self._control and self.control.conn is not None:
            self._flush_control(out)
        data, limits = self.data, self.limits
        outbox = self.outbox
        if data.conn is None:
            return
        while outbox.size_bytes and data.credit_bytes() >= limits.frame_bytes_max:
            parts, count = outbox.take(limits.frame_bytes_max - FRAME_BYTES)
            frame = self._frame(DATA, data.next_sequence, count, parts)
            data.keep(frame)
            out.append((data.conn, frame))

    def _flush_control(self, out: list[Instruction]) -> None:
        lane, limit = self.control, self.limits.frame_bytes_max
        while self._control and lane.credit_bytes() >= limit:
            records: list[bytes] = []
            size = FRAME_BYTES
            for record in self._control:
                if size + len(record) > limit and records:
                    break
                records.append(record)
                size += len(record)
            del self._control[: len(records)]
            self._control_bytes -= size - FRAME_BYTES
            out.append((lane.conn, self._control_frame(records)))

    def _control_frame(self, records: Sequence[bytes]) -> bytes:
        lane = self.control
        frame = self._frame(CONTROL, lane.next_sequence, len(records), records)
        lane.keep(frame)
        return frame

    def _frame(self, lane: int, sequence: int, count: int, parts: Sequence[Part]) -> bytes:
        frame = pack_frame(
            lane, sequence, self.control.expected - 1, self.data.expected - 1, count, parts
        )
        self.control.ack_pending_bytes = self.data.ack_pending_bytes = 0
        self.ack_due_s = None
        self._frames_sent += 1
        self._bytes_sent += len(frame)
        return frame

    def send_unsequenced(self, out: list[Instruction], records: list[bytes]) -> None:
        """Send a frame outside the sequence, which may get lost: a heartbeat, or a pure ack, without records."""
        if self.control.conn is not None:
            out.append((self.control.conn, self._frame(CONTROL, 0, len(records), records)))

    def bye_frame(self, body: bytes) -> bytes:
        """Return the first frame, a BYE, of a link that is not up at this end and may be up at the other one."""
        return self._control_frame([pack_record(Kind.BYE, 0, body)])

    def send_empty_frame(self, conn: Conn, out: list[Instruction]) -> None:
        """Send an empty frame on the lane of this connection, by which the transport finds out whether it has ended."""
        lane = self._lane_of(conn)
        if lane is not None:
            out.append((conn, self._frame(lane.number, 0, 0, [])))

    def needs_ack_now(self) -> bool:
        """Return whether so much has been received that the peer should get its credit back at once."""
        return self.data.ack_pending_bytes >= self._ack_bytes

    # Receiving

    def receive(self, frame: Frame, size_bytes: int, now_s: float) -> list[Received]:
        """Take one frame; return the records that it completes, in order.

        Raises:
            RemoteProtocolError: for a gap, an ack of a frame that was not sent, more bytes than there was
                credit for, a record over its limit, or one outside the sequence other than a heartbeat.
        """
        self.frames_received += 1
        self._bytes_received += size_bytes
        self.control.acknowledge(frame.ack_control)
        self.data.acknowledge(frame.ack_data)
        if frame.sequence:
            lane = self.lane(frame.lane)
            if not lane.accept(frame.sequence, size_bytes):
                self._duplicates += 1
                self.ack_due_s = now_s  # It was sent again because our ack was lost.
                return []
            if lane.ack_pending_bytes > lane.window_bytes:
                raise RemoteProtocolError(
                    f"{lane.ack_pending_bytes} bytes in flight, the window is {lane.window_bytes}"
                )
            if self.ack_due_s is None:
                self.ack_due_s = now_s + self.limits.ack_delay_s
        elif any(record[0] != Kind.HEARTBEAT for record in frame.records):
            raise RemoteProtocolError("unsequenced records, which no window limits")
        data = frame.data
        complete: list[Received] = []
        pieces = self._pieces
        for kind, flags, ident, start, end in frame.records:
            if flags & MORE or (pieces and (kind, ident) in pieces):
                # A view keeps the whole frame in memory, so a small piece is copied.
                large = (end - start) * KEPT_FRAME_PARTS >= len(data)
                piece = memoryview(data)[start:end] if large else bytes(data[start:end])
                self._reassemble(complete, kind, flags, ident, piece)
            else:
                complete.append((kind, ident, data, start, end))
        return complete

    def _reassemble(
        self, complete: list[Received], kind: int, flags: int, ident: int, piece: Buffer
    ) -> None:
        if flags & MORE and len(piece) < PIECE_BYTES_MIN:
            raise RemoteProtocolError(
                f"piece of {len(piece)} bytes that is not the last, want at least {PIECE_BYTES_MIN}"
            )
        record = self._pieces.setdefault((kind, ident), PartialRecord())
        record.pieces.append(piece)
        record.size_bytes += len(piece)
        self._pieces_bytes += len(piece)
        if self._pieces_bytes > self.limits.reassembly_bytes_max:
            raise RemoteProtocolError(
                f"{self._pieces_bytes} bytes of unfinished records, "
                f"the limit is {self.limits.reassembly_bytes_max}"
            )
        if record.size_bytes > self.limits.record_bytes_max:
            raise RemoteProtocolError(f"record of more than {self.limits.record_bytes_max} bytes")
        if not flags & MORE:
            del self._pieces[kind, ident]
            body = b"".join(record.pieces)
            self._pieces_bytes -= len(body)
            complete.append((kind, ident, body, 0, len(body)))

    def check_payload(self, size_bytes: int) -> None:
        """Raise RemoteProtocolError if the peer sent a larger payload than both ends agreed on."""
        if size_bytes > self.payload_bytes_max:
            raise RemoteProtocolError(
                f"payload of {size_bytes} bytes, the limit is {self.payload_bytes_max}"
            )

    def statistics(self) -> LinkStatistics:
        return LinkStatistics(
            self.peer, self.cluster, self.dialled, self._frames_sent, self.frames_received,
            self._bytes_sent, self._bytes_received, self._sent_again, self._duplicates,
            self._resumes, self.data.unacked_bytes, self.outbox.size_bytes,
        )  # fmt: skip


def largest_record(payload_bytes_max: int) -> int:
    """Return the largest record in bytes that a node with this setting accepts."""
    return payload_bytes_max + RECORD_EXTRA_BYTES


def negotiate_limits(ours: LinkLimits, theirs: Limits) -> LinkLimits:
    """Return of each limit the smaller of both ends' values. Raises RemoteProtocolError if they make no sense."""
    frame = min(ours.frame_bytes_max, theirs.frame_max)
    window = min(ours.window_bytes, theirs.window)
    if frame < FRAME_BYTES_MIN or window < 2 * frame:
        raise RemoteProtocolError(
            f"window of {window} bytes is too small for frames of {frame} bytes"
        )
    if theirs.record_max < RECORD_EXTRA_BYTES:
        raise RemoteProtocolError(f"limit of {theirs.record_max} bytes for records is too small")
    return replace(
        ours, window_bytes=window, frame_bytes_max=frame,
        chunk_bytes=min(ours.chunk_bytes, frame // 2),
        record_bytes_max=min(ours.record_bytes_max, theirs.record_max),
        reassembly_bytes_max=min(ours.reassembly_bytes_max, theirs.reassembly_max),
    )  # fmt: skip
