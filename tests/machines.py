"""State machines of mesh/protocol under test: links that are up, what they have sent, and a cable between two links."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mesh.protocol.batch import Batch, batch_pieces
from mesh.protocol.frame import CONTROL, DATA, MORE, Frame
from mesh.protocol.instructions import Instruction
from mesh.protocol.link import Link, LinkLimits

LIMITS = LinkLimits(
    window_bytes=8192, frame_bytes_max=2048, chunk_bytes=512, outbox_bytes=1 << 16,
    record_bytes_max=1 << 20, reassembly_bytes_max=1 << 20, ack_delay_s=0.05,
)  # fmt: skip
LANES = (CONTROL, DATA)
ME, OTHER = b"m" * 16, b"o" * 16

Record = tuple[int, int, bytes]
"""(kind, id, body), with the body complete."""


def make_link(
    peer: bytes = OTHER, *, cluster: str = "shop", up: bool = True, dialled: bool = True,
    **limits: Any,
) -> Link:  # fmt: skip
    """Make a link; if `up`, with a connection for each lane, named (lane, 0)."""
    link = Link(peer, cluster, b"k" * 16, dialled=dialled, limits=replace(LIMITS, **limits))
    for lane in LANES if up else ():
        link.attach(lane, (lane, 0), 1)
    return link


def make_batch(
    first: int, payloads: Sequence[bytes], *, topic: str = "t", publisher: bytes = OTHER,
    epoch: int = 1, headers: Sequence[bytes] | None = None,
) -> Batch:  # fmt: skip
    pieces, _ = batch_pieces(
        publisher, epoch, first, 0, topic.encode(), payloads, message_headers=headers
    )
    return Batch(b"".join(pieces))


def frames(out: Sequence[Instruction]) -> list[Frame]:
    found = []
    for item in out:
        assert isinstance(item, tuple)
        found.append(Frame(item[1]))
    return found


def take_frames(link: Link) -> list[Frame]:
    """Return the frames that may be sent now, without acknowledging them."""
    out: list[Instruction] = []
    link.flush(out)
    return frames(out)


def take_records(link: Link) -> list[Record]:
    """Return every waiting record, complete and in order. Frames are acknowledged at once, so that there is credit."""
    whole: list[Record] = []
    pieces: dict[tuple[int, int], bytes] = {}
    while left := take_frames(link):
        for frame in left:
            for kind, flags, ident, start, end in frame.records:
                body = pieces.pop((kind, ident), b"") + bytes(frame.data[start:end])
                if flags & MORE:
                    pieces[kind, ident] = body
                else:
                    whole.append((kind, ident, body))
        for lane in (link.control, link.data):
            lane.acknowledge(lane.next_sequence - 1)
    return whole


class Cable:
    """Connects two links. Each lane can be pulled, which loses what it carries, and plugged in again.

    It acknowledges as a core does: with frames that are sent anyway, after much was received, or when it is due.
    """

    def __init__(self, *links: Link) -> None:
        self.links = links
        self.now_s = 0.0
        self._plugs = 0
        self._plugged: dict[int, tuple[int, int] | None] = dict.fromkeys(LANES)
        self.wires = {(side, lane): deque[bytes]() for side in (0, 1) for lane in LANES}
        for lane in LANES:
            self.plug(lane)

    def plug(self, lane: int) -> None:
        """Make a new connection; the old one is gone with what it carried."""
        self.pull(lane)
        self._plugs += 1
        conn = self._plugged[lane] = (lane, self._plugs)
        expects = [link.lane(lane).expected for link in self.links]
        for side, link in enumerate(self.links):
            self.wires[side, lane].extend(link.attach(lane, conn, expects[1 - side]))
        for side in (0, 1):
            self.flush(side)

    def pull(self, lane: int) -> None:
        conn, self._plugged[lane] = self._plugged[lane], None
        if conn is not None:
            for side, link in enumerate(self.links):
                link.detach(conn)
                self.wires[side, lane].clear()

    def flush(self, side: int) -> None:
        """Send what may be sent."""
        out: list[Instruction] = []
        link = self.links[side]
        link.flush(out)
        if link.needs_ack_now() or (link.ack_due_s is not None and link.ack_due_s <= self.now_s):
            link.send_unsequenced(out, [])
        for item in out:
            assert isinstance(item, tuple)
            conn, data = item
            lane = LANES[0 if conn == self._plugged[CONTROL] else 1]
            assert conn == self._plugged[lane], "nothing is sent into a lost connection"
            assert len(data) <= link.limits.frame_bytes_max
            self.wires[side, lane].append(data)

    def carry(self, side: int, lane: int) -> list[Record]:
        """Take one frame that `side` sent to the other end; return the records it completes."""
        wire = self.wires[side, lane]
        if not wire:
            return []
        data, receiver = wire.popleft(), self.links[1 - side]
        received = receiver.receive(Frame(data), len(data), self.now_s)
        records = [(kind, ident, bytes(body[a:b])) for kind, ident, body, a, b in received]
        return records

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for side in (0, 1):
            self.flush(side)
