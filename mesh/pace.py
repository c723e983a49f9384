"""Whether a published message leaves at once, or with others in the pump's turn.

After a turn with one message, the next one leaves at once: to wait for the pump would gain nothing. After
a turn with several, they share a frame. Unlike Nagle's algorithm it waits for no acknowledgement. Turns are
counted and not time, because in a busy loop a turn is long, and more messages come in it.
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
