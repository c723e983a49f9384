"""Finds out why a connection ended: libzmq reports the end but not the reason.

If a peer sends more than MAXMSGSIZE, libzmq hangs up as the message begins to arrive, and reports the same event
as if the peer had closed. The kernel knows the difference: seen through a second descriptor, a connection that
libzmq has closed is still ESTABLISHED if its peer is alive.
"""

from __future__ import annotations

import math
import os
import resource
import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Hashable

import trio

STRANGER = "a connection that does not speak our protocol, or not under a key of ours"
"""libzmq cannot report the two cases separately without harm (see `DENIED` in zmq_transport). The second one is normal:
a node with key files tries the keys that it trusts at a seed, one after another."""
BROKEN_OFF = "a handshake that was broken off"
DESCRIPTORS_DIVISOR = 4
"""At most one in so many of the process's descriptors is used. Of more connections only the latest are known."""
CLOSE_PAUSES_S = (0.0, 0.001, 0.005, 0.05)
"""Pauses before each look whether libzmq has closed the descriptor: it reports the end first and then closes, nearly
always at once, but its thread may be interrupted in between."""
GREETING_BYTES = 64
"""Size of the ZMTP 3 greeting, which both sides send first."""
CLIENTS_BYTES, SERVERS_BYTES = GREETING_BYTES + 202 + 259, GREETING_BYTES + 170 + 32
"""Least bytes that each side sends in a CURVE handshake: the greeting, then HELLO and INITIATE (client), or WELCOME and
READY (server)."""
REDIAL_S = 1.0
"""A ZeroMQ socket without CURVE reconnects within a tenth of this, unless configured otherwise."""
GREETINGS_MIN = 5
"""So many connections in a row that end after a greeting come from a plain socket, which reconnects for ever. Nodes
that leave do so only once each."""
SENT_NOTHING = (0, 1)
"""Values of bytes_received if the peer sent nothing: the kernel counts its FIN as one byte."""
TCP_ESTABLISHED = 1
STATE_OFFSET, SINCE_RECEIVED_OFFSET, BYTES_RECEIVED_OFFSET = 0, 52, 128
"""Offsets in `struct tcp_info`: state (u8), milliseconds since data was received (u32), bytes received (u64)."""


