"""All tunnels of one node: passes each record to the end that it is for, and queues what the ends send.

Record ids tell which end sends: `number << 1 | 1` is from the opener, `number << 1` from the acceptor. Data
and EOF travel on the data lane, in order; accept, credit, blocked, stop and reset on the control lane.

TUNNEL_OPEN: msgpack [cluster, endpoint, window]. TUNNEL_ACCEPT, TUNNEL_CREDIT, TUNNEL_BLOCKED: msgpack
[bytes]. TUNNEL_RESET: msgpack [code, text, setting, limit]; the last two, the limit that was reached, were
added later and may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import LimitReached, RemoteProtocolError
from .dispatch import Endpoint
from .frame import Kind
from .link import Link
from .tunnel import BROKEN, CLOSED, OPENING, TunnelEnd
from .values import clip, decode_values, encode_values

Opened = Callable[[TunnelEnd, str, str], object]
"""Called with each incoming tunnel, its cluster and its endpoint, once it has been admitted."""


class TunnelTable:
    """Ends of tunnels by link and wire id."""

    def __init__(
        self, *, tunnels_max: int, window_bytes: int, opened: Opened,
        request_flush: Callable[[Link], None],
    ) -> None:  # fmt: skip
        self._tunnels_max, self._window_bytes = tunnels_max, window_bytes
        self._opened, self._request_flush = opened, request_flush
        self.endpoints: dict[str, dict[str, Endpoint]] = {}
        """Endpoints to which tunnels can be opened here, by cluster and name."""
        self.draining = False
        self.handlers = 0
        """Running handlers of incoming tunnels; counted by the shell. A handler may outlive its tunnel."""
        self._ends: dict[tuple[Link, int], TunnelEnd] = {}
        self.opened = self.accepted = self.refused = self.broken = self.closed = self.late = 0

    def __iter__(self) -> Iterator[TunnelEnd]:
        return iter(self._ends.values())

    def __len__(self) -> int:
        return len(self._ends)

    def open(self, link: Link, cluster: str, endpoint: str, window_bytes: int) -> TunnelEnd:
        """Ask the peer for a tunnel. Raises LimitReached."""
        if len(self._ends) >= self._tunnels_max:
            raise LimitReached("tunnels_max", self._tunnels_max)
        end = TunnelEnd(
            link, link.new_id(), f"{cluster}/{endpoint}", opener=True, window_bytes=window_bytes
        )
        self._ends[link, end.wire_id] = end
        self.opened += 1
        self._push(end, Kind.TUNNEL_OPEN, encode_values(cluster, endpoint, end.window_bytes))
        return end

    def send(self, end: TunnelEnd, part: bytes) -> None:
        """Send a part. The caller has checked `may_send`."""
        end.note_sent(len(part))
        self._push(end, Kind.TUNNEL_DATA, part)

    def send_eof(self, end: TunnelEnd) -> None:
        if not end.sent_eof and end.state not in (CLOSED, BROKEN):
            end.note_eof_sent()
            self._push(end, Kind.TUNNEL_EOF, b"")
            self._forget_if_done(end)
            end.wake()

    def report_blocked(self, end: TunnelEnd, size_bytes: int) -> None:
        """Note that a part waits for credit; ask the reader for it if it would not return enough unasked."""
        returned_bytes = end.request_credit(size_bytes)
        if returned_bytes:
            self._control(end, Kind.TUNNEL_BLOCKED, encode_values(returned_bytes))

    def read(self, end: TunnelEnd) -> bytes:
        part = end.read()
        if end.credit_due:
            self._return_credit(end)
        return part

    def _return_credit(self, end: TunnelEnd) -> None:
        owed = end.take_owed()
        if owed and not end.received_eof and end.state != BROKEN:
            self._control(end, Kind.TUNNEL_CREDIT, encode_values(owed))

    def stop_reading(self, end: TunnelEnd) -> None:
        """Read no more at this end; the other one is told, so that it stops sending."""
        if not end.stopped and not end.received_eof and end.state not in (CLOSED, BROKEN):
            self._control(end, Kind.TUNNEL_STOP, b"")
        end.stop_reading()
        end.wake()

    def reset(self, end: TunnelEnd, code: str, text: str) -> None:
        """Break the tunnel at both ends."""
        if end.state in (CLOSED, BROKEN):
            return
        clipped = clip(text[:1024])
        # First: if it raises, nothing has been discarded.
        body = encode_values(clip(code), clipped)
        self._discard(end)
        self._control(end, Kind.TUNNEL_RESET, body)
        end.mark_broken(f"aborted at this end: {clipped}")
        self._forget_if_done(end)

    def abandon(self, reason: str) -> None:
        """Mark all ends as broken, but tell neither peers nor waiting tasks."""
        for end in self:
            end.state, end.reason = BROKEN, reason

    def _discard(self, end: TunnelEnd) -> None:
        end.link.outbox.discard_all(end.wire_id)

    def _push(self, end: TunnelEnd, kind: int, body: bytes) -> None:
        end.link.outbox.push_joined(end.wire_id, kind, end.wire_id, body)
        self._request_flush(end.link)

    def _control(self, end: TunnelEnd, kind: int, body: bytes) -> None:
        if end.link.up:
            end.link.send_control(kind, end.wire_id, body)
            self._request_flush(end.link)

    def _forget_if_done(self, end: TunnelEnd) -> None:
        """Forget the end if it is closed or broken."""
        done = end.state in (CLOSED, BROKEN)
        if done and self._ends.pop((end.link, end.wire_id), None) is not None:
            self.broken += end.state == BROKEN
            self.closed += end.state == CLOSED

    # Records

    def on_record(self, link: Link, kind: int, ident: int, body: bytes) -> None:
        """Process a record of a tunnel.

        Raises:
            RemoteProtocolError: for more data than the window, credit that makes no sense, and so on.
        """
        if kind == Kind.TUNNEL_OPEN:
            self._on_open(link, ident, body)
            return
        end = self._ends.get((link, ident ^ 1))
        if end is None:
            self.late += 1  # It broke or was reset here while this was on its way.
            if kind == Kind.TUNNEL_ACCEPT:  # Our RESET overtook the OPEN, on the other lane: again.
                link.send_control(Kind.TUNNEL_RESET, ident | 1, encode_values("late", "given up"))
                self._request_flush(link)
            return
        if kind == Kind.TUNNEL_DATA:
            end.received(body)
        elif kind == Kind.TUNNEL_EOF:
            end.peer_ended()
        elif kind == Kind.TUNNEL_ACCEPT:
            end.accepted(decode_values(body, "TUNNEL_ACCEPT", (int,))[0])
        elif kind == Kind.TUNNEL_CREDIT:
            end.credited(decode_values(body, "TUNNEL_CREDIT", (int,))[0])
        elif kind == Kind.TUNNEL_BLOCKED:
            end.peer_blocked(decode_values(body, "TUNNEL_BLOCKED", (int,))[0])
            if end.credit_due:
                self._return_credit(end)
        elif kind == Kind.TUNNEL_STOP:
            end.peer_stops()
        else:
            code, text, *limit_reached = decode_values(
                body, "TUNNEL_RESET", (str, str), defaults=("", 0)
            )
            if end.state == OPENING:
                end.refusal, end.limit_reached = code, limit_reached
            self._discard(end)
            end.mark_broken(f"aborted at the other end: {text}")
        self._forget_if_done(end)

    def _on_open(self, link: Link, ident: int, body: bytes) -> None:
        cluster, endpoint, window = decode_values(body, "TUNNEL_OPEN", (str, str, int))
        if not ident & 1 or (link, ident ^ 1) in self._ends or window < 1:
            raise RemoteProtocolError(f"invalid TUNNEL_OPEN: id {ident}, window {window}")
        end = TunnelEnd(
            link, ident >> 1, f"{cluster}/{endpoint}", opener=False,
            window_bytes=self._window_bytes,
        )  # fmt: skip
        end.accepted(window)
        refusal, setting, limit = self._refusal(link, cluster, endpoint)
        if refusal:
            self.refused += 1
            self._control(end, Kind.TUNNEL_RESET, encode_values(refusal, refusal, setting, limit))
            return
        self._ends[link, end.wire_id] = end
        self.accepted += 1
        self._control(end, Kind.TUNNEL_ACCEPT, encode_values(end.window_bytes))
        self._opened(end, cluster, endpoint)

    def _refusal(self, link: Link, cluster: str, endpoint: str) -> tuple[str, str, int]:
        """Return why the peer may not open a tunnel there now, empty if it may; and the setting and limit that are
        the reason, if any are."""
        found = self.endpoints.get(cluster, {}).get(endpoint)
        if found is None:
            return "no_such_endpoint", "", 0
        if found.allow is not None and link.cluster not in found.allow:
            return "not_allowed", "", 0
        if max(len(self._ends), self.handlers) >= self._tunnels_max:
            return "busy", "tunnels_max", self._tunnels_max
        return "busy" if self.draining else "", "", 0

    def lost(self, link: Link, reason: str) -> None:
        """Break all tunnels of a link that has ended: a tunnel never moves to another member."""
        for end in [end for key, end in self._ends.items() if key[0] is link]:
            end.mark_broken(reason)
            self._forget_if_done(end)
