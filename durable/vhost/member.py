"""What queues and streams have in common: messages can be routed to them."""

from __future__ import annotations

from typing import Protocol

from ..errors import DurableError
from ..queues.counts import Counts
from ..queues.lane import Lane


class Member(Protocol):
    """A destination of this vhost."""

    counts: Counts

    @property
    def name(self) -> str: ...
    @property
    def logged(self) -> bool:
        """Whether its messages go to the log; else they are held in memory."""

    def lane_for(self, priority: int) -> Lane: ...
    def accepts(self, count: int, size_bytes: int) -> bool:
        """Whether so much more may come."""

    def full(self) -> DurableError:
        """Why not."""

    def expect(self, lane: Lane, count: int, size_bytes: int) -> int:
        """So many messages have been appended; the sequence of the first."""

    def enqueue(
        self, lane: Lane, first: int, count: int, position: int, size_bytes: int, time_us: int,
        expires_us: int = 0, *, now_us: int,
    ) -> None:  # fmt: skip
        """They are durable now; `expires_us` 0: they never expire."""
