"""Spark's Python workers, the descendants of this process, as the kernel reports them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench.usage import below, usage_of

DAEMON = b"pyspark.daemon"


def peak_rss_bytes() -> int:
    """Return the highest peak memory of any worker; workers stay alive after a task, so they can still be asked."""
    return max((usage_of(pid).peak_rss_bytes for pid in workers(os.getpid())), default=0)


def workers(parent: int) -> Iterator[int]:
    """Yield the process ids of the daemons and of the workers that they fork, which have the same command line."""
    for pid in below(parent):
        if DAEMON in (Path("/proc") / str(pid) / "cmdline").read_bytes():
            yield pid
