"""SIGKILL of a process that writes to a log on the real disk, against a ledger of what it confirmed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from durable.log.real_disk import RealDisk
from tests.log_writer import CONFIG, size_bytes
from tests.logs import PlainLog, batch

ROUNDS = 6


def write_until_killed(directory: Path, seed: int) -> dict[int, int]:
    """Number of each message confirmed, by log position."""
    confirmed: dict[int, int] = {}
    enough = Random(seed).randrange(20, 250)
    words = [sys.executable, "-m", "tests.log_writer", str(directory), str(seed)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        alarm = threading.Timer(20, process.kill)
        alarm.start()
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break
            position, number = map(int, line.split())
            confirmed[position] = number
            if len(confirmed) == enough:
                process.kill()
        alarm.cancel()
    assert process.returncode == -9
    assert len(confirmed) >= enough
    return confirmed


@pytest.mark.slow
def test_everything_confirmed_survives_sigkill(tmp_path: Path) -> None:
    ledger: dict[int, int] = {}
    for seed in range(ROUNDS):
        confirmed = write_until_killed(tmp_path / "store", seed)
        assert not ledger.keys() & confirmed.keys(), "no log position is given twice"
        ledger |= confirmed
        log = PlainLog(RealDisk(tmp_path / "store"), CONFIG)
        found = {one.position: one for one in log.records()}
        assert log.report.gaps == ()
        assert log.report.epoch > seed
        assert sorted(found) == list(range(1, log.report.end)), "order, and nothing between"
        for position, number in ledger.items():
            assert bytes(found[position].body) == batch(number, size_bytes(number))
        for one in found.values():  # Nothing invented: each is what its own number says.
            if one.targets:
                number = one.targets[0].first
                assert bytes(one.body) == batch(number, size_bytes(number))
        log.close()
    assert log.report.segments > 2
