"""Carrying out commits, one at a time: in a thread, or here while the disk is quick.

    start ──┬── small, and the disk is quick: written here, synced by the kernel ──┐
            └── else: written and synced in the thread ────────────────────────────┴──> finish

A thread has to be woken and needs the interpreter's lock, there and back, and the loop that looks for its end is in its
way. A write is a copy into memory, some microseconds for little; it is the sync that waits for the disk. Where the kernel
does that by itself the loop goes on, or looks for the end with open eyes (mesh/spinning.py).

A write may wait for the disk after all, where the file system's journal does, or where so much of anybody's waits in memory
that the kernel slows down whoever writes; and so would everything else here. So it is done here only while the last commit is
not long past and took no time: of a disk that begins to hang then, the sync mostly hears first.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from math import inf

import trio

from mesh.spinning import LIMIT_S, spinner_of_this_run

from .calls import Calls, InThread
from .committing import Commit
from .disk import Syncer
from .store import Store
from .writer_thread import writer_of

HERE_BYTES_MAX = 64 * 1024
"""Copied in 10 us."""
QUICK_S = LIMIT_S
"""What takes longer is not worth looking for its end."""
RECENT_S = 0.1
"""What was quick may hang by then."""


class Commits:
    """Of one log, in its trio run."""

    def __init__(self, store: Store, calls: Calls, in_thread: InThread | None) -> None:
        """
        Args:
            in_thread: runs all of them. None: a thread of our own, or the kernel.
        """
        self._store, self._calls = store, calls
        self._syncer = store.syncer() if in_thread is None else None
        self._writer = writer_of(in_thread, self._syncer)
        self._spinner, self._looking = spinner_of_this_run(), ExitStack()
        if self._syncer is not None:
            self._spinner.attach()
        self._begun_s, self._quick_until_s = 0.0, -inf
        self._syncing: Syncer | None = None
        """What syncs the commit under way. None: there is none, or the thread has it."""

    def start(self, commit: Commit) -> None:
        """The one before is finished."""
        self._begun_s = commit.begun_s
        syncer = self._syncer if self._is_quick(commit) else None
        self._calls.writing = True
        if syncer is None or not self._start_here(commit, syncer):
            self._writer.start(partial(self._calls.write, self._store.carry_out, commit))

    def _is_quick(self, commit: Commit) -> bool:
        """Whether it is little, and the disk does nothing else and was quick a moment ago."""
        return (
            commit.begun_s < self._quick_until_s
            and commit.size_bytes <= HERE_BYTES_MAX
            and not self._calls
        )

    def _start_here(self, commit: Commit, syncer: Syncer) -> bool:
        """False: it has to be carried out in the thread, from the beginning. To write the same twice changes nothing."""
        try:
            file = self._store.write_at_once(commit)
        except Exception as error:
            self._writer.start(partial(self._calls.write, _fail, error))
            return True
        if file is None:
            return False
        if not syncer.begin(file):
            self._syncer = None  # This file system has none, mostly: no use in asking again.
            return False
        self._syncing = syncer
        self._looking.enter_context(self._spinner)
        return True

    async def finish(self) -> None:
        """Return when a commit has been carried out, or raise what went wrong; may be waited for before it starts.

        Cancelled, it goes on, and no other one may follow.
        """
        await self._writer.finish()
        if self._syncing is not None:
            syncer, self._syncing = self._syncing, None
            self._looking.close()
            self._calls.written()
            syncer.end()
        now_s = trio.current_time()
        quick = now_s - self._begun_s <= QUICK_S
        self._quick_until_s = now_s + RECENT_S if quick else -inf

    def close(self) -> None:
        """Returns at once; to be called once, when nobody waits any more."""
        if self._syncing is not None:
            self._looking.close()
            self._writer.start(partial(self._calls.write, self._syncing.outlast))
        self._writer.close()


def _fail(error: Exception) -> None:
    raise error
