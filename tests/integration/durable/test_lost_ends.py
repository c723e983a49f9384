"""Segments emptied, cut or removed by somebody, of which checkpoints still know: the loss is told.

A whole vhost on a memory disk in virtual time; `mesh-broker` looks at a copy of it in files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from durable.broker.checkpoints import Checkpointer
from durable.broker.directory import make_vhost
from durable.broker.running_vhost import RunningVhost
from durable.cli import main
from durable.config import BrokerConfig
from durable.log.faulty_disk import FaultyDisk
from durable.log.memory_disk import Folder, Volume
from durable.log.report import LogGap, RecoveryReport
from durable.vhost.checkpointing import Checkpointing
from tests.integration.durable.test_checkpoint_files import STILL, Client
from tests.integration.durable.test_too_large import declare
from tests.power_cuts import run
from tests.vhosts import batch_at

SEGMENTS = 4
Spans = dict[str, tuple[int, int]]
"""By file, the log positions in it."""


def make_store(checkpoint_in: int, segments: int = SEGMENTS) -> tuple[Volume, Spans, int, int]:
    """So many segments of messages that nobody settled, as a kill left them; the last checkpoint was
    written while this one was. With it, the log positions from which it wants all, and up to which."""
    volume, client, spans = Volume(), Client(), Spans()
    left = list[Volume]()
    known: list[int] = []

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        log = running.log
        point = log._committer.placer.write_point
        while point.number < segments or point.at < 6000:
            if point.number == checkpoint_in and point.at > 3000 and not known:
                checkpointer = Checkpointer(
                    running,
                    FaultyDisk(volume),
                    Checkpointing(running.vhost.registry),
                    BrokerConfig(checkpoint_bytes=1),
                )
                known.append(running.applied_end)
                await checkpointer.write()
                known.append(log.end - 1)  # Its snapshot's copy, right behind, nobody misses.
            await client.publish(running, "jobs", bytes(500))
            point = log._committer.placer.write_point
        for one in log._store.segments:
            spans[f"msgs.{one.number:010}"] = (one.first, one.end)
        left.append(volume.copy())

    run(volume, life, config=STILL)
    start, end = known
    return left[0], spans, start, end


def verify(volume: Volume, data: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any, str]:
    """Status, the vhost in JSON, and what is said to people."""
    _write(volume, Path(make_vhost(data, "/")))
    capsys.readouterr()
    status = main(["verify", str(data), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["vhosts"]
    assert main(["verify", str(data)]) == status
    return status, row, capsys.readouterr().out


def _write(folder: Folder, path: Path) -> None:
    path.mkdir(exist_ok=True)
    for name, inode in folder.seen.items():
        (path / name).write_bytes(inode.seen)
    for name, inner in folder.folders.seen.items():
        _write(inner, path / name)


def serve(volume: Volume) -> RecoveryReport:
    """Go on with it, and write what comes."""
    reports: list[RecoveryReport] = []

    async def life(running: RunningVhost) -> None:
        reports.append(running.log.report)
        if "jobs" not in running.vhost.registry.queues:
            await declare(running, "jobs")
        await Client().publish(running, "jobs", b"later")

    run(volume, life, config=STILL)
    return reports[0]


def take_away(volume: Volume, name: str, *, emptied: bool) -> None:
    if emptied:
        del volume.seen[name].seen[:]
    else:
        del volume.seen[name]


def check(volume: Volume, lost: LogGap, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told: to whoever looks, at the next start, and when that has gone on writing."""
    status, row, said = verify(volume, path / "before", capsys)
    gap = {"start": lost.start, "end": lost.end, "synced": True}
    assert (status, row["ok"], row["gaps"]) == (1, False, [gap])
    count = lost.end - lost.start
    told = f"lost: log positions {lost.start} to {lost.end - 1}, {count} records; they had been"
    assert told in said
    assert serve(volume).gaps == (lost,)
    assert main(["salvage", str(path / "before"), "--to", str(path / "new")]) == 0
    status, row, _ = verify(volume, path / "after", capsys)
    assert (status, row["gaps"]) == (1, [gap])