class Endings:
    """Keeps a second descriptor for each of the latest connections, until `ended`, `forget` or `close`."""

    def __init__(self, silence_ms: int) -> None:
        """`silence_ms`: libzmq may have given up a peer that was silent for so long because of its silence."""
        self._silence_ms = silence_ms
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._kept_max = (
            limit if limit != resource.RLIM_INFINITY else sys.maxsize
        ) // DESCRIPTORS_DIVISOR
        self._kept: OrderedDict[Hashable, socket.socket] = OrderedDict()
        self._unverified: dict[Hashable, Hashable] = {}
        """Keys whose kept descriptor may belong to another connection, each with the event source that reported it."""
        self._asked_sources: set[Hashable] = set()
        """Event sources with a question to ZAP since the last `caught_up`: a handshake there may have succeeded."""
        self._greetings, self._last_greeting_s = 0, -math.inf
        """How many connections in a row ended after only a greeting, and when the last one did."""
        self._failed_kind: str | None = None
        """Kind of the accepted connection that ends next, if its handshake has failed."""

    def begun(self, key: Hashable, descriptor: int, source: Hashable = None) -> None:
        """Keep a second descriptor of a connection, named `key` from now on.

        By now `descriptor` may be closed, or belong to another connection. So the copy is trusted only after the next
        `caught_up` of `source`: libzmq reports an end there before it closes the descriptor, so
        if no end has been reported by then, the connection had not ended when the descriptor was copied.
        """
        self.forget(key)
        self._unverified[key] = source
        try:
            # With the family given, `fromfd` does not inspect the descriptor, which may be that of a file by
            # now; without, it could raise and leave the copy open.
            self._kept[key] = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            return  # The connection has ended, or there are no descriptors left.
        if len(self._kept) > self._kept_max:
            self.forget(next(iter(self._kept)))

    def caught_up(self, source: Hashable = None) -> None:
        """All events of this source have been handled."""
        self._asked_sources.discard(source)
        if self._unverified:
            self._unverified = {key: one for key, one in self._unverified.items() if one != source}

    def asked(self, source: Hashable = None) -> None:
        """libzmq asked ZAP about a connection whose events come from this source; no handshake succeeds without."""
        self._asked_sources.add(source)

    def ended(self, key: Hashable) -> socket.socket | None:
        """Stop keeping an ended connection; return it, for `hung_up_peer`, if its peer lives and talks, else None."""
        kept = self._take(key)
        if kept is None:
            return None
        state, silent_ms = (
            _tcp_info(kept, "B", STATE_OFFSET),
            _tcp_info(kept, "I", SINCE_RECEIVED_OFFSET),
        )
        if state == TCP_ESTABLISHED and silent_ms is not None and silent_ms < self._silence_ms:
            return kept
        kept.close()
        return None

    def handshake_incomplete(self, key: Hashable, handshake_bytes: int) -> bool:
        """Return whether this connection received something, but less than a complete handshake."""
        received_bytes = self._received_bytes(key)
        if received_bytes is None or received_bytes in SENT_NOTHING:
            return False
        return received_bytes < handshake_bytes

    def _sent_nothing(self, key: Hashable) -> bool:
        """Return whether the peer closed without sending anything, as a proxy does that accepts connections for a peer
        that is away. Also True if the kept descriptor belongs to another connection, which is alive."""
        kept = self._kept.get(key)
        if kept is None:
            return False
        if key in self._unverified and _tcp_info(kept, "B", STATE_OFFSET) == TCP_ESTABLISHED:
            return True
        return _tcp_info(kept, "Q", BYTES_RECEIVED_OFFSET) in SENT_NOTHING

    def _received_bytes(self, key: Hashable) -> int | None:
        """Return the bytes received; None if the connection is not kept, or may be another one."""
        kept = None if key in self._unverified else self._kept.get(key)
        return None if kept is None else _tcp_info(kept, "Q", BYTES_RECEIVED_OFFSET)

    def _take(self, key: Hashable) -> socket.socket | None:
        """Stop keeping a connection, and return it; None if it is not kept, or may be another one."""
        kept = self._kept.pop(key, None)
        unverified = self._unverified.pop(key, self) is not self
        if kept is not None and unverified:
            kept.close()
            return None
        return kept

    def failed(self, *, by_them: bool) -> None:
        """The handshake of the accepted connection that ends next has failed: the peer broke it off (`by_them`), or it
        took too long."""
        self._failed_kind = BROKEN_OFF if by_them else STRANGER

    def unadmitted_kind(self, key: Hashable, now_s: float) -> str | None:
        """Return what kind of connection ended before it was admitted; None if it had been admitted.

        An empty text: the peer broke off before it sent anything, as our own probes do; this is not worth reporting.
        """
        what, self._failed_kind = self._failed_kind, None
        # It had ended before we could look, or there are too many connections to know this one.
        late = key not in self._kept or key in self._unverified
        if what is None:
            # No failure was reported, so the peer did not break off; and without a question to ZAP since it began, no
            # handshake succeeded: libzmq refused what it sent.
            refused = key in self._unverified and self._unverified[key] not in self._asked_sources
            if not refused and not self.handshake_incomplete(key, CLIENTS_BYTES):
                return None
            what = STRANGER
        elif what == BROKEN_OFF and self._sent_nothing(key):
            self.forget(key)
            return ""
        elif late or (self._received_bytes(key) or 0) >= CLIENTS_BYTES:
            what = BROKEN_OFF  # By libzmq, whose time was over as our loop was late to answer ZAP.
        return STRANGER if self.was_plain(key, now_s) else what

    def was_plain(self, key: Hashable, now_s: float) -> bool:
        """Return whether a connection that its peer ended during the handshake came from a plain ZeroMQ socket.

        Such a socket rejects our greeting: only its own greeting was received, several times in a row. With CURVE more
        comes at once, except from a node that is just leaving.
        """
        kept = self._take(key)
        if kept is None:
            return False
        with kept:
            received_bytes = _tcp_info(kept, "Q", BYTES_RECEIVED_OFFSET) or 0
        if received_bytes in SENT_NOTHING or received_bytes > GREETING_BYTES + 1:
            return False
        again = now_s - self._last_greeting_s < REDIAL_S
        self._greetings, self._last_greeting_s = self._greetings + 1 if again else 1, now_s
        return self._greetings >= GREETINGS_MIN

    def forget(self, key: Hashable) -> None:
        """Close the kept descriptor, since we hang up ourselves: while any descriptor is open, so is the connection."""
        kept = self._take(key)
        if kept is not None:
            kept.close()

    def close(self) -> None:
        for key in list(self._kept):
            self.forget(key)


async def hung_up_peer(kept: socket.socket, descriptor: int) -> str | None:
    """Return the address of the peer on which libzmq hung up; None if libzmq did not.

    `kept` comes from `ended`, and is closed here. The result is also None if the number `descriptor` had been reused
    before it was copied: then `kept` is another connection, which goes on or was ended by its peer.
    """
    with kept:
        for pause_s in CLOSE_PAUSES_S:
            await trio.sleep(pause_s)
            if not _same_file(kept.fileno(), descriptor):
                lives = _tcp_info(kept, "B", STATE_OFFSET) == TCP_ESTABLISHED
                return _peer_address(kept) if lives else None
    return None


def _tcp_info(kept: socket.socket, kind: str, offset: int) -> int | None:
    """Return a field of `struct tcp_info`; None if `kept` is not a socket, or the kernel has no such field."""
    try:
        info = kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, offset + struct.calcsize(kind))
        return int(struct.unpack_from(kind, info, offset)[0])
    except (OSError, struct.error):
        return None


def _same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def _peer_address(kept: socket.socket) -> str:
    try:
        return str(kept.getpeername()[0])
    except OSError:  # The peer has closed since; it was there when libzmq hung up.
        return ""
