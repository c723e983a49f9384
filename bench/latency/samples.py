"""Three times of every request: when it was due, when it was sent and when its reply came.

    response     reply - due    what a user waits for, whatever made it late
    delay        sent - due     how late the load generator itself was
    uncorrected  reply - sent   only of requests that were sent after the reply to the one before: what a bench
                                reports that waits for each reply. It omits the requests that were due while it
                                waited ("coordinated omission").

A request without a reply counts as lost, and its response time lasts until the end of the run.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

NUMBER = struct.Struct("<q")
KNOCK = -1
_number_of = NUMBER.unpack_from


class Samples:
    """The samples of one run. `replied` takes well under a microsecond; statistics are computed at the end only."""

    def __init__(self, count: int, rest: bytes) -> None:
        self._rest = rest
        self._size = NUMBER.size + len(rest)
        self.sent_ns = array("q", bytes(8 * count))
        self.replied_ns = array("q", bytes(8 * count))
        """Per request; 0 until its reply has come."""
        self.count = count
        self.sent = 0
        self.replies = self.duplicated = self.damaged = 0

    def payload(self, number: int) -> bytes:
        return NUMBER.pack(number) + self._rest

    def replied(self, payloads: Sequence[bytes], now_ns: int) -> None:
        replied_ns = self.replied_ns
        for payload in payloads:
            if len(payload) != self._size:
                self.damaged += 1
                continue
            (number,) = _number_of(payload)
            if number == KNOCK:
                continue  # A knock: sent before the run until somebody answers.
            if not 0 <= number < self.sent or not payload.endswith(self._rest):
                self.damaged += 1
            elif replied_ns[number]:
                self.duplicated += 1
            else:
                replied_ns[number] = now_ns
                self.replies += 1

    @property
    def lost(self) -> int:
        return self.sent - self.replies

    @property
    def wrong(self) -> int:
        return self.lost + self.duplicated + self.damaged
