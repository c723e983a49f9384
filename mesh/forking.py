"""Forked children (`os.fork`): they have copies of the parent's nodes, and must not use them.

    parent ── os.fork ──> child: every node lets go, its verbs raise NodeClosed
                            ├── leaves a block of a node: ends there
                            └── waits for anything: ends there, before another task has a turn

A child shares the parent's sockets, epoll and files: what it reads is lost to the parent, and its copies of
other tasks would act as the parent's (a broker's would write to the log). It has none of the threads of libzmq
and trio, so trio can neither end the run there nor a task that waits for a descriptor: the process has to end.
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
    "this process is a forked child, and the node its parent's: to join in a child, start it as a program of its "
    "own (subprocess, or multiprocessing's `spawn`)"
)


class Inherited(Protocol):
    """What a child has a copy of."""

    def let_go(self) -> None:
        """This process is a child. Called where it forked, maybe in another thread: wake nobody."""


_inherited: WeakSet[Inherited] = WeakSet()


def inherit(one: Inherited) -> None:
    """Tell it when this process is a child."""
    _inherited.add(one)


def _let_go() -> None:
    for one in list(_inherited):
        one.let_go()


os.register_at_fork(after_in_child=_let_go)


def end_child() -> NoReturn:
    """It leaves a block: with the status, and the traceback, that the exception which is being handled would end it with."""
    error = sys.exc_info()[1]
    status = 0 if error is None else _status(error)
    _end(status, "leaves the block of a node")


def end_where_it_waits() -> None:
    """Called in a child, in the thread of a node that has not left: see above."""
    trio.lowlevel.add_instrument(_WAITS)  # Once, for however many nodes.


class _Waits(trio.abc.Instrument):
    """Of the run that a child has a copy of. The step in which it was forked ends: it waits, or its task is done."""

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        _end(1, f"waits, or has ended its task ({task.name})")


_WAITS = _Waits()


def _end(status: int, how: str) -> NoReturn:
    logger.error(
        "a forked child %s: it ends here, with status %d, and nothing behind that runs; end children by os._exit or "
        "exec",
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
