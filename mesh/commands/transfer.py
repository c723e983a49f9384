"""`mesh send-file` and `receive-file`: a file through a tunnel, compared by SHA-256."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath

import trio

from ..errors import MeshError
from ..service import Service
from ..tunnel import Tunnel
from .options import add_joining, joined, words

ENDPOINT = "file"
PART_BYTES = 128 * 1024
NAME_BYTES_MAX = 255


class Progress:
    """A bar on a terminal; elsewhere a line per tenth. Rate and time left are of the whole so far."""

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
            words(text)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("send-file", help="send a file to a member")
    command.add_argument("target", help="CLUSTER whose member runs receive-file")
    command.add_argument("file", type=Path)
    add_joining(command)
    command.set_defaults(run=send_file)
    command = commands.add_parser("receive-file", help="take files into a directory")
    command.add_argument("directory", type=Path)
    command.add_argument("--count", type=int, help="end after so many")
    add_joining(command)
    command.set_defaults(run=receive_file)


async def send_file(args: argparse.Namespace) -> int:
    size = args.file.stat().st_size
    digest = hashlib.sha256()
    target = args.target if "/" in args.target else f"{args.target}/{ENDPOINT}"
    async with joined(args) as node, node.open_tunnel(target) as tunnel:
        progress = Progress(size)
        await tunnel.send(json.dumps({"name": args.file.name, "size": size}).encode())
        async with await trio.open_file(args.file, "rb") as file:
            while part := await file.read(PART_BYTES):
                digest.update(part)
                await tunnel.send(part)
                progress.add(len(part))
        await tunnel.send_eof()
        answers = [answer.decode() async for answer in tunnel]
    if answers != [digest.hexdigest()]:
        raise MeshError(f"the receiver did not store it: {' '.join(answers) or 'no answer'}")
    words(f"{args.file.name}: {size} bytes arrived, SHA-256 {digest.hexdigest()}")
    return 0


def safe_name(name: object) -> str:
    """A file name that cannot leave its directory. Raises MeshError."""
    if not isinstance(name, str) or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise MeshError("a file without a usable name")
    if name != PurePosixPath(name).name or name != PureWindowsPath(name).name:
        raise MeshError(f"file name {name!r} would leave the directory")
    if name.startswith(".") or any(ord(letter) < 32 for letter in name):
        raise MeshError(f"file name {name!r} is not accepted")
    return name


async def store(tunnel: Tunnel, directory: Path) -> Path:
    """Take one file; it appears under its name when it is whole."""
    try:
        head = json.loads(await anext(tunnel))
        name, size = safe_name(head["name"]), int(head["size"])
    except (ValueError, KeyError, TypeError, StopAsyncIteration):
        raise MeshError("the sender did not say what it sends") from None
    digest, progress, got = hashlib.sha256(), Progress(size), 0
    temporary = directory / f".{name}.{os.getpid()}.part"
    try:
        async with await trio.open_file(temporary, "xb") as file:
            async for part in tunnel:
                digest.update(part)
                await file.write(part)
                progress.add(len(part))
                got += len(part)
        if got != size:
            raise MeshError(f"{name}: {got} bytes came, {size} were announced")
        os.replace(temporary, directory / name)
    finally:
        temporary.unlink(missing_ok=True)
    await tunnel.send(digest.hexdigest().encode())
    return directory / name


async def receive_file(args: argparse.Namespace) -> int:
    args.directory.mkdir(parents=True, exist_ok=True)
    stored = 0
    done = trio.Event()
    service = Service(args.cluster)

    @service.tunnel(ENDPOINT)
    async def take(tunnel: Tunnel) -> None:
        nonlocal stored
        try:
            path = await store(tunnel, args.directory)
        except (MeshError, OSError) as error:
            words(f"a file from {tunnel.caller}: {error}")
            await tunnel.send(str(error).encode()[:1000])
            return
        print(path, flush=True)
        stored += 1
        if args.count is not None and stored >= args.count:
            done.set()

    async with joined(args, service) as node:
        words(f"member of {args.cluster} at {' '.join(node.endpoints)}")
        await done.wait()
    return 0
