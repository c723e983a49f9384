"""Decides whether a published message leaves at once, or together with others in the pump's turn.

After a turn with one message, the next message leaves at once: waiting for the pump would gain nothing. After a
turn with several, they share a frame. Unlike Nagle's algorithm this waits for no acknowledgement. It counts
turns and not time, because in a busy loop a turn is long, and more messages come in it.
"""

from __future__ import annotations


class Pace:
    __slots__ = ("_alone", "_left")

    def __init__(self) -> None:
        self._alone, self._left = True, False

    def leaves_now(self) -> bool:
        """Return whether a message, the first one since the pump's last turn, leaves at once."""
        if not self._alone or self._left:
            return False
        self._left = True
        return True

    def turn(self, count: int) -> None:
        """The pump had its turn; `count` messages were published since the previous one."""
        self._left = False
        if count:
            self._alone = count == 1
