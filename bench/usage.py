"""CPU seconds and memory of one process, all its threads included."""

from __future__ import annotations

import os
import resource
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
    """Of another process, in ticks of a hundredth of a second."""
    process = Path("/proc") / str(pid)
    words = (process / "stat").read_text().rpartition(")")[2].split()
    return usage(process, (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"))


def usage(process: Path, cpu_s: float) -> Usage:
    # Not ru_maxrss: a child starts with its parent's peak there, the copy before exec counts.
    memory = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return Usage(
        cpu_s=cpu_s,
        rss_bytes=int(memory["VmRSS"].split()[0]) * KIB,
        peak_rss_bytes=int(memory["VmHWM"].split()[0]) * KIB,
    )
