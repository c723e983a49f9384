"""What one sync costs where the broker writes: pwrite to a preallocated file, then fdatasync."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING

from bench.roles.stage import Stage, play

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_BYTES = 16 << 20


def run(stage: Stage) -> None:
    settings = stage.settings
    with tempfile.TemporaryFile(dir=settings["directory"]) as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        os.fsync(file.fileno())
        offsets = turns(settings["size_bytes"])
        stage.ready()
        for order in stage.orders():
            stage.done(
                times_ns=sync(file.fileno(), settings["size_bytes"], offsets, order["count"])
            )


def turns(size_bytes: int) -> Iterator[int]:
    """One place after the other, as a log writes; from the start again when the file is full."""
    while True:
        yield from range(0, FILE_BYTES - size_bytes, size_bytes)


def sync(descriptor: int, size_bytes: int, offsets: Iterator[int], count: int) -> list[int]:
    clock, data, times_ns = time.perf_counter_ns, os.urandom(size_bytes), list[int]()
    for _ in range(count):
        start_ns = clock()
        os.pwrite(descriptor, data, next(offsets))
        os.fdatasync(descriptor)
        times_ns.append(clock() - start_ns)
    return times_ns


if __name__ == "__main__":
    play(run)
