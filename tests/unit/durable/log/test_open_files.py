"""How many files of a log are open at a time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from durable.log.open_files import FILES_MAX, NEWEST_KEPT
from durable.log.real_disk import RealDisk
from tests.logs import PlainLog, publish
from tests.stores import flip


def open_files(path: Path) -> list[str]:
    found = list[str]()
    for one in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{one}"))
    return sorted(one for one in found if one.startswith(str(path / "msgs.")))


def test_a_log_of_any_length_has_as_many_files_open(tmp_path: Path) -> None:
    """Found: each segment stayed open until it was freed, and a long log took all descriptors there are."""
    path = tmp_path / "store"
    log = PlainLog(RealDisk(path))
    while len(log.store.segments) < 2 * FILES_MAX:
        log.write(publish(log.committer.durable_end, 1000))
    kept = open_files(path)
    assert len(kept) == FILES_MAX

    names = sorted(str(one) for one in path.glob("msgs.*"))
    assert names[0] not in kept
    assert len(log.records()) == log.committer.durable_end - 1
    (first,) = log.store.reader.records(1, 2)
    assert first.position == 1
    now = open_files(path)
    assert len(now) == FILES_MAX
    assert names[0] in now
    assert {*names[-NEWEST_KEPT:]} <= {*now}, "what is written stays open"
    log.close()
    assert open_files(path) == []


def test_a_start_that_reads_a_log_of_any_length_has_one_open(tmp_path: Path) -> None:
    """Found: all of them were, and where there were fewer descriptors the log could not be opened."""
    path, seen = tmp_path / "store", list[int]()
    log = PlainLog(RealDisk(path))
    while len(log.store.segments) < 10:
        log.write(publish(log.committer.durable_end, 1000))
    end = log.committer.durable_end
    log.close()
    for one in (path / "msgs.0000000002", path / "msgs.0000000005"):
        flip(one, 300)

    log = PlainLog(RealDisk(path), visit=lambda _: seen.append(len(open_files(path))))
    assert len(log.report.damage) == 2
    assert log.committer.durable_end >= end
    assert set(seen) == {1}
    log.close()
    assert open_files(path) == []
