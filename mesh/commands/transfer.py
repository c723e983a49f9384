"""`mesh send-file` and `receive-file`: send a file through a tunnel, and compare its SHA-256.

A file appears in the receiver's directory only when it is complete, and nothing is overwritten: if the
name is taken, it becomes NAME.1, NAME.2 ...
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from secrets import token_hex

import trio

from ..errors import MeshError
from ..service import Service
from ..tunnel import Tunnel
from .options import Commands, add_count, add_joining, joined, path
from .terminal import print_stderr, until_signal, write_stdout_line

ENDPOINT = "file"
PART_BYTES = 128 * 1024
NAME_BYTES_MAX = 255
"""Limit of file systems."""
HEAD_BYTES_MAX = 4096
SIZE_BYTES_MAX = (1 << 63) - 1
"""Largest file offset. A larger number is not a size, and would overflow the arithmetic of Progress."""
UNPRINTED_MAX = 100
"""Stored files whose paths wait to be printed on stdout; beyond that their tunnels wait."""
NAMESAKES_MAX = 1000
"""Most files NAME.1, NAME.2 ... beside NAME; one more is refused."""


class Progress:
    """Shows progress: a bar on a terminal, else a line per tenth. Rate and time left are averages from the start."""

    def __init__(self, total_bytes: int) -> None:
        self._total, self._done, self._shown = max(1, total_bytes), 0, -1
        self._start_s = trio.current_time()
        self._terminal = sys.stderr.isatty()

    def add(self, size_bytes: int) -> None:
        self._done += size_bytes
        step = 100 * self._done // self._total
        if step == self._shown or (not self._terminal and step % 10):
            return
        self._shown = step
        seconds = max(1e-6, trio.current_time() - self._start_s)
        rate = self._done / seconds
        left_s = (self._total - self._done) / max(rate, 1.0)
        text = f"{step:3} %  {rate / 1e6:7.1f} MB/s  {left_s:4.0f} s left"
        if self._terminal:
            filled = 30 * step // 100
            end = "\n" if self._done >= self._total else ""
            sys.stderr.write(f"\r[{'#' * filled:<30}] {text}{end}")
            sys.stderr.flush()
        else:
            print_stderr(text)


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "send-file", help="send a file to a member",
        description="Send a file to one member of a cluster that runs `mesh receive-file`.",
    )  # fmt: skip
    command.add_argument("target", help="CLUSTER whose members run `mesh receive-file`")
    command.add_argument("file", type=path, help="regular file of any size")
    add_joining(command)
    command.set_defaults(run=send_file)
    command = commands.add_parser(
        "receive-file", help="receive files into a directory",
        description="Receive files into a directory until SIGTERM or Ctrl-C, and print the path of "
        "each.\nExisting files are not overwritten: if NAME exists, the file becomes NAME.1, NAME.2 ...",
    )  # fmt: skip
    command.add_argument("directory", type=path, help="directory for the files; must exist")
    add_count(command, "files")
    add_joining(command)
    command.set_defaults(run=receive_file)


async def send_file(args: argparse.Namespace) -> int:
    name = safe_name(args.file.name)
    # Checked before opening: opening a pipe would wait.
    if not stat.S_ISREG(args.file.stat().st_mode):
        raise MeshError(f"{args.file}: not a regular file")
    target = args.target if "/" in args.target else f"{args.target}/{ENDPOINT}"
    digest = hashlib.sha256()
    async with await trio.open_file(args.file, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        async with joined(args) as node, node.open_tunnel(target) as tunnel:
            progress = Progress(size)
            await tunnel.send(json.dumps({"name": name, "size": size}).encode())
            while part := await file.read(min(PART_BYTES, tunnel.part_bytes_max)):
                digest.update(part)
                await tunnel.send(part)
                progress.add(len(part))
            await tunnel.send_eof()
            answers = [answer.decode(errors="replace") async for answer in tunnel]
    if answers != [digest.hexdigest()]:
        raise MeshError(f"the receiver did not store the file: {' '.join(answers) or 'no answer'}")
    print_stderr(f"{name}: {size} bytes received and stored, SHA-256 {digest.hexdigest()}")
    return 0


def safe_name(name: object) -> str:
    """Return `name` if it is a file name that cannot leave its directory. Raises MeshError."""
    if not isinstance(name, str) or not 0 < len(_encoded(name)) <= NAME_BYTES_MAX:
        raise MeshError(f"a file name must have 1 to {NAME_BYTES_MAX} bytes of UTF-8")
    if name != PurePosixPath(name).name or name != PureWindowsPath(name).name:
        raise MeshError(f"file name {name!r}: refused, it would leave the directory")
    if name.startswith(".") or not name.isprintable():
        raise MeshError(
            f"file name {name!r}: refused, it starts with a dot or has unprintable characters"
        )
    return name


def _encoded(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        return b""


def read_head(data: bytes) -> tuple[str, int]:
    """Return the name and the size in bytes that the sender announces. Raises MeshError."""
    try:
        head = json.loads(data) if len(data) <= HEAD_BYTES_MAX else None
    except (ValueError, RecursionError):
        head = None
    size = head.get("size") if isinstance(head, dict) else None
    if not isinstance(head, dict) or type(size) is not int or not 0 <= size <= SIZE_BYTES_MAX:
        raise MeshError("the sender did not announce a name and size")
    return safe_name(head.get("name")), size


async def store(tunnel: Tunnel, directory: Path) -> Path:
    """Receive one file; it appears under its name, or the next free one, when it is complete. Raises MeshError."""
    name, size = read_head(await anext(tunnel, b""))
    digest, received_bytes = hashlib.sha256(), 0
    progress = Progress(size)
    # Not derived from NAME: two senders may use it at once, and it may have the greatest length allowed.
    temporary = directory / f".{token_hex(8)}.part"
    file = await trio.open_file(temporary, "xb")
    try:
        async with file:
            async for part in tunnel:
                received_bytes += len(part)
                if received_bytes > size:
                    break
                digest.update(part)
                await file.write(part)
                progress.add(len(part))
        if received_bytes != size:
            more = " or more" if received_bytes > size else ""
            raise MeshError(f"{name}: {received_bytes} bytes{more} received, {size} announced")
        stored = place(temporary, directory, name)
    finally:
        temporary.unlink(missing_ok=True)
    with suppress(MeshError):  # The file is stored, even if its sender has gone and cannot hear it.
        await tunnel.send(digest.hexdigest().encode())
    return stored


def place(temporary: Path, directory: Path, name: str) -> Path:
    """Give a complete file its name, or the first free one of NAME.1, NAME.2 ... Raises MeshError if none is free."""
    for number in range(NAMESAKES_MAX + 1):
        ending = f".{number}" if number else ""
        cut = name.encode()[: NAME_BYTES_MAX - len(ending)].decode(errors="ignore")
        final = directory / f"{cut}{ending}"
        try:
            os.link(temporary, final)  # Like a rename, but fails if the file exists.
        except FileExistsError:
            continue
        return final
    raise MeshError(f"{name}: {NAMESAKES_MAX} more files of this name exist: remove some")


async def receive_file(args: argparse.Namespace) -> int:
    if not args.directory.is_dir():
        raise MeshError(f"{args.directory}: no such directory: create it first")
    if not os.access(args.directory, os.W_OK | os.X_OK):
        raise MeshError(f"{args.directory}: not writable by this user")
    service = Service(args.cluster)
    send_stored, stored = trio.open_memory_channel[Path](UNPRINTED_MAX)

    @service.tunnel(ENDPOINT)
    async def take(tunnel: Tunnel) -> None:
        try:
            final = await store(tunnel, args.directory)
        except (MeshError, OSError) as error:
            print_stderr(f"file from {tunnel.caller} not stored: {error}")
            await tunnel.send(str(error).encode()[:1000])
            return
        # Printed by the main task: an error of stdout is not the sender's fault.
        await send_stored.send(final)

    with until_signal() as stop:
        async with joined(args, service) as node:
            print_stderr(f"member of {args.cluster} at {' '.join(node.endpoints)}")
            with stop.scope:
                count = 0
                async for final in stored:
                    await write_stdout_line(os.fsencode(final))
                    count += 1
                    if args.count is not None and count >= args.count:
                        break
    return 0
