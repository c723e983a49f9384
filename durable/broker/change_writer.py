"""Writes changes of declarations, permissions and cursors to the log, and wakes the tasks that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from mesh.errors import TooLarge
from mesh.waker import Bell, Waker

from ..errors import RecordTooLarge
from ..log.log import Log
from ..vhost.addition import Addition
from ..vhost.changes import PERMISSION, PERMISSION_GONE, STREAM, STREAM_GONE, Change
from ..vhost.stream import Stream
from ..vhost.vhost import Vhost
from .clock import SteadyClock
from .gate import Gate

MakeChanges = Callable[[], Sequence[Change]]


@dataclass(slots=True, eq=False, weakref_slot=True)
class CursorUpdates:
    """Numbers the updates of one cursor, from whichever session. Updates that wait for room in the log are
    not ordered, and one that a lost connection has left must not overwrite what its reader has sent since."""

    received: int = 0
    """The number of the last update that a reader has sent."""
    written: int = 0
    """The number of the last update that was written."""


class ChangeWriter:
    """Writes the changes of one vhost."""

    def __init__(
        self, vhost: Vhost, log: Log, clock: SteadyClock, wake: Callable[[], object]
    ) -> None:
        """
        Args:
            wake: `RunningVhost.wake`; called after each change.
        """
        self._vhost, self._log, self._clock, self._wake = vhost, log, clock, wake
        self.gate = Gate()
        """The lock of the definitions; `write` takes it."""
        self.streams_changed = Waker()
        """Wakes the capture: streams have been declared or deleted."""
        self.permissions_changed = Bell()
        """Rings when permissions have changed."""
        self._cursor_updates: WeakValueDictionary[tuple[Stream, str], CursorUpdates] = (
            WeakValueDictionary()
        )
        """Entries exist as long as the cursor has sessions."""

    async def write(self, make_changes: MakeChanges) -> None:
        """Write changes to the log, apply them, and return when they are on disk.

        Args:
            make_changes: returns the changes. Called right before they are applied, so that what it checks still
                holds then, and again if there was no room. If it returns none, wait until earlier changes
                are on disk.
        Raises:
            RecordTooLarge: a segment cannot take the changes twice. Nothing has changed.
            StoreFull: nothing has changed.
            StoreFailed, StoreClosed: it is unknown whether anything has changed.
        """
        async with self.gate.shared():
            position = await self._with_room(partial(self._apply_changes, make_changes))
        await self._log.wait_durable(position)

    def cursor_updates(self, stream: Stream, cursor: str) -> CursorUpdates:
        """Return the same object for all sessions that a cursor has at one time."""
        return self._cursor_updates.setdefault((stream, cursor), CursorUpdates())

    async def write_cursor(
        self, make_changes: MakeChanges, updates: CursorUpdates, number: int
    ) -> None:
        """Do what `write` does, without taking the lock: cursors are no definitions, so an import need not
        hold them up.

        Args:
            number: of this update; if a later one has been written, this one is dropped.
        """

        def unless_stale() -> Sequence[Change]:
            return make_changes() if number > updates.written else []

        position = await self._with_room(partial(self._apply_changes, unless_stale))
        updates.written = max(updates.written, number)  # Only after there was room for it.
        await self._log.wait_durable(position)

    def _apply_changes(self, make_changes: MakeChanges) -> int:
        changes = make_changes()
        position = self._vhost.change(changes, self._clock.now_us())
        words = {word for word, *_ in changes}
        if words & {STREAM, STREAM_GONE}:
            self.streams_changed.wake()
        if words & {PERMISSION, PERMISSION_GONE}:
            self.permissions_changed.wake()
        return position

    async def write_addition(self, addition: Addition, check: Callable[[], object]) -> int:
        """Write a whole addition to the log and apply it, for a caller that holds `gate` exclusively. Return the
        log position that has to be durable before the answer. Raises what `write` raises.

        Args:
            check: called right before, for conditions that the lock does not protect.
        """

        def extend() -> int:
            check()
            position = self._vhost.extend(addition, self._clock.now_us())
            if addition.streams:
                self.streams_changed.wake()
            if addition.permissions.definitions():
                self.permissions_changed.wake()
            return position

        return await self._with_room(extend)

    async def _with_room(self, change: Callable[[], int]) -> int:
        """Raises RecordTooLarge, and what `change` raises."""
        try:
            position = await self._log.with_room(change)
        except TooLarge as error:
            raise RecordTooLarge(error.size_bytes, error.limit_bytes) from None
        self._wake()
        return position
