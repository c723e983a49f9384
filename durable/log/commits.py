"""Carries out commits, one at a time: in a thread, or in the loop's own turn while the disk is quick.

    start ──┬── small, and the disk is quick: written in the loop, synced by the kernel ──┐
            └── else: written and synced in the thread ───────────────────────────────┴──> finish

A thread has to be woken, needs the interpreter's lock on both ways, and is held up by a loop that spins for its end.
A write is a copy into memory, which takes some microseconds for little data; only the sync waits for the disk. If the
kernel syncs by itself, the loop goes on, or spins until it is done (mesh/spinning.py).

A write can wait for the disk after all: if the file system's journal does, or if so much unwritten data is in memory
that the kernel slows down all writers. Then the whole loop would wait. So a commit is written in the loop only if the last
one ended recently and was quick: if the disk begins to hang after that, it is most likely a sync that meets it.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from math import inf

import trio

from mesh.spinning import SPIN_S_MAX, spinner_of_this_run

from .calls import Calls, InThread
from .committing import Commit
from .disk import Syncer
from .store import Store
from .writer_thread import writer_of

IN_LOOP_BYTES_MAX = 64 * 1024
"""Most that is written in the loop's turn: to copy it takes 10 us."""
QUICK_S = SPIN_S_MAX
"""A commit that takes longer is not quick: it is not worth spinning for its end."""
RECENT_S = 0.1
"""A disk that was quick counts as quick for so long; after that it may hang."""


class Commits:
    """Carries out the commits of one log, in its trio run."""

    def __init__(self, store: Store, calls: Calls, in_thread: InThread | None) -> None:
        """
        Args:
            in_thread: runs all commits. None: a thread of our own, or the kernel.
        """
        self._store, self._calls = store, calls
        self._syncer = store.syncer() if in_thread is None else None
        self._writer = writer_of(in_thread, self._syncer)
        self._spinner, self._spinning = spinner_of_this_run(), ExitStack()
        if self._syncer is not None:
            self._spinner.attach()
        self._begun_s, self._quick_until_s = 0.0, -inf
        self._syncing: Syncer | None = None
        """The syncer of the commit under way; None if there is no commit, or the thread has it."""

    def start(self, commit: Commit) -> None:
        """Begin a commit. The one before must be finished."""
        self._begun_s = commit.begun_s
        syncer = self._syncer if self._is_quick(commit) else None
        self._calls.writing = True
        if syncer is None or not self._start_in_loop(commit, syncer):
            self._writer.start(partial(self._calls.write, self._store.carry_out, commit))

    def _is_quick(self, commit: Commit) -> bool:
        """Return whether the commit is small, the disk was quick a moment ago, and no other call is under way."""
        return (
            commit.begun_s < self._quick_until_s
            and commit.size_bytes <= IN_LOOP_BYTES_MAX
            and not self._calls
        )

    def _start_in_loop(self, commit: Commit, syncer: Syncer) -> bool:
        """Write the commit in the loop and begin its sync. Return False if the thread has to carry it out, from the beginning:
        writing the same bytes twice does no harm."""
        try:
            file = self._store.write_at_once(commit)
        except Exception as error:
            self._writer.start(partial(self._calls.write, _fail, error))
            return True
        if file is None:
            return False
        if not syncer.begin(file):
            self._syncer = None  # Most likely this file system cannot do it, so do not ask again.
            return False
        self._syncing = syncer
        self._spinning.enter_context(self._spinner)
        return True

    async def finish(self) -> None:
        """Return when a commit has been carried out, or raise its error. May be awaited before the commit starts.

        If this is cancelled, the commit goes on, and no other one may follow.
        """
        await self._writer.finish()
        if self._syncing is not None:
            syncer, self._syncing = self._syncing, None
            self._spinning.close()
            self._calls.written()
            syncer.end()
        now_s = trio.current_time()
        quick = now_s - self._begun_s <= QUICK_S
        self._quick_until_s = now_s + RECENT_S if quick else -inf

    def close(self) -> None:
        """Close; returns at once. To be called once, when no task awaits `finish` any more."""
        if self._syncing is not None:
            self._spinning.close()
            self._writer.start(partial(self._calls.write, self._syncing.wait))
        self._writer.close()


def _fail(error: Exception) -> None:
    raise error
