"""One end of a tunnel: an ordered stream of parts to one member, with flow control.

    opener   OPENING ──ACCEPT──> OPEN            acceptor   OPEN from the start
             BUSY, no member, refused ──> BROKEN
    both     OPEN ──send_eof──> no more to send; ──EOF in──> no more to read; both: CLOSED
             STOP in: the other end reads no more, sending is refused from then on
             OPEN ──RESET in or out, link gone──> BROKEN

The reader throttles the writer: at most `window_bytes` may be in flight or unread. Credit is returned as
parts are read, a quarter of the window at a time, so that not every small part causes a record in return.
A writer that needs the rest as well, for a part of nearly a window, asks for it with BLOCKED. Invariants,
checked by property tests: the parts delivered are a prefix of the parts sent; credit is never negative;
never more than the window is in flight. Parts are neither split nor joined for the reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import RemoteProtocolError
from .backlog import PACK_PARTS, Backlog
from .link import Link

OPENING, OPEN, CLOSED, BROKEN = "opening", "open", "closed", "broken"


@dataclass(frozen=True, slots=True)
class TunnelStatistics:
    """Plain counters of one end; bytes are of parts."""

    peer: bytes
    target: str
    state: str
    sent_parts: int
    sent_bytes: int
    received_parts: int
    received_bytes: int
    unread_bytes: int
    credit_bytes: int


class TunnelEnd:
    """State of one end. Its holder sets `wake`, and may set `on_part`."""

    def __init__(
        self, link: Link, ident: int, target: str, *, opener: bool, window_bytes: int
    ) -> None:
        """
        Args:
            ident: unique per link and opener.
            window_bytes: credit that this end grants the other one.
        """
        self.link, self.target = link, target
        self.wire_id = ident << 1 | opener
        """Id of the records that this end sends, and its flow in the link's outbox; the other end's differs in the last
        bit."""
        self.wake: Callable[[], None] = lambda: None
        """Called whenever waiting tasks should look at the state again."""
        self.on_part: Callable[[], None] | None = None
        """If set, called instead of `wake` when a part has arrived."""
        self.state = OPENING if opener else OPEN
        self.reason = ""
        self.refusal = ""
        self.limit_reached: Sequence[Any] = ("", 0)
        """The setting whose limit the other end had reached, and that limit, if it refused the tunnel for that."""
        self.window_bytes, self.peer_window_bytes = window_bytes, 0
        self.credit_bytes = 0
        self._withheld_bytes = 0
        """Credit that the reader may hold back as long as nobody asks for it: less than a quarter of its window."""
        self._requested_bytes = self._peer_requested_bytes = 0
        """Totals of returned credit: for which we have told the reader that we wait; for which the writer waits."""
        self._used_credit_bytes = self._returned_bytes = 0
        """Totals of credit: used for parts sent; returned for parts read."""
        self.sent_eof = self.received_eof = self.stopped = self.peer_stopped = False
        self._parts: deque[bytes] = deque()
        self._backlog: Backlog | None = None
        """Parts that came after those in `_parts`, if these are many; `_parts` is not empty then."""
        self._unread_bytes = self._owed_bytes = 0
        self._sent_parts = self.sent_bytes = self._received_parts = self.received_bytes = 0

    # Records of the other end

    def accepted(self, window_bytes: int) -> None:
        """Take the window that the other end grants, by ACCEPT or OPEN: this end may send now."""
        if self.credit_bytes or self.peer_window_bytes or window_bytes < 1:
            raise RemoteProtocolError(
                f"tunnel accepted twice, or with an invalid window of {window_bytes} bytes"
            )
        self._withheld_bytes = (window_bytes - 1) // 4
        # The other end may grant any window, but parts wait in our outbox, which we have to bound.
        window_bytes = min(window_bytes, self.link.limits.outbox_bytes)
        self.peer_window_bytes = self.credit_bytes = window_bytes
        if self.state == OPENING:
            self.state = OPEN
            self._close_if_done()  # Data and EOF, on the other lane, may have come before.
        self.wake()

    def credited(self, size_bytes: int) -> None:
        self.credit_bytes += size_bytes
        if size_bytes < 1 or self.credit_bytes > self.peer_window_bytes:
            raise RemoteProtocolError(
                f"tunnel credit of {size_bytes} bytes makes a total of {self.credit_bytes}, "
                f"the window is {self.peer_window_bytes}"
            )
        self.wake()

    def peer_blocked(self, returned_bytes: int) -> None:
        """BLOCKED: the writer waits until the total of returned credit is `returned_bytes`."""
        if not 0 < returned_bytes <= self._returned_bytes + self.window_bytes:
            raise RemoteProtocolError(
                f"tunnel blocked until {returned_bytes} bytes of credit are returned: "
                f"{self._returned_bytes} were, the window is {self.window_bytes}"
            )
        self._peer_requested_bytes = max(self._peer_requested_bytes, returned_bytes)

    def received(self, part: bytes) -> None:
        if self.received_eof:
            raise RemoteProtocolError("tunnel data after its end")
        self.link.check_payload(len(part))
        self._unread_bytes += len(part) or 1
        if self._unread_bytes + self._owed_bytes > self.window_bytes:
            raise RemoteProtocolError(
                f"{self._unread_bytes + self._owed_bytes} bytes in a tunnel, "
                f"the window is {self.window_bytes}"
            )
        self._received_parts += 1
        self.received_bytes += len(part)
        if self.stopped:  # Nobody reads it: dropped without error, so that the tunnel can close.
            self._unread_bytes -= len(part) or 1
            return
        if self._backlog is not None:
            self._backlog.append(part)
        elif len(self._parts) < PACK_PARTS:
            self._parts.append(part)
        else:
            self._backlog = Backlog()
            self._backlog.append(part)
        (self.on_part or self.wake)()

    def peer_ended(self) -> None:
        """EOF: the other end sends no more parts."""
        self.received_eof = True
        self._close_if_done()
        self.wake()

    def peer_stops(self) -> None:
        """STOP: the other end reads no more, so sending is pointless."""
        self.peer_stopped = True
        self.wake()

    def mark_broken(self, reason: str) -> None:
        """RESET, or the link is gone. Unread parts are dropped, unless EOF has come, so that none is missing."""
        if self.state not in (CLOSED, BROKEN):
            self.state, self.reason = BROKEN, reason
            if not self.received_eof:
                self._drop_unread()
        self.wake()

    # Our side

    @property
    def part_bytes_max(self) -> int:
        """Largest part that the other end takes."""
        return min(self.peer_window_bytes, self.link.payload_bytes_max)

    def may_send(self, size_bytes: int) -> bool:
        return self.credit_bytes >= max(1, size_bytes)

    def request_credit(self, size_bytes: int) -> int:
        """Return the total of returned credit for which a part of `size_bytes` has to wait; 0 if the reader returns
        enough of it unasked, or has been asked."""
        size, window = max(1, size_bytes), self.peer_window_bytes
        total_bytes = self._used_credit_bytes + size - window
        if (
            not window
            or size <= window - self._withheld_bytes
            or total_bytes <= self._requested_bytes
        ):
            return 0
        self._requested_bytes = total_bytes
        return total_bytes

    def note_sent(self, size_bytes: int) -> None:
        """Use credit for a part that is sent now. Check `may_send` first."""
        self.credit_bytes -= max(1, size_bytes)
        self._used_credit_bytes += max(1, size_bytes)
        assert self.credit_bytes >= 0, "sent without credit"
        self._sent_parts += 1
        self.sent_bytes += size_bytes

    def note_eof_sent(self) -> None:
        self.sent_eof = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.sent_eof and self.received_eof and self.state == OPEN:
            self.state = CLOSED

    @property
    def readable(self) -> bool:
        return bool(self._parts)

    def read(self) -> bytes:
        """Return the next part. Check `readable` first."""
        part = self._parts.popleft()
        if self._backlog is not None and not self._parts:
            self._parts = self._backlog.take()
            if not self._parts:
                self._backlog = None
        size = len(part) or 1
        self._unread_bytes -= size
        self._owed_bytes += size
        return part

    @property
    def credit_due(self) -> bool:
        """Whether to return credit now: there is a quarter of the window, or what the writer waits for."""
        owed, returned = self._owed_bytes, self._returned_bytes
        return (
            owed * 4 >= self.window_bytes
            or returned < self._peer_requested_bytes <= returned + owed
        )

    def take_owed(self) -> int:
        """Return all credit that is owed to the writer, and count it as returned."""
        owed, self._owed_bytes = self._owed_bytes, 0
        self._returned_bytes += owed
        return owed

    def stop_reading(self) -> None:
        """Drop unread parts, and those still to come: nobody here reads them."""
        self.stopped = True
        self._drop_unread()

    def _drop_unread(self) -> None:
        self._parts.clear()
        self._backlog = None
        self._unread_bytes = 0

    def statistics(self) -> TunnelStatistics:
        return TunnelStatistics(
            self.link.peer, self.target, self.state, self._sent_parts, self.sent_bytes,
            self._received_parts, self.received_bytes, self._unread_bytes, self.credit_bytes,
        )  # fmt: skip
