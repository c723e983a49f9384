"""Queues that are deleted automatically: with their last consumer, with their connection, or unused for too
long.

Messages that had died in a queue by then are dead-lettered first: a consumer may have rejected them and
left, relying on that. Messages that die in it later are dropped, as if the queue had been deleted at once.
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
"""Deletions that share syncs of the disk; between two such groups other tasks run."""

CLOSE_S = 10.0
"""Seconds that writing at the end of a session, or of a broker, may take; after that it ends without."""


def in_the_end() -> trio.CancelScope:
    """Return a shielded scope for what has to be written although its task is cancelled. It has a deadline,
    because the disk may hang or be full, and the broker has to end."""
    return trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S)


class Delete(Protocol):
    def __call__(
        self, queue: Queue, reason: str, *, stays: Callable[[], bool]
    ) -> Awaitable[None]: ...


class _Ending(NamedTuple):
    reason: str
    stays: Callable[[], bool]
    died: int
    """`Queue.died` when the deletion was decided."""


class Endings:
    """Automatic deletions of one vhost. A restart forgets those of queues that are in the log."""

    def __init__(self, delete: Delete) -> None:
        """
        Args:
            delete: deletes a queue that exists, unless `stays()` is true; returns when that is on disk.
        """
        self._delete = delete
        self._endings: dict[Queue, _Ending] = {}
        self.due = Waker()
        """Some queues may be deleted now; awaited by the task that calls `end_all`."""

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._endings

    def add(self, queue: Queue, reason: str, *, stays: Callable[[], bool]) -> None:
        """Delete the queue as soon as possible.

        Args:
            reason: told to its consumers.
            stays: whether the queue is needed after all; asked right before it is deleted.
        """
        self._endings[queue] = _Ending(reason, stays, queue.died)

    def discard(self, queue: Queue) -> None:
        """Cancel the deletion: the queue is gone, or wanted again."""
        self._endings.pop(queue, None)

    async def end(self, queue: Queue) -> None:
        """Delete the queue if it can be deleted now. If the log has no room for that, it is tried again
        later."""
        ending = self._endings.get(queue)
        if ending is None or queue.dead_lettered < ending.died:
            return

        def stays() -> bool:
            return self._endings.get(queue) is not ending or ending.stays()

        try:
            await self._delete(queue, ending.reason, stays=stays)
        except StoreError:
            return
        # Otherwise a consumer has come and left meanwhile, which began another one.
        if self._endings.get(queue) is ending:
            del self._endings[queue]

    async def end_all(self) -> None:
        """Delete all queues that can be deleted now."""
        queues = [queue for queue, one in self._endings.items() if queue.dead_lettered >= one.died]
        for at in range(0, len(queues), ENDED_AT_ONCE):
            async with open_nursery() as nursery:
                for queue in queues[at : at + ENDED_AT_ONCE]:
                    nursery.start_soon(self.end, queue)
