"""One lane of a link: sequence, acknowledgement, credit, resumption.

libzmq loses what the kernel held when a connection resets (3 resets in 30,000 sends: 353 to 392
frames, no error), so every frame has a sequence and the sender keeps it until it is acknowledged:

    send:     frame n --> unacked --> ack >= n --> forgotten; sum(unacked) <= window_bytes
    receive:  n == expected: deliver | n < expected: duplicate, drop | n > expected: an error
    resume:   the peer names what it expects; everything from there is sent again, in order

An acknowledgement also returns credit: one mechanism bounds memory, applies back-pressure and recovers
from resets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from ..errors import RemoteProtocolError

Conn = Hashable
"""A connection as the transport names it. Equal means the same connection."""


class Lane:
    """Sender and receiver state of one lane. Survives its connections."""

    __slots__ = ("ack_pending_bytes", "conn", "expected", "next_sequence", "number", "unacked",
                 "unacked_bytes", "window_bytes")  # fmt: skip

    def __init__(self, number: int, window_bytes: int) -> None:
        self.number, self.window_bytes = number, window_bytes
        self.conn: Conn | None = None
        self.next_sequence, self.expected = 1, 1
        self.unacked: deque[tuple[int, bytes]] = deque()
        self.unacked_bytes = 0
        self.ack_pending_bytes = 0
        """Received and not yet acknowledged to the peer."""

    def credit_bytes(self) -> int:
        return self.window_bytes - self.unacked_bytes

    def keep(self, frame: bytes) -> None:
        """Remember a frame that was packed with `next_sequence`, until it is acknowledged."""
        self.unacked.append((self.next_sequence, frame))
        self.unacked_bytes += len(frame)
        self.next_sequence += 1

    def acknowledge(self, through: int) -> None:
        """Forget the frames up to `through`, which the peer has received. Raises RemoteProtocolError if
        that one was never sent."""
        if through >= self.next_sequence:
            raise RemoteProtocolError(
                f"acknowledges frame {through}, but only {self.next_sequence - 1} were sent"
            )
        unacked = self.unacked
        while unacked and unacked[0][0] <= through:
            self.unacked_bytes -= len(unacked.popleft()[1])

    @property
    def oldest_unacked(self) -> int:
        """The first sequence that is not acknowledged, or not sent."""
        return self.unacked[0][0] if self.unacked else self.next_sequence

    def is_acked(self, sequence: int) -> bool:
        """Return whether the frame of this sequence was sent and has been acknowledged; 0 stands for no frame."""
        return 0 < sequence < self.oldest_unacked

    def accept(self, sequence: int, size_bytes: int) -> bool:
        """Return True for a frame to be delivered, False for a duplicate. Raises RemoteProtocolError on a gap."""
        if sequence == self.expected:
            self.expected += 1
            self.ack_pending_bytes += size_bytes
            return True
        if sequence < self.expected:
            return False
        raise RemoteProtocolError(f"frame {sequence} instead of {self.expected}")

    def check_resume(self, peer_expects: int) -> None:
        """Raise RemoteProtocolError unless the frame that the peer expects next is kept, or the next to be sent."""
        if not self.oldest_unacked <= peer_expects <= self.next_sequence:
            raise RemoteProtocolError(
                f"expects frame {peer_expects}, but only {self.oldest_unacked} to {self.next_sequence - 1} are kept"
            )

    def resume(self, peer_expects: int) -> list[bytes]:
        """Return the frames to send again on a new connection, given the sequence that the peer expects next.
        Raises as `check_resume` does."""
        self.check_resume(peer_expects)
        self.acknowledge(peer_expects - 1)
        return [frame for _, frame in self.unacked]
