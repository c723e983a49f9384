"""Iterators over changes of members, and over the answers of a gather.

Plain objects, not generators: nothing has to be closed when a loop over one is left early.
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
"""Changes one watch may fall behind by; older ones are dropped then."""


class Watch:
    """Made by `Node.watch`; one task at a time may iterate it."""

    def __init__(self, cluster: str | None, known: Iterable[Change]) -> None:
        self.cluster = cluster
        self._changes: deque[Change] = deque(known, maxlen=CHANGES_MAX)
        self._waker = Waker()
        self._closed = False
        self.dropped = 0
        """Changes that are not told, the oldest, for there were more than `CHANGES_MAX` to be read."""

    def changed(self, change: Change) -> None:
        """Called with every change of any member."""
        if self.cluster is None or self.cluster in change.member.clusters:
            self.dropped += len(self._changes) == CHANGES_MAX
            self._changes.append(change)
            self._waker.wake()

    def close(self) -> None:
        """The node has left: the iteration ends."""
        self._closed = True
        self._waker.wake()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Change:
        while not self._changes:
            if self._closed:
                raise StopAsyncIteration
            await self._waker.wait()
        return self._changes.popleft()


class Gathering:
    """Made by `Node.gather`: the answers of all members, each once, as they come.

    Dropped before it has ended, it is cancelled at the members that have yet to answer.
    """

    def __init__(
        self, asked: Sequence[tuple[Member, Pending]], bell: Bell,
        give_up: Callable[[list[Pending]], object],
    ) -> None:  # fmt: skip
        """
        Args:
            give_up: called from wherever the last reference goes, in the middle of anything.
        """
        self._waiting, self._bell, self._give_up = list(asked), bell, give_up
        self._at_once = all(pending.state == DONE for _, pending in asked)
        """Nobody is there, or no time is left: nothing makes its reader wait."""

    def __del__(self) -> None:
        unanswered = [pending for _, pending in self._waiting if pending.state != DONE]
        if unanswered:
            self._give_up(unanswered)

    def __len__(self) -> int:
        """How many members have yet to answer."""
        return len(self._waiting)

    def __aiter__(self) -> Gathering:
        return self

    async def __anext__(self) -> tuple[Member, bytes | MeshError]:
        # Before an answer is taken: cancelled, it stays.
        if self._at_once:  # Others have their turn, and trio sees that the scope's time is over.
            await trio.lowlevel.checkpoint()
        elif self._waiting:
            await trio.lowlevel.checkpoint_if_cancelled()
        while self._waiting:
            for at, (member, pending) in enumerate(self._waiting):
                if pending.state == DONE and pending.outcome is not None:
                    del self._waiting[at]
                    return member, pending.outcome
            await self._bell.wait()
        raise StopAsyncIteration
