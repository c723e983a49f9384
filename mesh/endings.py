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
DESCRIPTORS_PART = 4
"""At most one in so many of the process's descriptors is used. Of more connections only the latest are known."""
CLOSING_S = (0.0, 0.001, 0.005, 0.05)
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
SAID_NOTHING = (0, 1)
"""Values of bytes_received if the peer sent nothing: the kernel counts its FIN as one byte."""
TCP_ESTABLISHED = 1
STATE_AT, SINCE_RECEIVED_AT, BYTES_RECEIVED_AT = 0, 52, 128
"""Offsets in `struct tcp_info`: state (u8), milliseconds since data was received (u32), bytes received (u64)."""


class Endings:
    """Keeps a second descriptor for each of the latest connections, until `ended`, `forget` or `close`."""

    def __init__(self, silence_ms: int) -> None:
        """`silence_ms`: libzmq may have given up a peer that was silent for so long because of its silence."""
        self._silence_ms = silence_ms
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = (most if most != resource.RLIM_INFINITY else sys.maxsize) // DESCRIPTORS_PART
        self._kept: OrderedDict[Hashable, socket.socket] = OrderedDict()
        self._unsure: dict[Hashable, Hashable] = {}
        """Keys whose kept descriptor may belong to another connection, each with the event source that reported it."""
        self._asked: set[Hashable] = set()
        """Event sources with a question to ZAP since the last `caught_up`: a handshake there may have succeeded."""
        self._greeted, self._greeted_s = 0, -math.inf
        """How many connections in a row ended after only a greeting, and when the last one did."""
        self._failed: str | None = None
        """Kind of the accepted connection that ends next, if its handshake has failed."""

    def begun(self, key: Hashable, descriptor: int, told_on: Hashable = None) -> None:
        """Keep a second descriptor of a connection, named `key` from now on.

        By now `descriptor` may be closed, or belong to another connection. So the copy is trusted only after the next
        `caught_up` of the source `told_on`: libzmq reports an end there before it closes the descriptor, so
        if no end has been reported by then, the connection had not ended when the descriptor was copied.
        """
        self.forget(key)
        self._unsure[key] = told_on
        try:
            # With the family given, `fromfd` does not inspect the descriptor, which may be that of a file by
            # now; without, it could raise and leave the copy open.
            self._kept[key] = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            return  # The connection has ended, or there are no descriptors left.
        if len(self._kept) > self._most:
            self.forget(next(iter(self._kept)))

    def caught_up(self, told_on: Hashable = None) -> None:
        """All events of this source have been handled."""
        self._asked.discard(told_on)
        if self._unsure:
            self._unsure = {key: way for key, way in self._unsure.items() if way != told_on}

    def asked(self, told_on: Hashable = None) -> None:
        """libzmq asked ZAP about a connection whose events come from this source; no handshake succeeds without."""
        self._asked.add(told_on)

    def ended(self, key: Hashable) -> socket.socket | None:
        """Stop keeping an ended connection; return it, for `hung_up_on`, if its peer lives and talks, else None."""
        kept = self._take(key)
        if kept is None:
            return None
        state, silent_ms = _told(kept, "B", STATE_AT), _told(kept, "I", SINCE_RECEIVED_AT)
        if state == TCP_ESTABLISHED and silent_ms is not None and silent_ms < self._silence_ms:
            return kept
        kept.close()
        return None

    def fell_short(self, key: Hashable, handshake_bytes: int) -> bool:
        """Return whether this connection received something, but less than a complete handshake."""
        received_bytes = self._received_bytes(key)
        if received_bytes is None or received_bytes in SAID_NOTHING:
            return False
        return received_bytes < handshake_bytes

    def _said_nothing(self, key: Hashable) -> bool:
        """Return whether the peer closed without sending anything, as a proxy does that accepts connections for a peer
        that is away. Also True if the kept descriptor belongs to another connection, which is alive."""
        kept = self._kept.get(key)
        if kept is None:
            return False
        if key in self._unsure and _told(kept, "B", STATE_AT) == TCP_ESTABLISHED:
            return True
        return _told(kept, "Q", BYTES_RECEIVED_AT) in SAID_NOTHING

    def _received_bytes(self, key: Hashable) -> int | None:
        """Return the bytes received; None if the connection is not kept, or may be another one."""
        kept = None if key in self._unsure else self._kept.get(key)
        return None if kept is None else _told(kept, "Q", BYTES_RECEIVED_AT)

    def _take(self, key: Hashable) -> socket.socket | None:
        """Stop keeping a connection, and return it; None if it is not kept, or may be another one."""
        kept = self._kept.pop(key, None)
        unsure = self._unsure.pop(key, self) is not self
        if kept is not None and unsure:
            kept.close()
            return None
        return kept

    def failed(self, *, by_them: bool) -> None:
        """The handshake of the accepted connection that ends next has failed: the peer broke it off (`by_them`), or it
        took too long."""
        self._failed = BROKEN_OFF if by_them else STRANGER

    def stranger(self, key: Hashable, now_s: float) -> str | None:
        """Return what kind of connection ended before it was admitted; None if it had been admitted.

        An empty text: the peer broke off before it sent anything, as our own probes do; this is not worth reporting.
        """
        what, self._failed = self._failed, None
        # It had ended before we could look, or there are too many connections to know this one.
        late = key not in self._kept or key in self._unsure
        if what is None:
            # No failure was reported, so the peer did not break off; and without a question to ZAP since it began, no
            # handshake succeeded: libzmq refused what it sent.
            refused = key in self._unsure and self._unsure[key] not in self._asked
            if not refused and not self.fell_short(key, CLIENTS_BYTES):
                return None
            what = STRANGER
        elif what == BROKEN_OFF and self._said_nothing(key):
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
            received_bytes = _told(kept, "Q", BYTES_RECEIVED_AT) or 0
        if received_bytes in SAID_NOTHING or received_bytes > GREETING_BYTES + 1:
            return False
        again = now_s - self._greeted_s < REDIAL_S
        self._greeted, self._greeted_s = self._greeted + 1 if again else 1, now_s
        return self._greeted >= GREETINGS_MIN

    def forget(self, key: Hashable) -> None:
        """Close the kept descriptor, since we hang up ourselves: while any descriptor is open, so is the connection."""
        kept = self._take(key)
        if kept is not None:
            kept.close()

    def close(self) -> None:
        for key in list(self._kept):
            self.forget(key)


async def hung_up_on(kept: socket.socket, descriptor: int) -> str | None:
    """Return the address of the peer on which libzmq hung up; None if libzmq did not.

    `kept` comes from `ended`, and is closed here. The result is also None if the number `descriptor` had been reused
    before it was copied: then `kept` is another connection, which goes on or was ended by its peer.
    """
    with kept:
        for pause_s in CLOSING_S:
            await trio.sleep(pause_s)
            if not _same(kept.fileno(), descriptor):
                lives = _told(kept, "B", STATE_AT) == TCP_ESTABLISHED
                return _peer(kept) if lives else None
    return None


def _told(kept: socket.socket, kind: str, at: int) -> int | None:
    """Return a field of `struct tcp_info`; None if `kept` is not a socket, or the kernel has no such field."""
    try:
        told = kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, at + struct.calcsize(kind))
        return int(struct.unpack_from(kind, told, at)[0])
    except (OSError, struct.error):
        return None


def _same(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def _peer(kept: socket.socket) -> str:
    try:
        return str(kept.getpeername()[0])
    except OSError:  # The peer has closed since; it was there when libzmq hung up.
        return ""
