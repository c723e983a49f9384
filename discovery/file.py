"""Endpoints in a text file that people or deployment tools edit while nodes run.

    # one endpoint a line
    tcp://10.0.0.1:9000
    tcp://10.0.0.2:9000     # from here on: comment

The file is the truth: a line that disappears is not reported again. A missing file is a problem,
not an error: it may appear later.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import trio

from .endpoint import parse_endpoint
from .errors import BadEndpoint
from .finder import Found, LookingOnly, Sink

FILE_BYTES_MAX = 1 << 20
"""More is not a list of endpoints but a wrong path."""
BAD_LINES_SHOWN = 3
"""`problem()` is for people; the first bad lines tell enough."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes when a file changes. The inode catches editors that rename over it."""

    mtime_ns: int
    inode: int
    size_bytes: int


class Files(Protocol):
    """The door to the file system. Both methods raise OSError."""

    async def stamp(self, path: str) -> Stamp: ...

    async def read(self, path: str) -> bytes: ...


class RealFiles:
    """In threads: a file on a dead network mount must stall this finder and not the node."""

    async def stamp(self, path: str) -> Stamp:
        stat = await trio.to_thread.run_sync(os.stat, path, abandon_on_cancel=True)
        return Stamp(stat.st_mtime_ns, stat.st_ino, stat.st_size)

    async def read(self, path: str) -> bytes:
        """At most one byte over FILE_BYTES_MAX."""

        def read() -> bytes:
            with open(path, "rb") as file:
                return file.read(FILE_BYTES_MAX + 1)

        return await trio.to_thread.run_sync(read, abandon_on_cancel=True)


class FileFinder(LookingOnly):
    """Reports the endpoints in `path` at once, when they change, and every `repeat_s`."""

    source = "file"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        poll_s: float = 1.0,
        repeat_s: float = 5.0,
        files: Files | None = None,
    ) -> None:
        self._path = os.fspath(path)
        self._poll_s, self._repeat_s = poll_s, repeat_s
        self._files: Files = files or RealFiles()
        self._problem: str | None = None

    def __repr__(self) -> str:
        return f"FileFinder({self._path}, problem={self._problem!r})"

    async def run(
        self, sink: Sink, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Finder.run`."""
        task_status.started()
        seen: Stamp | None = None
        due_s = trio.current_time()
        while True:
            try:
                stamp = await self._files.stamp(self._path)
                # Read when due even if the stamp is the old one: a second write within the
                # clock tick of the first (4 ms) that keeps the size leaves no trace in it.
                if stamp != seen or trio.current_time() >= due_s:
                    endpoints, self._problem = _parse(
                        self._path, await self._files.read(self._path)
                    )
                    for endpoint in endpoints:
                        sink(Found(endpoint=endpoint))
                    seen, due_s = stamp, trio.current_time() + self._repeat_s
            except OSError as error:
                seen, self._problem = None, f"{self._path}: {error.strerror or error}"
            await trio.sleep(self._poll_s)

    def problem(self) -> str | None:
        """The file cannot be read, or the first bad lines; the good ones count all the same."""
        return self._problem


def _parse(path: str, content: bytes) -> tuple[list[str], str | None]:
    """Endpoints in their order without duplicates, and what is wrong with the rest."""
    if len(content) > FILE_BYTES_MAX:
        return [], f"{path}: larger than {FILE_BYTES_MAX} bytes, not a list of endpoints"
    endpoints: dict[str, None] = {}
    bad: list[str] = []
    # "replace", not "strict": a byte that is no UTF-8 spoils its line, not the file.
    for number, line in enumerate(content.decode("utf-8-sig", "replace").splitlines(), 1):
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
