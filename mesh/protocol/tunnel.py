"""One end of a tunnel: an ordered, throttled stream of parts to one member.

    opener   OPENING ──ACCEPT──> OPEN            acceptor   OPEN from the start
             BUSY, no member, refused ──> BROKEN
    both     OPEN ──send_eof──> no more to send; ──EOF in──> no more to read; both: CLOSED
             STOP in: it will not read any more, sending is refused from then on
             OPEN ──RESET in or out, link gone──> BROKEN

The reader throttles the writer: `window_bytes` may be in flight or unread, and credit comes back as
parts are read, by the quarter of a window, so that a small part is not answered with another. A writer
that needs the rest as well, for a part of most of a window, says so: BLOCKED. Invariants, checked by
properties: what was delivered is a prefix of what was sent; credit is never negative; never more than
the window is in flight. A part arrives as it was sent.
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
    """State of one end, which whoever holds it gives a `wake` and maybe an `arrived`."""

    def __init__(
        self, link: Link, ident: int, target: str, *, opener: bool, window_bytes: int
    ) -> None:
        """
        Args:
            ident: unique per link and opener.
            window_bytes: what this end grants the other one.
        """
        self.link, self.target = link, target
        self.wire_id = ident << 1 | opener
        """Of what it sends, and its flow in the link's outbox; the other end's differs in the last bit."""
        self.wake: Callable[[], None] = lambda: None
        """Called whenever somebody who waits should look again."""
        self.arrived: Callable[[], None] | None = None
        """Called in its place when it is for a part that came."""
        self.state = OPENING if opener else OPEN
        self.reason = ""
        self.refusal = ""
        self.full_of: Sequence[Any] = ("", 0)
        """The setting that left no room for it at the other end, and its limit; empty: it was not that."""
        self.window_bytes, self.peer_window_bytes = window_bytes, 0
        self.credit_bytes = 0
        self._kept_bytes = 0
        """What the reader may keep for itself, unasked: less than a quarter of its window."""
        self._asked_bytes = self._wanted_bytes = 0
        """Credit returned in all that we have said we wait for; that the writer has."""
        self._sent_credit = self._returned_bytes = 0
        """Credit used for parts in all; returned for parts read."""
        self.sent_eof = self.received_eof = self.stopped = self.peer_stopped = False
        self._parts: deque[bytes] = deque()
        self._backlog: Backlog | None = None
        """What came behind them, if that is more; they are not empty then."""
        self._unread_bytes = self._owed_bytes = 0
        self._sent_parts = self.sent_bytes = self._received_parts = self.received_bytes = 0

    # The other end's words

    def accepted(self, window_bytes: int) -> None:
        """It granted us a window; the opener may send now."""
        if self.credit_bytes or self.peer_window_bytes or window_bytes < 1:
            raise RemoteProtocolError(f"tunnel accepted with a window of {window_bytes} bytes")
        self._kept_bytes = (window_bytes - 1) // 4
        # It may grant what it likes: what waits here is ours to bound.
        window_bytes = min(window_bytes, self.link.limits.outbox_bytes)
        self.peer_window_bytes = self.credit_bytes = window_bytes
        if self.state == OPENING:
            self.state = OPEN
            self._maybe_closed()  # Data and EOF, on the other lane, may have been faster.
        self.wake()

    def credited(self, size_bytes: int) -> None:
        self.credit_bytes += size_bytes
        if size_bytes < 1 or self.credit_bytes > self.peer_window_bytes:
            raise RemoteProtocolError(
                f"tunnel credit of {size_bytes} bytes makes {self.credit_bytes}, "
                f"the window is {self.peer_window_bytes}"
            )
        self.wake()

    def peer_blocked(self, returned_bytes: int) -> None:
        """BLOCKED: the writer goes on when so much credit has been returned in all."""
        if not 0 < returned_bytes <= self._returned_bytes + self.window_bytes:
            raise RemoteProtocolError(
                f"a tunnel waits for {returned_bytes} bytes of credit, "
                f"{self._returned_bytes} were returned, the window is {self.window_bytes}"
            )
        self._wanted_bytes = max(self._wanted_bytes, returned_bytes)

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
        if self.stopped:  # Nobody reads any more: let it run out, so that the close stays clean.
            self._unread_bytes -= len(part) or 1
            return
        if self._backlog is not None:
            self._backlog.append(part)
        elif len(self._parts) < PACK_PARTS:
            self._parts.append(part)
        else:
            self._backlog = Backlog()
            self._backlog.append(part)
        (self.arrived or self.wake)()

    def ended(self) -> None:
        """EOF: the other end sends no more."""
        self.received_eof = True
        self._maybe_closed()
        self.wake()

    def peer_stops(self) -> None:
        """STOP: the other end will not read what else we send."""
        self.peer_stopped = True
        self.wake()

    def broke(self, reason: str) -> None:
        """RESET, or the link is gone. What was unread is dropped, unless all of it is here."""
        if self.state not in (CLOSED, BROKEN):
            self.state, self.reason = BROKEN, reason
            if not self.received_eof:
                self._drop_unread()
        self.wake()

    # Our side

    @property
    def part_bytes_max(self) -> int:
        """Largest part the other end takes."""
        return min(self.peer_window_bytes, self.link.payload_bytes_max)

    def may_send(self, size_bytes: int) -> bool:
        return self.credit_bytes >= max(1, size_bytes)

    def asks_for(self, size_bytes: int) -> int:
        """For a part that may not be sent: how much credit must have been returned in all before it
        may. 0: the reader returns enough unasked, or was asked."""
        size, window = max(1, size_bytes), self.peer_window_bytes
        wanted = self._sent_credit + size - window
        if not window or size <= window - self._kept_bytes or wanted <= self._asked_bytes:
            return 0
        self._asked_bytes = wanted
        return wanted

    def sending(self, size_bytes: int) -> None:
        """A part is on its way: it uses credit. Check `may_send` first."""
        self.credit_bytes -= max(1, size_bytes)
        self._sent_credit += max(1, size_bytes)
        assert self.credit_bytes >= 0, "sent without credit"
        self._sent_parts += 1
        self.sent_bytes += size_bytes

    def sending_eof(self) -> None:
        self.sent_eof = True
        self._maybe_closed()

    def _maybe_closed(self) -> None:
        if self.sent_eof and self.received_eof and self.state == OPEN:
            self.state = CLOSED

    @property
    def readable(self) -> bool:
        return bool(self._parts)

    def read(self) -> bytes:
        """The next part."""
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
        """Whether credit is worth a word: a quarter of a window, or what the writer waits for."""
        owed, returned = self._owed_bytes, self._returned_bytes
        return owed * 4 >= self.window_bytes or returned < self._wanted_bytes <= returned + owed

    def take_owed(self) -> int:
        """All the credit there is to return to the writer."""
        owed, self._owed_bytes = self._owed_bytes, 0
        self._returned_bytes += owed
        return owed

    def stop_reading(self) -> None:
        """Nobody here will read the rest."""
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
