"""From zeroconf's thread to trio's, bounded: which instances changed, not how often.

    browser thread: put("ab12", present) --> {"ab12": Change} --> trio: async take()

Changes of one instance merge while they wait, so a flood costs one entry per instance and one
pending wake-up. Over `instances_max` entries a change is dropped and counted: the caller lists
everything from time to time anyway.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

import trio


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one instance since it was last taken."""

    present: bool
    """It is there now, as far as zeroconf knows."""
    gone_between: bool
    """It said goodbye at least once, even if it came back."""


class Handover:
    """Made in trio's thread; `put` may be called from any, even when trio is no more."""

    def __init__(self, *, instances_max: int) -> None:
        self._instances_max = instances_max
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._waiting: dict[str, Change] = {}
        self._filled = trio.Event()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Changes that found no room."""
        return self._dropped

    def put(self, instance: str, present: bool) -> None:
        """From any thread: `instance` appeared, changed (`present`) or said goodbye."""
        with self._lock:
            before = self._waiting.get(instance)
            if before is None and len(self._waiting) >= self._instances_max:
                self._dropped += 1
                return
            gone = not present or (before is not None and before.gone_between)
            self._waiting[instance] = Change(present, gone)
        # Suppressed: the node is gone, and zeroconf's thread has not noticed yet.
        with contextlib.suppress(trio.RunFinishedError):
            # Idempotent: at most one entry of ours in the unbounded queue of the token.
            self._token.run_sync_soon(self._wake, idempotent=True)

    async def take(self) -> dict[str, Change]:
        """Wait for changes and take all of them."""
        await self._filled.wait()
        self._filled = trio.Event()
        with self._lock:
            taken, self._waiting = self._waiting, {}
        return taken

    def _wake(self) -> None:
        self._filled.set()
