"""Whether what is published comes one by one: then it leaves at once, and not in the pump's turn.

A message alone gains nothing by a turn of trio's loop that it waits for; two that leave together save
a frame. Which it will be, those before tell: as with Nagle's algorithm, but nothing ever waits for an
acknowledgement.
"""

from __future__ import annotations

import math

APART_S = 0.0002
"""Messages closer together than this count as company, which the pump's turn is for."""


class Pace:
    __slots__ = ("_alone", "_left_s")

    def __init__(self) -> None:
        self._alone, self._left_s = True, -math.inf

    def leaves_now(self, now_s: float) -> bool:
        """Whether a message leaves at once, the first one since the last that left."""
        self._alone = self._alone and now_s - self._left_s > APART_S
        if self._alone:
            self._left_s = now_s
        return self._alone

    def left(self, count: int, now_s: float) -> None:
        """So many, one at least, left together in the pump's turn."""
        self._alone = count == 1 and now_s - self._left_s > APART_S
        self._left_s = now_s
