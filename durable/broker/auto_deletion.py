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

DELETED_AT_ONCE = 100
"""Deletions that share syncs of the disk; between two such groups other tasks run."""

CLOSE_S = 10.0
"""Seconds that writing at the end of a session, or of a broker, may take; after that it ends without."""


def final_write_scope() -> trio.CancelScope:
    """Return a shielded scope for what has to be written although its task is cancelled. It has a deadline,
    because the disk may hang or be full, and the broker has to end."""
    return trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S)


class Delete(Protocol):
    def __call__(
        self, queue: Queue, reason: str, *, stays: Callable[[], bool]
    ) -> Awaitable[None]: ...


class _AutoDeletion(NamedTuple):
    reason: str
    stays: Callable[[], bool]
    died: int
    """`Queue.died` when the deletion was decided."""


class AutoDeletions:
    """Automatic deletions of one vhost. A restart forgets those of queues that are in the log."""

    def __init__(self, delete: Delete) -> None:
        """
        Args:
            delete: deletes a queue that exists, unless `stays()` is true; returns when that is on disk.
        """
        self._delete = delete
        self._deletions: dict[Queue, _AutoDeletion] = {}
        self.due = Waker()
        """Some queues may be deleted now; awaited by the task that calls `delete_all`."""

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._deletions

    def add(self, queue: Queue, reason: str, *, stays: Callable[[], bool]) -> None:
        """Delete the queue as soon as possible.

        Args:
            reason: told to its consumers.
            stays: whether the queue is needed after all; asked right before it is deleted.
        """
        self._deletions[queue] = _AutoDeletion(reason, stays, queue.died)

    def discard(self, queue: Queue) -> None:
        """Cancel the deletion: the queue is gone, or wanted again."""
        self._deletions.pop(queue, None)

    async def delete(self, queue: Queue) -> None:
        """Delete the queue if it can be deleted now. If the log has no room for that, it is tried again
        later."""
        deletion = self._deletions.get(queue)
        if deletion is None or queue.dead_lettered < deletion.died:
            return

        def stays() -> bool:
            return self._deletions.get(queue) is not deletion or deletion.stays()

        try:
            await self._delete(queue, deletion.reason, stays=stays)
        except StoreError:
            return
        # Otherwise a consumer has come and left meanwhile, which began another one.
        if self._deletions.get(queue) is deletion:
            del self._deletions[queue]

    async def delete_all(self) -> None:
        """Delete all queues that can be deleted now."""
        queues = [
            queue for queue, one in self._deletions.items() if queue.dead_lettered >= one.died
        ]
        for at in range(0, len(queues), DELETED_AT_ONCE):
            async with open_nursery() as nursery:
                for queue in queues[at : at + DELETED_AT_ONCE]:
                    nursery.start_soon(self.delete, queue)
