"""Iterators over changes of members, and over the answers of a gather.

They are plain objects, not generators, so nothing has to be closed when a loop over one ends early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import trio

from .errors import MeshError
from .protocol.membership import Change, Member
from .protocol.request import DONE, Pending
from .waker import Bell, Waker

CHANGES_MAX = 10_000
"""Changes that may wait in one watch; beyond that the oldest are dropped."""


class Watch:
    """An async iterator over changes of members, made by `Node.watch`; one task at a time may iterate it."""

    def __init__(self, cluster: str | None, known: Iterable[Change]) -> None:
        self.cluster = cluster
        self._changes: deque[Change] = deque(known, maxlen=CHANGES_MAX)
        self._waker = Waker()
        self._closed = False
        self.dropped = 0
        """Number of changes dropped, the oldest first, because more than `CHANGES_MAX` waited."""

    def changed(self, change: Change) -> None:
        """Take a change of any member; it is queued if the watch is for its cluster."""
        if self.cluster is None or self.cluster in change.member.clusters:
            self.dropped += len(self._changes) == CHANGES_MAX
            self._changes.append(change)
            self._waker.wake()

    def close(self) -> None:
        """End the iteration, since the node has left."""
        self._closed = True
        self._waker.wake()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Change:
        if self._changes:  # Before one is taken, so that cancellation loses none.
            await trio.lowlevel.checkpoint_if_cancelled()
        while not self._changes:
            if self._closed:
                raise StopAsyncIteration
            await self._waker.wait()
        return self._changes.popleft()


class Gathering:
    """An async iterator over the answers of all members, each once, as they come. Made by `Node.gather`.

    If it is dropped before its end, the requests to members that have not answered are cancelled.
    """

    def __init__(
        self, asked: Sequence[tuple[Member, Pending]], bell: Bell,
        cancel: Callable[[list[Pending]], object],
    ) -> None:  # fmt: skip
        """
        Args:
            cancel: called when the last reference is gone, wherever that is, maybe in the middle of any other code.
        """
        self._waiting, self._bell, self._cancel = list(asked), bell, cancel
        self._done_at_once = all(pending.state == DONE for _, pending in asked)
        """All requests are done from the start (no member, or no time left), so that its reader never waits."""

    def __del__(self) -> None:
        unanswered = [pending for _, pending in self._waiting if pending.state != DONE]
        if unanswered:
            self._cancel(unanswered)

    def __len__(self) -> int:
        """How many answers the iteration has still to bring: before it begins, how many members were asked."""
        return len(self._waiting)

    def __aiter__(self) -> Gathering:
        return self

    async def __anext__(self) -> tuple[Member, bytes | MeshError]:
        # Checkpoints come before an answer is taken, so that cancellation loses none.
        # Lets other tasks run, and trio notice that the scope's deadline has passed.
        if self._done_at_once:
            await trio.lowlevel.checkpoint()
        elif self._waiting:
            await trio.lowlevel.checkpoint_if_cancelled()
        while self._waiting:
            for index, (member, pending) in enumerate(self._waiting):
                if pending.state == DONE and pending.outcome is not None:
                    del self._waiting[index]
                    return member, pending.outcome
            await self._bell.wait()
        raise StopAsyncIteration
