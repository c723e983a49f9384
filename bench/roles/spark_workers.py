"""Spark's Python workers below this process, as the kernel sees them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench.usage import below, usage_of

DAEMON = b"pyspark.daemon"


def peak_rss_bytes() -> int:
    """Of the worker that took most memory, at its highest; they wait for more work."""
    return max((usage_of(pid).peak_rss_bytes for pid in workers(os.getpid())), default=0)


def workers(parent: int) -> Iterator[int]:
    """Children of daemons: a daemon itself only forks."""
    for pid in below(parent):
        if DAEMON in (Path("/proc") / str(pid) / "cmdline").read_bytes():
            yield pid
