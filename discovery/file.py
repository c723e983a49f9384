"""Finds nodes by endpoints in a text file, which people or deployment tools edit while nodes run.

    # one endpoint a line
    tcp://10.0.0.1:9000
    tcp://10.0.0.2:9000     # from here on: comment

Only what is in the file now is reported: a removed line is not reported again. A missing file is a
problem, not an error, because it may appear later.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from stat import S_ISFIFO
from typing import Protocol

import trio

from .endpoint import parse_endpoint
from .errors import BadEndpoint
from .finder import Found, PassiveFinder, Sink
from .threads import run_in_thread

FILE_BYTES_MAX = 1 << 20
"""A larger file is not a list of endpoints but probably a wrong path."""
LINES_PER_TURN = 200
"""Lines that are read, or endpoints that are reported, before other tasks have a turn: 4 ms. A whole file of 1 MiB
takes a second."""
BAD_LINES_SHOWN = 3
"""`problem()` is read by people: the first bad lines are enough."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What `stat` shows when a file has changed. The inode detects editors that rename a new file over it."""

    mtime_ns: int
    inode: int
    size_bytes: int


class Files(Protocol):
    """Access to the file system, replaced in tests. Both methods raise OSError."""

    async def stamp(self, path: str) -> Stamp: ...

    async def read(self, path: str) -> bytes: ...


class RealFiles:
    """The real file system, used in threads: a file on a dead network mount must stall this finder and not the node."""

    async def stamp(self, path: str) -> Stamp:
        stat = await run_in_thread(lambda: os.stat(path))
        if S_ISFIFO(stat.st_mode):  # Opening one waits for its writer, maybe for ever.
            raise OSError("a FIFO, not a file")
        return Stamp(stat.st_mtime_ns, stat.st_ino, stat.st_size)

    async def read(self, path: str) -> bytes:
        """Return the content, at most FILE_BYTES_MAX + 1 bytes of it."""

        def read() -> bytes:
            with open(path, "rb") as file:
                return file.read(FILE_BYTES_MAX + 1)

        return await run_in_thread(read)


class FileFinder(PassiveFinder):
    """Reports the endpoints in `path` at once, whenever the file changes, and every `repeat_s`."""

    source = "file"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        poll_s: float = 1.0,
        repeat_s: float = 5.0,
        files: Files | None = None,
    ) -> None:
        self.place = os.fspath(path)
        self._poll_s, self._repeat_s = poll_s, repeat_s
        self._files: Files = files or RealFiles()
        self._problem: str | None = None

    def __repr__(self) -> str:
        return f"FileFinder({self.place}, problem={self._problem!r})"

    async def run(
        self, sink: Sink, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Finder.run`."""
        task_status.started()
        seen: Stamp | None = None
        due_s = trio.current_time()
        while True:
            try:
                stamp = await self._files.stamp(self.place)
                # Read every `repeat_s` even with the same stamp: a second write within the same clock tick as
                # the first (4 ms) that keeps the size does not change the stamp.
                if stamp != seen or trio.current_time() >= due_s:
                    content = await self._files.read(self.place)
                    self.endpoints, self._problem = await _parse(self.place, content)
                    for number, endpoint in enumerate(self.endpoints, 1):
                        sink(Found(endpoint=endpoint))
                        await _make_way(number)
                    seen, due_s = stamp, trio.current_time() + self._repeat_s
            except OSError as error:
                seen, self._problem = None, f"{self.place}: {error.strerror or error}"
            await trio.sleep(self._poll_s)

    def problem(self) -> str | None:
        """Return why the file cannot be read, or its first bad lines (good lines are reported anyway), or None."""
        return self._problem


async def _make_way(number: int) -> None:
    """Let other tasks run after every LINES_PER_TURN."""
    if number % LINES_PER_TURN == 0:
        await trio.lowlevel.checkpoint()


async def _parse(path: str, content: bytes) -> tuple[list[str], str | None]:
    """Return the endpoints, in order and without duplicates, and what is wrong with the other lines."""
    if len(content) > FILE_BYTES_MAX:
        return [], f"{path}: larger than {FILE_BYTES_MAX} bytes, so not a list of endpoints"
    endpoints: dict[str, None] = {}
    bad: list[str] = []
    # "replace", not "strict": a byte that is not UTF-8 spoils its line, not the whole file.
    for number, line in enumerate(content.decode("utf-8-sig", "replace").splitlines(), 1):
        await _make_way(number)
        text = line.partition("#")[0].strip()
        try:
            if text:
                parse_endpoint(text)
                endpoints[text] = None
        except BadEndpoint as error:
            bad.append(f"line {number}: {error}")
    if not bad:
        return list(endpoints), None
    more = f"; and {len(bad) - BAD_LINES_SHOWN} more" if len(bad) > BAD_LINES_SHOWN else ""
    return list(endpoints), f"{path}: {'; '.join(bad[:BAD_LINES_SHOWN])}{more}"
