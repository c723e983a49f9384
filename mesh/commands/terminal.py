"""stdin, stdout, stderr and signals: bytes come and go as they are, words are for people."""

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

from ..entry import naming
from ..errors import TooLarge
from ..nursery import open_nursery

STDIN_BYTES_MAX = 1 << 30
"""More than any payload may have; what is longer is refused, not cut."""
PIECE_BYTES = 1 << 16
UNREAD_S = 0.25
"""How often it is asked whether anybody reads on."""
LEAVING: Mapping[signal.Signals, int] = {signal.SIGTERM: 0}
"""Exit status by signal. Ctrl-C stays what it is: an interrupt, status 130."""
DEPTH_MAX = 32
"""Headers inside headers that are shown; msgpack lets a peer nest deeper than Python recurses."""


def payload(text: str) -> bytes:
    """The payload argument; `-` reads it from stdin, unchanged. Blocks: call it before joining."""
    if text != "-":
        return os.fsencode(text)
    with naming("stdin"):
        _tell_how_it_ends()
        data = sys.stdin.buffer.read(STDIN_BYTES_MAX + 1)
    if len(data) > STDIN_BYTES_MAX:
        raise TooLarge("stdin", len(data), STDIN_BYTES_MAX)
    return data


async def stdin_lines() -> AsyncIterator[bytes]:
    """Lines of stdin without their line ends, as they come.

    Read from the descriptor: a thread left inside `sys.stdin` holds its lock when Python ends,
    which then ends with a fatal error.
    """
    with naming("stdin"):
        _tell_how_it_ends()
    rest = b""
    while piece := await _stdin_piece():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > STDIN_BYTES_MAX:
            raise TooLarge("a line of stdin", len(rest), STDIN_BYTES_MAX)
    if rest:
        yield rest


def _tell_how_it_ends() -> None:
    """Who left a payload out would see a command that hangs."""
    if sys.stdin.isatty():
        words("reading what is typed, until Ctrl-D at the start of a line")


async def _stdin_piece() -> bytes:
    """Empty: there is no more."""
    with naming("stdin"):
        return await trio.to_thread.run_sync(
            os.read, sys.stdin.fileno(), PIECE_BYTES, abandon_on_cancel=True
        )


def out(data: bytes) -> None:
    """Data goes to stdout as it is; a terminal gets a line end where there is none."""
    if sys.stdout.isatty() and not data.endswith(b"\n"):
        data += b"\n"
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def flush_out() -> None:
    """What was printed goes out now. What cannot is dropped: Python would try it again when it ends, say
    so in lines of its own, and end with status 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


async def out_line(data: bytes) -> None:
    """A line to stdout; whoever reads it may take their time, the node goes on meanwhile.

    To the descriptor, for the reason that `stdin_lines` has.
    """
    with naming("stdout"):
        sys.stdout.flush()
        descriptor, rest = sys.stdout.fileno(), memoryview(data + b"\n")
        while rest:
            if len(rest) <= select.PIPE_BUF and select.select((), (descriptor,), (), 0)[1]:
                rest = rest[os.write(descriptor, rest) :]  # There is room: it does not block.
            else:
                written = await trio.to_thread.run_sync(
                    os.write, descriptor, rest, abandon_on_cancel=True
                )
                rest = rest[written:]


@asynccontextmanager
async def while_read() -> AsyncGenerator[None]:
    """The block ends, as if it were done, soon after whoever read stdout has closed it.

    Else a command that waits goes on until it has something to write: in `... | head -1`, for ever.
    Asked from time to time: epoll takes no files, and terminals are readable when somebody types.
    """
    errors = select.poll()
    errors.register(sys.stdout.fileno(), 0)  # They are told unasked.

    async def watch() -> None:
        while not errors.poll(0):  # noqa: ASYNC110  # Nobody sets an event.
            await trio.sleep(UNREAD_S)
        nursery.cancel_scope.cancel()

    async with open_nursery() as nursery:
        nursery.start_soon(watch)
        with suppress(BrokenPipeError):  # It was found out by writing.
            yield
        nursery.cancel_scope.cancel()


def show_every_name() -> None:
    """What stdout has no character for is escaped, as on stderr: names may hold any."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    # In the locale C what is no UTF-8 goes out as it came, and Python may have been told to take ASCII.
    plain = sys.stdout.errors == "surrogateescape" and sys.stdout.encoding != "utf-8"
    if sys.stdout.errors == "strict" or plain:
        sys.stdout.reconfigure(errors="backslashreplace")


_speaker = ContextVar("speaker", default="mesh")


@contextmanager
def speaking_as(program: str) -> Iterator[None]:
    """What each line of `words` begins with."""
    before = _speaker.set(program)
    try:
        yield
    finally:
        _speaker.reset(before)


def words(text: str) -> None:
    """Words go to stderr, one line; what peers wrote in them cannot steer the terminal. Where it takes
    none they are lost: what was done is done, and the exit status says so."""
    with suppress(OSError):
        print(f"{_speaker.get()}: {printable(text)}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Without what would steer a terminal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def payload_fields(data: bytes) -> dict[str, str]:
    """A payload in JSON without loss: as text when it is UTF-8, else in Base64."""
    try:
        return {"payload": data.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(data).decode()}


def jsonable(value: Any, depth: int = 0) -> Any:
    """A header's value for JSON: bytes as {"base64": ...}, what JSON has no form for as text."""
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
class Told:
    """Whether a command has been told to end: then `waiting` is cancelled, and `status` is its exit status."""

    waiting: trio.CancelScope = field(default_factory=trio.CancelScope)
    status: int | None = None


@contextmanager
def until_told(statuses: Mapping[signal.Signals, int] = LEAVING) -> Iterator[Told]:
    """In the block the first of these signals ends its `waiting`, and another one changes nothing.

    So the block is around all that has to end properly, `waiting` around what goes on for ever.
    """
    told, token = Told(), trio.lowlevel.current_trio_token()

    def take(number: signal.Signals) -> None:
        if told.status is None:
            told.status = statuses[number]
            told.waiting.cancel()

    def heard(number: int, frame: FrameType | None) -> None:
        token.run_sync_soon(take, signal.Signals(number), idempotent=True)

    # Handlers of our own. Trio's receiver gives back what comes while the block ends, to cut it short; a
    # signal that is ignored instead stays so, in what is started from here, too.
    before = {number: signal.signal(number, heard) for number in statuses}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
