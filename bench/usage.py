"""CPU seconds and memory of one process, all its threads included."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

KIB = 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU since the process started; memory now, and at its highest."""

    cpu_s: float
    rss_bytes: int
    peak_rss_bytes: int

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def own_usage() -> Usage:
    """Of this process. libzmq's I/O threads are in it: encryption is theirs."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return usage(Path("/proc/self"), spent.ru_utime + spent.ru_stime)


def usage_of(pid: int) -> Usage:
    """Of another process, in ticks of a hundredth of a second: its CPU and that of all it started, as
    Redis forks one to rewrite its file; memory of its own, which a fork shares."""
    ticks = 0
    for one in (pid, *below(pid)):
        with suppress(OSError):  # It has ended: who started it has its ticks.
            user_system_waited = stat(Path("/proc") / str(one))[11:15]
            ticks += sum(map(int, user_system_waited))
    return usage(Path("/proc") / str(pid), ticks / os.sysconf("SC_CLK_TCK"))


def below(pid: int) -> Iterator[int]:
    """All processes that it started, and those that they did."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            parents[int(entry.name)] = int(stat(entry)[1])
    found = {pid}
    while more := {one for one, over in parents.items() if over in found} - found:
        found |= more
    yield from found - {pid}


def stat(process: Path) -> list[str]:
    """What follows the name, which may have anything in it."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def usage(process: Path, cpu_s: float) -> Usage:
    # Not ru_maxrss: a child starts with its parent's peak there, the copy before exec counts.
    memory = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    if "VmRSS" not in memory:
        raise ProcessLookupError(f"process {process.name} has ended")
    return Usage(
        cpu_s=cpu_s,
        rss_bytes=int(memory["VmRSS"].split()[0]) * KIB,
        peak_rss_bytes=int(memory["VmHWM"].split()[0]) * KIB,
    )
