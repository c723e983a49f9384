"""Decides whether a published message leaves at once, or together with others in the pump's turn.

After a turn with one message, the next message leaves at once: waiting for the pump would gain nothing. After a
turn with several, they share a frame. Unlike Nagle's algorithm this waits for no acknowledgement. It counts
turns and not time, because in a busy loop a turn is long, and more messages come in it.
"""

from __future__ import annotations


class Coalescer:
    """Knows whether messages come one by one."""

    __slots__ = ("_one_by_one", "_sent")

    def __init__(self) -> None:
        self._one_by_one, self._sent = True, False

    def sends_at_once(self) -> bool:
        """Return whether a message, the first one since the pump's last turn, leaves at once."""
        if not self._one_by_one or self._sent:
            return False
        self._sent = True
        return True

    def turn_ended(self, count: int) -> None:
        """The pump had its turn; `count` messages were published since the previous one."""
        self._sent = False
        if count:
            self._one_by_one = count == 1
