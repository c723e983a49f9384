"""Times a sync where the broker writes: pwrite to a preallocated file, then fdatasync."""

from __future__ import annotations

import os
import time

from bench.roles.stage import Stage, play
from bench.roles.synced_file import SyncedFile


def run(stage: Stage) -> None:
    settings = stage.settings
    with SyncedFile(settings["directory"]) as file:
        stage.ready()
        for order in stage.orders():
            stage.done(times_ns=sync(file, settings["size_bytes"], order["count"]))


def sync(file: SyncedFile, size_bytes: int, count: int) -> list[int]:
    clock, record, times_ns = time.perf_counter_ns, os.urandom(size_bytes), list[int]()
    for _ in range(count):
        start_ns = clock()
        file.write(record)
        times_ns.append(clock() - start_ns)
    return times_ns


if __name__ == "__main__":
    play(run)
