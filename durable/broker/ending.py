"""Queues that go by themselves: with their last consumer, with their connection, or unused for too long.

What had died in one by then is buried first: it was rejected by somebody who has left since, content
that it goes where dead letters go. What dies in it later would have been dropped, had it gone at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import trio

from mesh.nursery import open_nursery
from mesh.waker import Waker

from ..errors import StoreError
from ..queues.queue import Queue

ENDED_AT_ONCE = 100
"""Deletions that share the syncs of a disk; between two such lots everybody else has a turn."""

CLOSE_S = 10.0
"""How long what is written at the end of a session, or of a broker, may take: then it ends without."""


def in_the_end() -> trio.CancelScope:
    """For what is still to be written although its task has been cancelled. Not for ever: the disk may hang, or be
    full, and a broker has to end."""
    return trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S)


class Delete(Protocol):
    def __call__(
        self, queue: Queue, reason: str, *, stays: Callable[[], bool]
    ) -> Awaitable[None]: ...


class _Ending(NamedTuple):
    reason: str
    stays: Callable[[], bool]
    died: int
    """`Queue.died` when it was to go."""


class Endings:
    """Of one vhost. Those of queues that are in the log are forgotten by a restart."""

    def __init__(self, delete: Delete) -> None:
        """
        Args:
            delete: a queue that is there, unless it stays; returns when that is on disk.
        """
        self._delete = delete
        self._endings: dict[Queue, _Ending] = {}
        self.due = Waker()
        """Some may go now: for whoever calls `end_all`."""

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._endings

    def add(self, queue: Queue, reason: str, *, stays: Callable[[], bool]) -> None:
        """It is to go as soon as it can.

        Args:
            reason: what its consumers are told.
            stays: whether it is needed after all, asked right before it would go.
        """
        self._endings[queue] = _Ending(reason, stays, queue.died)

    def discard(self, queue: Queue) -> None:
        """It is gone, or wanted again."""
        self._endings.pop(queue, None)

    async def end(self, queue: Queue) -> None:
        """If it can go now. Where the log has no room to say so, it goes another time."""
        ending = self._endings.get(queue)
        if ending is None or queue.moved_on < ending.died:
            return

        def stays() -> bool:
            return self._endings.get(queue) is not ending or ending.stays()

        try:
            await self._delete(queue, ending.reason, stays=stays)
        except StoreError:
            return
        if self._endings.get(queue) is ending:  # Else somebody has come and left meanwhile.
            del self._endings[queue]

    async def end_all(self) -> None:
        """All that can go now."""
        queues = [queue for queue, one in self._endings.items() if queue.moved_on >= one.died]
        for at in range(0, len(queues), ENDED_AT_ONCE):
            async with open_nursery() as nursery:
                for queue in queues[at : at + ENDED_AT_ONCE]:
                    nursery.start_soon(self.end, queue)
