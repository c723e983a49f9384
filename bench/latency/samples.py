"""Three times of every request: when it was due, when it was sent, when its reply came.

    response     reply - due    what a user waits for, whatever made it late
    delay        sent - due     what the load itself was late by
    uncorrected  reply - sent   of those requests only that were sent after the reply to the one before:
                                what a bench reports that waits for each reply. It omits what was due
                                while it waited ("coordinated omission").

A request without a reply counts as lost, and as a response that took until the end.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

NUMBER = struct.Struct("<q")
KNOCK = -1
_number_of = NUMBER.unpack_from


class Samples:
    """Of one run. `replied` costs well under a microsecond: no statistics before the end."""

    def __init__(self, count: int, rest: bytes) -> None:
        self._rest = rest
        self._size = NUMBER.size + len(rest)
        self.sent_ns = array("q", bytes(8 * count))
        self.replied_ns = array("q", bytes(8 * count))
        """0: no reply yet."""
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
                continue  # It was sent to see whether somebody answers.
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
