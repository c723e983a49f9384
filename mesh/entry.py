"""How a console entry begins, and how signals end it."""

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

from .loading import INTERRUPTED, loaded

TERMINATED = 143
"""128 and the number of SIGTERM."""

STANDARD = (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
"""Opened the wrong way round, so that using them fails as using what is closed does; but words go nowhere."""


@contextmanager
def naming(stream: str) -> Iterator[None]:
    """Errors of the system in the block name the stream: a full disk may be anybody's."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, stream) from None


class Stdout(io.FileIO):
    """Its errors name it, whoever prints."""

    def write(self, data: Any) -> int:
        with naming("stdout"):
            return super().write(data)


def named_stdout() -> None:
    """Python's own stdout is a Stdout from here on; another one is whose who set it."""
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper) and old is sys.__stdout__:
        raw = Stdout(old.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw) if isinstance(old.buffer, io.BufferedWriter) else raw,
            encoding=old.encoding, errors=old.errors, newline="\n",
            line_buffering=old.line_buffering, write_through=old.write_through,
        )  # fmt: skip


def stand_in() -> None:
    """For what the caller has closed, as `>&-` does: Python has None there, and the next file that is
    opened would be in its place. Who uses it gets an OSError, at once: nothing waits to be written."""
    for name, flags in STANDARD:
        if getattr(sys, name) is None:
            kind = Stdout if name == "stdout" else io.FileIO
            raw = kind(os.open(os.devnull, flags), "rb" if name == "stdin" else "wb")
            setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))


class Terminated(KeyboardInterrupt):
    """SIGTERM. It ends what Ctrl-C ends, in the same way: as supervisors, `timeout` and CI stop a program."""


@contextmanager
def terminable() -> Iterator[None]:
    """In the block SIGTERM raises Terminated, once: another one must not cut the ending short."""
    with _interruptible(), _ended_by_sigterm():
        yield


@contextmanager
def _interruptible() -> Iterator[None]:
    """Where SIGINT is ignored, as in what a script starts with `&`, it is held back in the block instead.

    Trio knows where it may be interrupted only if the handler of SIGINT is Python's own.
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
    heard = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Trio's knows whether it may raise here; Spark's ends its jobs. Called, for it may be held back.
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
    except BaseException as error:  # A nursery has it in a group.
        if heard and any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error)):
            raise Terminated from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The error itself, or those that a group holds, however deep."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


def interrupted_status(interrupt: KeyboardInterrupt) -> int:
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


def enter(console: str, argv: Sequence[str] | None = None) -> int:
    """Have this module `load(argv)`, run what that returns, and return the exit status."""
    stand_in()
    named_stdout()
    try:
        try:
            run = import_module(console).load(sys.argv[1:] if argv is None else argv)
        finally:
            loaded()
        status: int = run()
    except KeyboardInterrupt as interrupt:
        return interrupted_status(interrupt)
    return status
