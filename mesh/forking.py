"""Children of a process with nodes, by `os.fork`: they have copies of these, and must not use them.

    parent ── os.fork ──> child: every node lets go, its verbs raise NodeClosed
                            └── leaves the block of a node: ends there

What libzmq and trio wait with is the parent's, too: a message that the child takes in, or what it ends to wait for,
the parent misses. The threads of both are not there at all. So trio cannot end a run in a child, nor any task that
waits for a descriptor: all that a child can do with a block is not to come out of it.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn, Protocol
from weakref import WeakSet

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
    """With the status, and the traceback, that the exception which is being handled would end it with."""
    error = sys.exc_info()[1]
    status = 0 if error is None else _status(error)
    logger.error(
        "a forked child leaves the block of a node: it ends here, with status %d, and nothing behind the block "
        "runs; end children by os._exit or exec",
        status,
    )
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
