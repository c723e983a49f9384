"""A bounded handover of changes from zeroconf's thread to trio's: which instances changed, not how often.

    browser thread: put("ab12", present) --> {"ab12": Change} --> trio: async take()

Changes of one instance merge while they wait, so a flood costs one entry per instance and one pending
wake-up. A change beyond `instances_max` entries is dropped and counted; the caller lists all instances
from time to time, which makes up for it.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

import trio


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one instance since the last `take`."""

    present: bool
    """The instance is there now, as far as zeroconf knows."""
    said_goodbye: bool
    """The instance said goodbye at least once, even if it has come back."""


class Handover:
    """Must be made in trio's thread; `put` may be called from any thread, even after trio has ended."""

    def __init__(self, *, instances_max: int) -> None:
        self._instances_max = instances_max
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._waiting: dict[str, Change] = {}
        self._filled = trio.Event()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Number of changes dropped for lack of room."""
        return self._dropped

    def put(self, instance: str, present: bool) -> None:
        """Note that `instance` appeared or changed (`present`), or said goodbye. May be called from any thread."""
        with self._lock:
            before = self._waiting.get(instance)
            if before is None and len(self._waiting) >= self._instances_max:
                self._dropped += 1
                return
            gone = not present or (before is not None and before.said_goodbye)
            self._waiting[instance] = Change(present, gone)
        # The trio run may be over before zeroconf's thread has noticed.
        with contextlib.suppress(trio.RunFinishedError):
            # Idempotent, so that at most one entry of ours is in the token's unbounded queue.
            self._token.run_sync_soon(self._wake, idempotent=True)

    async def take(self) -> dict[str, Change]:
        """Wait for changes, and take all of them."""
        await self._filled.wait()
        self._filled = trio.Event()
        with self._lock:
            taken, self._waiting = self._waiting, {}
        return taken

    def _wake(self) -> None:
        self._filled.set()
