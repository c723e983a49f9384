"""Whether what is published comes one by one: then it leaves at once, and not in the pump's turn.

A message alone gains nothing by a turn of trio's loop that it waits for; two that leave in the same
turn save a frame. Which it will be, the turns before tell: as with Nagle's algorithm, but nothing
ever waits for an acknowledgement. Turns and not time, for what counts is whether the program had
more to say before anything could be sent: with a busy loop a turn is long, and company is certain.
"""

from __future__ import annotations


class Pace:
    __slots__ = ("_alone", "_left")

    def __init__(self) -> None:
        self._alone, self._left = True, False

    def leaves_now(self) -> bool:
        """Whether a message leaves at once, the first since the pump's last turn."""
        if not self._alone or self._left:
            return False
        self._left = True
        return True

    def turn(self, count: int) -> None:
        """The pump had its turn, and so many have left since the one before."""
        self._left = False
        if count:
            self._alone = count == 1
