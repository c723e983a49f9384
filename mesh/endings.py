"""Why a connection ended: libzmq reports the end and not the reason.

If a peer sends more than MAXMSGSIZE, libzmq hangs up as the message begins to arrive, and reports the same event
as if the peer had gone. The kernel knows the difference: by a second descriptor, a connection that libzmq has
closed is still ESTABLISHED if its peer lives.
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
"""libzmq does not tell the two apart without harm, and the latter is what every node with key files does that tries the
keys it trusts at a seed, one after the other."""
BROKEN_OFF = "a handshake that was broken off"
DESCRIPTORS_PART = 4
"""Of all that the process may have, one in so many is taken at most: of more connections at a time, only
the latest are known."""
CLOSING_S = (0.0, 0.001, 0.005, 0.05)
"""libzmq tells first and closes then, nearly always at once, but may be interrupted in between."""
GREETING_BYTES = 64
"""Of ZMTP 3: both sides begin with it."""
CLIENTS_BYTES, SERVERS_BYTES = GREETING_BYTES + 202 + 259, GREETING_BYTES + 170 + 32
"""Of a handshake with CURVE, at least: HELLO and INITIATE come behind the greeting, or WELCOME and READY."""
REDIAL_S = 1.0
"""A plain socket is there again within a tenth of that, unless it was told otherwise."""
GREETINGS_MIN = 5
"""So many in a row are of a plain socket, which comes back for ever; nodes that leave do so once each."""
SAID_NOTHING = (0, 1)
"""Bytes received: the end counts as one, if the peer said so."""
TCP_ESTABLISHED = 1
STATE_AT, SINCE_RECEIVED_AT, BYTES_RECEIVED_AT = 0, 52, 128
"""Of `struct tcp_info`: u8; u32, milliseconds since anything was received; u64, how much in all."""


class Endings:
    """A second descriptor for each of the latest connections, kept until `ended`, `forget` or `close`."""

    def __init__(self, silence_ms: int) -> None:
        """`silence_ms`: who has been silent for so long may have been given up for that."""
        self._silence_ms = silence_ms
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = (most if most != resource.RLIM_INFINITY else sys.maxsize) // DESCRIPTORS_PART
        self._kept: OrderedDict[Hashable, socket.socket] = OrderedDict()
        self._unsure: dict[Hashable, Hashable] = {}
        """Keys that may be another connection's, and on which way they were told of."""
        self._asked: set[Hashable] = set()
        """Ways on which has been told, and maybe not been heard yet, of who may have shaken hands by now."""
        self._greeted, self._greeted_s = 0, -math.inf
        """How often in a row somebody hung up after nothing but a greeting, and when last."""
        self._failed: str | None = None
        """What the accepted connection that ends next seems to be, if its handshake has failed."""

    def begun(self, key: Hashable, descriptor: int, told_on: Hashable = None) -> None:
        """`key` names the connection from now on; `descriptor` may be closed, or another's, already.

        What it was is believed after the next `caught_up` with `told_on`: its end is told there before libzmq
        closes it, so one that has not been told by then had not come when we looked.
        """
        self.forget(key)
        self._unsure[key] = told_on
        try:
            # With a family it looks at nothing: the number may have become a file's, which must be closed again.
            self._kept[key] = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            return  # It has ended, or there are no descriptors left.
        if len(self._kept) > self._most:
            self.forget(next(iter(self._kept)))

    def caught_up(self, told_on: Hashable = None) -> None:
        """Nothing is left of what was told on this way."""
        self._asked.discard(told_on)
        if self._unsure:
            self._unsure = {key: way for key, way in self._unsure.items() if way != told_on}

    def asked(self, told_on: Hashable = None) -> None:
        """libzmq wants to know whose key somebody has shown, whose beginning is told on this way: no handshake
        ends well without that."""
        self._asked.add(told_on)

    def ended(self, key: Hashable) -> socket.socket | None:
        """The connection, for `hung_up_on`, if its peer lives and talks; None: it ended as any other."""
        kept = self._take(key)
        if kept is None:
            return None
        state, silent_ms = _told(kept, "B", STATE_AT), _told(kept, "I", SINCE_RECEIVED_AT)
        if state == TCP_ESTABLISHED and silent_ms is not None and silent_ms < self._silence_ms:
            return kept
        kept.close()
        return None

    def fell_short(self, key: Hashable, handshake_bytes: int) -> bool:
        """Whether something came through this connection, and less than a handshake takes."""
        received_bytes = self._received_bytes(key)
        if received_bytes is None or received_bytes in SAID_NOTHING:
            return False
        return received_bytes < handshake_bytes

    def _said_nothing(self, key: Hashable) -> bool:
        """Whether its peer has ended it without a word, as whoever takes connections for one that is away does; or we
        look at another one, which lives."""
        kept = self._kept.get(key)
        if kept is None:
            return False
        if key in self._unsure and _told(kept, "B", STATE_AT) == TCP_ESTABLISHED:
            return True
        return _told(kept, "Q", BYTES_RECEIVED_AT) in SAID_NOTHING

    def _received_bytes(self, key: Hashable) -> int | None:
        """None: it is not known any more, or not for sure."""
        kept = None if key in self._unsure else self._kept.get(key)
        return None if kept is None else _told(kept, "Q", BYTES_RECEIVED_AT)

    def _take(self, key: Hashable) -> socket.socket | None:
        """The connection, which is not kept any longer; None: it is not known any more, or not for sure."""
        kept = self._kept.pop(key, None)
        unsure = self._unsure.pop(key, self) is not self
        if kept is not None and unsure:
            kept.close()
            return None
        return kept

    def failed(self, *, by_them: bool) -> None:
        """The handshake of the accepted connection that ends next; by them: it was they who ended it. Else it took too
        long."""
        self._failed = BROKEN_OFF if by_them else STRANGER

    def stranger(self, key: Hashable, now_s: float) -> str | None:
        """What to call an accepted connection that has ended before it was admitted; None: it was.

        Empty: its peer broke off what it had not begun, as our own probes do, and nobody needs to know.
        """
        what, self._failed = self._failed, None
        # Its end was there when we looked; or of more at a time nothing is known.
        late = key not in self._kept or key in self._unsure
        if what is None:
            # Whoever breaks off fails, and who had shaken hands we would have been asked about: libzmq did not like it.
            refused = key in self._unsure and self._unsure[key] not in self._asked
            if not refused and not self.fell_short(key, CLIENTS_BYTES):
                return None
            what = STRANGER
        elif what == BROKEN_OFF and self._said_nothing(key):
            self.forget(key)
            return ""
        elif late or (self._received_bytes(key) or 0) >= CLIENTS_BYTES:
            what = BROKEN_OFF  # By libzmq, which waited for us, as our loop was late, to say whose key it is.
        return STRANGER if self.was_plain(key, now_s) else what

    def was_plain(self, key: Hashable, now_s: float) -> bool:
        """Whether a connection that its peer ended as they shook hands was a plain socket's, which does
        not like our greeting: nothing but its own came, several times in a row. With CURVE more comes at
        once, but for a node that leaves just then."""
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
        """We hang up ourselves: as long as a descriptor is open, its connection is."""
        kept = self._take(key)
        if kept is not None:
            kept.close()

    def close(self) -> None:
        for key in list(self._kept):
            self.forget(key)


async def hung_up_on(kept: socket.socket, descriptor: int) -> str | None:
    """Whom `ended` told of, if it was that connection which ended; None: the number had been given out again, to one
    that goes on or that its peer has ended by now.

    Closes `kept`.
    """
    with kept:
        for pause_s in CLOSING_S:
            await trio.sleep(pause_s)
            if not _same(kept.fileno(), descriptor):
                lives = _told(kept, "B", STATE_AT) == TCP_ESTABLISHED
                return _peer(kept) if lives else None
    return None


def _told(kept: socket.socket, kind: str, at: int) -> int | None:
    """A field of `struct tcp_info`; None: it is no socket, or the kernel has no such field."""
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
    except OSError:  # It has gone meanwhile, and was there when we hung up.
        return ""
