"""stdin, stdout, stderr and signals: data passes unchanged, words are for people."""

from __future__ import annotations

import base64
import io
import math
import os
import select
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import trio

from ..entry import name_errors
from ..errors import TooLarge
from ..nursery import open_nursery

STDIN_BYTES_MAX = 1 << 30
"""More than any payload may have; longer input is refused, not cut."""
PIECE_BYTES = 1 << 16
STDOUT_POLL_S = 0.25
"""Pause between checks whether stdout still has a reader."""
SIGNAL_STATUSES: Mapping[signal.Signals, int] = {signal.SIGTERM: 0}
"""Exit status by signal. Ctrl-C is not among them: it interrupts, status 130."""
DEPTH_MAX = 32
"""Depth to which nested headers are shown; msgpack lets a peer nest deeper than Python recurses."""


def payload(text: str) -> bytes:
    """Return the payload argument; `-` reads stdin, unchanged. May block: call it before joining."""
    if text != "-":
        return os.fsencode(text)
    with name_errors("stdin"):
        _prompt_on_terminal()
        data = sys.stdin.buffer.read(STDIN_BYTES_MAX + 1)
    if len(data) > STDIN_BYTES_MAX:
        raise TooLarge("stdin", len(data), STDIN_BYTES_MAX)
    return data


async def stdin_lines() -> AsyncIterator[bytes]:
    """Iterate over the lines of stdin, without line ends, as they come.

    Reads from the descriptor: a thread left inside `sys.stdin` would hold its lock when Python ends, and
    Python then ends with a fatal error.
    """
    with name_errors("stdin"):
        _prompt_on_terminal()
    rest = b""
    while piece := await _stdin_piece():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > STDIN_BYTES_MAX:
            raise TooLarge("a line of stdin", len(rest), STDIN_BYTES_MAX)
    if rest:
        yield rest


def _prompt_on_terminal() -> None:
    """On a terminal, say that input is expected: a user who forgot the payload would see a command that hangs."""
    if sys.stdin.isatty():
        print_stderr("reading from the terminal; end with Ctrl-D at the start of a line")


async def _stdin_piece() -> bytes:
    """Return a piece of stdin; empty at its end."""
    with name_errors("stdin"):
        return await trio.to_thread.run_sync(
            os.read, sys.stdin.fileno(), PIECE_BYTES, abandon_on_cancel=True
        )


def write_stdout(data: bytes) -> None:
    """Write data to stdout unchanged; on a terminal add a line end if there is none."""
    if sys.stdout.isatty() and not data.endswith(b"\n"):
        data += b"\n"
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def flush_stdout() -> None:
    """Flush stdout; drop what cannot be written.

    Otherwise Python would try again when it ends, print lines of its own, and exit with status 120.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


async def write_stdout_line(data: bytes) -> None:
    """Write a line to stdout; the node goes on while a slow reader makes us wait.

    Writes to the descriptor, for the same reason as `stdin_lines`.
    """
    with name_errors("stdout"):
        sys.stdout.flush()
        descriptor, rest = sys.stdout.fileno(), memoryview(data + b"\n")
        while rest:
            if len(rest) <= select.PIPE_BUF and select.select((), (descriptor,), (), 0)[1]:
                rest = rest[os.write(descriptor, rest) :]  # There is room, so this does not block.
            else:
                written = await trio.to_thread.run_sync(
                    os.write, descriptor, rest, abandon_on_cancel=True
                )
                rest = rest[written:]


@asynccontextmanager
async def until_stdout_closed() -> AsyncGenerator[None]:
    """End the block, as if it were done, soon after the reader of stdout has closed it.

    Otherwise a command that waits would go on until it has something to write: in `... | head -1`, for ever.
    It polls, because epoll accepts no files, and terminals are readable when somebody types.
    """
    errors = select.poll()
    errors.register(sys.stdout.fileno(), 0)  # poll always reports errors.

    async def watch() -> None:
        while not errors.poll(0):  # noqa: ASYNC110  # Nobody sets an event.
            await trio.sleep(STDOUT_POLL_S)
        nursery.cancel_scope.cancel()

    async with open_nursery() as nursery:
        nursery.start_soon(watch)
        with suppress(BrokenPipeError):  # A write has found it first.
            yield
        nursery.cancel_scope.cancel()


def escape_unencodable() -> None:
    """Escape characters that stdout cannot encode, as stderr does: names may contain any."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    # In the locale C, bytes that are not UTF-8 are passed through, and Python may have been told to use ASCII.
    plain = sys.stdout.errors == "surrogateescape" and sys.stdout.encoding != "utf-8"
    if sys.stdout.errors == "strict" or plain:
        sys.stdout.reconfigure(errors="backslashreplace")


_program = ContextVar("program", default="mesh")


@contextmanager
def line_prefix(program: str) -> Iterator[None]:
    """In the block, lines printed by `print_stderr` begin with `program`."""
    before = _program.set(program)
    try:
        yield
    finally:
        _program.reset(before)


def print_stderr(text: str) -> None:
    """Print one line to stderr; characters from peers that would control the terminal are escaped.

    If stderr cannot be written the line is dropped: the exit status still says what happened.
    """
    with suppress(OSError):
        print(f"{_program.get()}: {printable(text)}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Escape unprintable characters, which could control a terminal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def payload_fields(data: bytes) -> dict[str, str]:
    """Return a payload as fields for JSON, without loss: as text if it is UTF-8, else in Base64."""
    try:
        return {"payload": data.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(data).decode()}


def jsonable(value: Any, depth: int = 0) -> Any:
    """Convert a header's value for JSON: bytes to {"base64": ...}, values that JSON cannot express to text."""
    if isinstance(value, Mapping | list | tuple) and depth >= DEPTH_MAX:
        return "..."
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str) else repr(key): jsonable(one, depth + 1)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [jsonable(one, depth + 1) for one in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


@dataclass(slots=True)
class StopSignal:
    """Whether a command has been told to end: if so `scope` is cancelled, and `status` is the exit status."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    status: int | None = None


@contextmanager
def until_signal(statuses: Mapping[signal.Signals, int] = SIGNAL_STATUSES) -> Iterator[StopSignal]:
    """In the block the first of these signals cancels `scope`; later ones change nothing.

    So the block is put around everything that has to end properly, and `scope` around what runs for ever.
    """
    stop, token = StopSignal(), trio.lowlevel.current_trio_token()

    def stop_once(number: signal.Signals) -> None:
        if stop.status is None:
            stop.status = statuses[number]
            stop.scope.cancel()

    def on_signal(number: int, frame: FrameType | None) -> None:
        token.run_sync_soon(stop_once, signal.Signals(number), idempotent=True)

    # Our own handlers. trio's signal receiver would deliver again a signal that comes while the block ends, which would
    # cut the ending short; and an ignored signal would stay ignored in child processes.
    before = {number: signal.signal(number, on_signal) for number in statuses}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