@pytest.mark.parametrize("emptied", [True, False])
def test_the_only_segment_emptied(
    emptied: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: all was well with 0 records, and a broker began anew at log position 1. Later found: of one that
    was removed only what came after the last checkpoint was told as lost, though not by a broker."""
    volume, spans, _, end = make_store(1, segments=1)
    (name,) = spans
    take_away(volume, name, emptied=emptied)
    check(volume, LogGap(1, end, synced=True), tmp_path, capsys)


def test_everything_removed_but_the_files_of_queues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: all was well, as above. What had been freed of it nobody knows any more."""
    volume, spans, _, end = make_store(SEGMENTS)
    for name in (*spans, "checkpoint"):
        volume.seen.pop(name)
    check(
        volume, LogGap(1, end - 1, synced=True), tmp_path, capsys
    )  # The root knew of its snapshot.


def test_the_last_segment_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found: that was the rest of a commit that a crash cut off, however far in front of its end."""
    volume, spans, _, end = make_store(SEGMENTS)
    *_, (name, (first, _)) = spans.items()
    del volume.seen[name].seen[1500:]
    _, row, said = verify(volume, tmp_path / "look", capsys)
    assert "torn tail" in said
    check(volume, LogGap(row["found_end"], end, synced=True), tmp_path, capsys)
    assert first < row["found_end"] < end


@pytest.mark.parametrize("emptied", [True, False])
def test_all_segments_since_the_checkpoint(
    emptied: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume, spans, _, end = make_store(2)
    for name in list(spans)[1:]:
        take_away(volume, name, emptied=emptied)
    first = spans["msgs.0000000002"][0]
    check(volume, LogGap(first, end, synced=True), tmp_path, capsys)


@pytest.mark.parametrize("emptied", [True, False])
def test_a_segment_in_the_middle(
    emptied: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: one that was removed had been freed, though the last checkpoint was older than it."""
    volume, spans, _, _ = make_store(2)
    name = "msgs.0000000003"
    take_away(volume, name, emptied=emptied)
    status, row, _ = verify(volume, tmp_path / "look", capsys)
    first, end = spans[name]
    assert (status, row["gaps"]) == (1, [{"start": first, "end": end, "synced": True}])
    assert serve(volume).gaps == (LogGap(first, end, synced=True),)


def test_the_first_segment_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found: it had been freed, though the last checkpoint was in the middle of it."""
    volume, spans, start, _ = make_store(1)
    del volume.seen["msgs.0000000001"]
    lost = LogGap(start, spans["msgs.0000000001"][1], synced=True)
    status, row, _ = verify(volume, tmp_path / "look", capsys)
    assert (status, row["gaps"]) == (1, [{"start": lost.start, "end": lost.end, "synced": True}])
    assert serve(volume).gaps == (lost,)


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_removed_that_is_older_than_the_checkpoint(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: it had been freed, and all was well, though the checkpoint had messages in it. Of the first
    one a broker told nothing, either; others it does not miss before their messages are due."""
    volume, spans, _, _ = make_store(SEGMENTS)
    name = f"msgs.{number:010}"
    take_away(volume, name, emptied=False)
    first, end = spans[name]
    lost = LogGap(max(first, 3), end, synced=True)  # The first records declare the queue.
    status, row, _ = verify(volume, tmp_path / "look", capsys)
    assert (status, row["gaps"]) == (1, [{"start": lost.start, "end": lost.end, "synced": True}])
    if number == 1:
        assert serve(volume).gaps == (lost,)
        return

    async def read(running: RunningVhost) -> None:
        (lane,) = running.vhost.registry.queue("jobs").lanes
        for low, high in lane.ready_ranges():
            for sequence in range(low, high):
                await batch_at(running, lane, sequence)
        assert running.batch_reader.lost == lost.end - lost.start

    run(volume, read, config=STILL)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("damaged", ["checkpoint", "ack", "enq"])
def test_a_segment_removed_of_which_no_checkpoint_can_tell(
    damaged: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Found: it had been freed, and all was well. What settled its messages would be known, or there."""
    volume, spans, _, _ = make_store(SEGMENTS)
    name = f"msgs.{number:010}"
    take_away(volume, name, emptied=False)
    ((digest, queue),) = volume.folders.seen["queues"].folders.seen.items()
    folder = volume if damaged == "checkpoint" else queue
    folder.seen[damaged].seen[-1] ^= 1
    file = damaged if damaged == "checkpoint" else f"queues/{digest}/{damaged}"
    first, end = spans[name]
    missing = (
        f"{end - max(first, 3)} messages of jobs are neither in the log nor known to be settled"
    )
    status, row, said = verify(volume, tmp_path / "look", capsys)
    assert (status, row["problems"]) == (
        1, [f"damaged: the file {file}", f"missing: {missing}"],
    )  # fmt: skip
    assert missing in said
    serve(volume)
    assert missing in caplog.text
    caplog.clear()
    serve(volume)
    assert missing not in caplog.text, "it is told once, and known to the next checkpoint"
