"""How a console program begins, and how signals end it."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

from .loading import INTERRUPTED, restore_interrupts

TERMINATED = 143
"""Exit status: 128 plus the number of SIGTERM."""

STAND_INS = (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
"""Stand-ins for closed streams are opened in the wrong direction, so that using stdin or stdout fails as with
a closed one; only what is written to stderr is dropped."""


@contextmanager
def name_errors(stream: str) -> Iterator[None]:
    """Add the name of the stream to OSErrors in the block: "disk full" alone does not say which file."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, stream) from None


class Stdout(io.FileIO):
    """Standard output whose errors contain its name, wherever the program prints."""

    def write(self, data: Any) -> int:
        with name_errors("stdout"):
            return super().write(data)


def replace_stdout() -> None:
    """Replace Python's own stdout by a `Stdout`; a stdout that somebody else has set is left alone."""
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper) and old is sys.__stdout__:
        raw = Stdout(old.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw) if isinstance(old.buffer, io.BufferedWriter) else raw,
            encoding=old.encoding, errors=old.errors, newline="\n",
            line_buffering=old.line_buffering, write_through=old.write_through,
        )  # fmt: skip


def open_stand_ins() -> None:
    """Open stand-ins for standard streams that the caller has closed, as with `>&-`.

    Python has None there, and the next file opened would get that descriptor. Using a stand-in for stdin or stdout
    raises OSError at once, since nothing is buffered.
    """
    for name, flags in STAND_INS:
        if getattr(sys, name) is None:
            kind = Stdout if name == "stdout" else io.FileIO
            raw = kind(os.open(os.devnull, flags), "rb" if name == "stdin" else "wb")
            setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))


class Terminated(KeyboardInterrupt):
    """SIGTERM came. Handled like Ctrl-C; supervisors, `timeout` and CI stop programs with it."""


@contextmanager
def terminable() -> Iterator[None]:
    """In the block SIGTERM raises Terminated once; a second one is ignored and cannot interrupt the clean-up."""
    with _interruptible(), _ended_by_sigterm():
        yield


@contextmanager
def _interruptible() -> Iterator[None]:
    """If SIGINT is ignored, as for commands that a script starts with `&`, block it in the block instead.

    trio needs Python's own handler of SIGINT to know where it may be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    terminated = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Call the SIGINT handler instead of raising here: trio's knows whether it may raise now, and Spark's ends
        # its jobs. It is called directly because the signal itself may be blocked.
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):
            raise Terminated
        try:
            interrupt(signal.SIGINT, frame)
        except KeyboardInterrupt as error:
            raise Terminated(*error.args) from None

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except BaseException as error:  # A nursery wraps it in a group.
        if terminated and any(isinstance(leaf, KeyboardInterrupt) for leaf in leaf_errors(error)):
            raise Terminated from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the error itself, or all errors inside a group, however deeply nested."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaf_errors(one)
    else:
        yield error


def interrupted_status(interrupt: KeyboardInterrupt) -> int:
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


def run_console(console: str, argv: Sequence[str] | None = None) -> int:
    """Import the module `console`, call its `load(argv)`, run the result, and return the exit status."""
    open_stand_ins()
    replace_stdout()
    try:
        try:
            run = import_module(console).load(sys.argv[1:] if argv is None else argv)
        finally:
            restore_interrupts()
        status: int = run()
    except KeyboardInterrupt as interrupt:
        return interrupted_status(interrupt)
    return status
