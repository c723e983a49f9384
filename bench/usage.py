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
"""And nobody has asked how."""


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
    parents = {one: int(words[1]) for one, words in processes()}
    found = {pid}
    while more := {one for one, over in parents.items() if over in found} - found:
        found |= more
    yield from found - {pid}


def of_group(pid: int) -> list[int]:
    """All processes of its group that have not ended."""
    return [one for one, words in processes() if int(words[2]) == pid and words[0] != ENDED]


def processes() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            yield int(entry.name), stat(entry)


def stat(process: Path) -> list[str]:
    """What follows the name, which may have anything in it: state, parent, group ..."""
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
