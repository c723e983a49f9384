"""CPU seconds and memory of one process, all its threads included."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

KIB = 1024
ENDED = "Z"
"""A zombie: the process has ended, and its parent has not waited for it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time since the process started, memory now and at its peak."""

    cpu_s: float
    rss_bytes: int
    peak_rss_bytes: int

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def own_usage() -> Usage:
    """Return the usage of this process, including libzmq's I/O threads, which encrypt."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return usage(Path("/proc/self"), spent.ru_utime + spent.ru_stime)


def usage_of(pid: int) -> Usage:
    """Return the usage of another process, its CPU time to a hundredth of a second.

    CPU time includes all processes that it started: Redis forks one to rewrite its file. Memory is that of the process
    alone, as a fork shares its pages.
    """
    ticks = 0
    for one in (pid, *below(pid)):
        with suppress(OSError):  # The process has ended, and its ticks are among its parent's.
            user_system_waited = stat(Path("/proc") / str(one))[11:15]
            ticks += sum(map(int, user_system_waited))
    return usage(Path("/proc") / str(pid), ticks / os.sysconf("SC_CLK_TCK"))


def below(pid: int) -> Iterator[int]:
    """Yield all descendants of a process."""
    parents = {one: int(words[1]) for one, words in processes()}
    found = {pid}
    while more := {one for one, over in parents.items() if over in found} - found:
        found |= more
    yield from found - {pid}


def of_group(pid: int) -> list[int]:
    """Return the processes of the group of `pid` that have not ended."""
    return [one for one, words in processes() if int(words[2]) == pid and words[0] != ENDED]


def processes() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            yield int(entry.name), stat(entry)


def stat(process: Path) -> list[str]:
    """Return the fields after the name, which may contain spaces and brackets: state, parent, group ..."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def usage(process: Path, cpu_s: float) -> Usage:
    # Not ru_maxrss: in a child it starts at the parent's peak, as the copy before exec counts.
    memory = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    if "VmRSS" not in memory:
        raise ProcessLookupError(f"process {process.name} has ended")
    return Usage(
        cpu_s=cpu_s,
        rss_bytes=int(memory["VmRSS"].split()[0]) * KIB,
        peak_rss_bytes=int(memory["VmHWM"].split()[0]) * KIB,
    )
