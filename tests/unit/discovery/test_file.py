"""A file of endpoints that is edited while we look."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from discovery.endpoint import parse_endpoint
from discovery.file import FILE_BYTES_MAX, LINES_PER_TURN, FileFinder, RealFiles, Stamp
from discovery.finder import Found
from tests.waiting import virtual_sleep

if TYPE_CHECKING:
    from trio.testing import MockClock


class FakeFiles:
    """One file; None means it does not exist."""

    def __init__(self, content: bytes | None) -> None:
        self.reads = 0
        self.write(content)

    def write(self, content: bytes | None, *, stamp: int | None = None) -> None:
        self.content = content
        self.at = self.reads if stamp is None else stamp

    async def stamp(self, path: str) -> Stamp:
        assert path == "/etc/nodes"
        if self.content is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return Stamp(mtime_ns=self.at, inode=1, size_bytes=len(self.content))

    async def read(self, path: str) -> bytes:
        self.reads += 1
        assert self.content is not None
        return self.content[: FILE_BYTES_MAX + 1]


class Run:
    def __init__(self, content: bytes | None) -> None:
        self.files = FakeFiles(content)
        self.finder = FileFinder("/etc/nodes", files=self.files)
        self.found: list[str] = []

    async def start(self, nursery: trio.Nursery) -> Run:
        await nursery.start(self.finder.run, lambda found: self.found.append(found.endpoint))
        await virtual_sleep(0.5)
        return self

    def take(self) -> list[str]:
        found, self.found = self.found, []
        return found


async def test_comments_blanks_and_duplicates(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    content = b"\xef\xbb\xbf# ours\n\n tcp://a:1 # first\r\ntcp://b:2\ntcp://a:1"
    run = await Run(content).start(nursery)
    nursery.cancel_scope.cancel()
    assert run.take() == ["tcp://a:1", "tcp://b:2"]
    assert run.finder.problem() is None


async def test_a_change_is_seen_within_a_second(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    run = await Run(b"tcp://a:1").start(nursery)
    assert run.take() == ["tcp://a:1"]
    run.files.write(b"tcp://b:2\n")
    await virtual_sleep(1)
    nursery.cancel_scope.cancel()
    assert run.take() == ["tcp://b:2"]


async def test_unchanged_is_repeated_every_5_s_and_not_read_between(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    run = await Run(b"tcp://a:1").start(nursery)
    await virtual_sleep(10)
    nursery.cancel_scope.cancel()
    assert run.take() == ["tcp://a:1"] * 3
    assert run.files.reads == 3


async def test_a_change_without_a_trace_in_the_stamp_is_seen_at_the_repeat(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    run = await Run(b"tcp://a:1").start(nursery)
    run.files.write(b"tcp://b:2", stamp=run.files.at)
    await virtual_sleep(5)
    nursery.cancel_scope.cancel()
    assert run.take() == ["tcp://a:1", "tcp://b:2"]


async def test_a_missing_file_is_a_problem_until_it_appears(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    run = await Run(None).start(nursery)
    assert run.finder.problem() == "/etc/nodes: No such file or directory"
    run.files.write(b"tcp://a:1")
    await virtual_sleep(1)
    assert run.finder.problem() is None
    run.files.write(None)
    await virtual_sleep(1)
    nursery.cancel_scope.cancel()
    assert run.take() == ["tcp://a:1"]
    assert run.finder.problem() == "/etc/nodes: No such file or directory"


async def test_a_bad_line_is_told_and_the_others_count(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    run = await Run(b"tcp://a:1\nb:2\n\xff\ntcp://c\nd\ntcp://e:5\n").start(nursery)
    nursery.cancel_scope.cancel()
    assert run.take() == ["tcp://a:1", "tcp://e:5"]
    problem = run.finder.problem()
    assert problem is not None
    assert problem.startswith("/etc/nodes: line 2: 'b:2' is not an endpoint: expected tcp://")
    assert problem.endswith("; and 1 more")


async def test_a_huge_file_is_refused(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    run = await Run(b"tcp://a:1\n" * FILE_BYTES_MAX).start(nursery)
    nursery.cancel_scope.cancel()
    assert run.take() == []
    assert "not a list of endpoints" in (run.finder.problem() or "")


@pytest.mark.parametrize("line", [b"tcp://a:%d", b"a:%d"])
async def test_a_long_file_is_read_bit_by_bit(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """Found: with 45,000 lines nothing else ran in the node for a second, every five seconds."""
    turn = most = 0
    done: list[str] = []

    def parse(text: str) -> tuple[str, int]:
        note()
        return parse_endpoint(text)

    def note(*_: object) -> None:
        nonlocal turn, most
        turn += 1
        most = max(most, turn)

    monkeypatch.setattr("discovery.file.parse_endpoint", parse)
    finder = FileFinder("/etc/nodes", files=FakeFiles(b"\n".join(line % i for i in range(1, 2001))))

    def sink(found: Found) -> None:
        note()
        done.append(found.endpoint)

    await nursery.start(finder.run, sink)
    while len(done) < 2000 and finder.problem() is None:
        turn = 0
        await trio.lowlevel.checkpoint()
    nursery.cancel_scope.cancel()
    assert (
        0 < most <= 3 * LINES_PER_TURN
    )  # The finder may run twice between two turns of this task.
    assert len(done) == (2000 if line.startswith(b"tcp") else 0)


async def test_a_fifo_is_a_problem_and_is_not_opened(tmp_path: Path) -> None:
    """Found: opening it waited for a writer, and that finder stood still, also when a file had taken its place."""
    os.mkfifo(tmp_path / "nodes")
    with pytest.raises(OSError, match="a FIFO, not a file"):
        await RealFiles().stamp(str(tmp_path / "nodes"))


def test_the_path_is_shown() -> None:
    assert repr(FileFinder("/etc/nodes")) == "FileFinder(/etc/nodes, problem=None)"
    with pytest.raises(TypeError):
        FileFinder(3)  # type: ignore[arg-type]
