"""Forked children (`os.fork`): they have copies of the parent's nodes, and must not use them.

    parent ── os.fork ──> child: every node is released, its verbs raise NodeClosed
                            ├── leaves a block of a node: the process ends there
                            └── waits for anything: it ends there, before another task has a turn

A child shares the parent's sockets, epoll and files: the parent would lose what the child reads, and the child's
copies of other tasks would act as the parent's (a broker's would write to the log). The child has none of the
threads of libzmq and trio, so trio can end neither the run there nor a task that waits for a descriptor: the
process has to end.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn, Protocol
from weakref import WeakSet

import trio

logger = logging.getLogger("mesh")
FORKED = (
    "this process is a forked child and the node belongs to its parent: to join in a child, start it as a new "
    "program (subprocess, or multiprocessing's `spawn`)"
)


class Releasable(Protocol):
    """An object that a child must release."""

    def release(self) -> None:
        """Release it: this process is a child. Called where it forked, maybe in another thread: wake no task."""


_releasables: WeakSet[Releasable] = WeakSet()


def release_on_fork(one: Releasable) -> None:
    """Call `one.release()` in every child that this process forks."""
    _releasables.add(one)


def _release_all() -> None:
    for one in list(_releasables):
        one.release()


os.register_at_fork(after_in_child=_release_all)


def end_child() -> NoReturn:
    """End a child that leaves a block, with the traceback and exit status of the exception being handled."""
    error = sys.exc_info()[1]
    status = 0 if error is None else _status(error)
    _end(status, "left the block of a node")


def end_at_next_wait() -> None:
    """End a child, forked in the thread of a node that has not left, as soon as its task waits (see above)."""
    trio.lowlevel.add_instrument(
        _END_AT_WAIT
    )  # trio adds it only once, however many nodes there are.


class _EndAtWait(trio.abc.Instrument):
    """Instrument of the child's copy of the run: ends the process when the task step in which it forked ends."""

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        _end(1, f"waited in, or finished, its task ({task.name})")


_END_AT_WAIT = _EndAtWait()


def _end(status: int, how: str) -> NoReturn:
    logger.error(
        "a forked child %s: it exits here with status %d, and no further code runs; end forked children by os._exit "
        "or exec",
        how, status,
    )  # fmt: skip
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _status(error: BaseException) -> int:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1
