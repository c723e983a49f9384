"""The interface that queues and streams share: messages can be routed to them."""

from __future__ import annotations

from typing import Protocol

from ..errors import DurableError
from ..queues.counts import Counts
from ..queues.lane import Lane


class Member(Protocol):
    """A queue or stream of this vhost, as a destination of messages."""

    counts: Counts

    @property
    def name(self) -> str: ...
    @property
    def logged(self) -> bool:
        """Whether its messages go to the log; otherwise they are held in memory."""

    def lane_for(self, priority: int) -> Lane: ...
    def accepts(self, count: int, size_bytes: int) -> bool:
        """Return whether `count` more messages of `size_bytes` altogether are accepted."""

    def full_error(self) -> DurableError:
        """Return the error to raise when `accepts` is False."""

    def announce(self, lane: Lane, count: int, size_bytes: int) -> int:
        """Note that `count` messages have been appended; return the sequence of the first."""

    def enqueue(
        self, lane: Lane, first: int, count: int, position: int, size_bytes: int, time_us: int,
        expires_us: int = 0, *, now_us: int,
    ) -> None:  # fmt: skip
        """Add messages that are durable now; with `expires_us` 0 they never expire."""
