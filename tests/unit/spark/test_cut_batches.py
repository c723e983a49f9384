"""Records that compaction has cut messages out of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from durable.log.encryption import Encryption
from security.files import format_network_secret
from spark.capture.advance import advance
from spark.capture.plan import NO_LIMIT, Offsets, Selected, Times
from spark.errors import DataLost
from tests.captures import Captured, jobs_and_audit
from tests.logs import NEW_SECRET, encryption
from tests.unit.spark.loading import loaded, looked
from tests.unit.spark.streams import Stream

MESSAGES = 12
GONE = [(0, 3), (5, 9), (10, 12)]
LEFT = [at for at in range(MESSAGES) if not any(low <= at < high for low, high in GONE)]


def cut(data: Path, *, apart: bool, use: Encryption | None = None, times: int = 1) -> Captured:
    """Two records of twelve for two lanes each, of which compaction carried some for the first; then
    their segments went."""
    captured = jobs_and_audit(data, use)
    values = [b"%d" % at + bytes(150) for at in range(MESSAGES)]
    positions = [captured.publish([1, 2], values, apart=apart) for _ in range(2)]
    while captured.segment_of(positions[-1]) == captured.segment_of(captured.publish([2], [b"x"])):
        pass
    last = captured.segment_of(positions[-1])
    for position in positions:
        moved = captured.carry(position, 1, without=GONE)
        for _ in range(times - 1):
            captured.carry(moved, 1, without=[*GONE[:-1], (9, 12)])
    captured.snapshot()
    captured.free(*range(1, last + 1))
    return captured


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("encrypt", [False, True])
def test_what_is_left_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool, times: int, encrypt: bool
) -> None:
    monkeypatch.setenv("MESH_NETWORK_SECRET", format_network_secret(NEW_SECRET))
    use = encryption() if encrypt else None
    captured = cut(tmp_path, apart=apart, use=use, times=times)
    found = loaded(tmp_path, queues='["jobs"]')
    wanted = [one for one in captured.messages if one.queue == "jobs"]
    wanted = [one for one in wanted if one.offset % MESSAGES in LEFT]
    assert Counter(found) == Counter(wanted)
    captured.close()


@pytest.mark.parametrize("apart", [False, True])
def test_what_was_cut_out_is_told_as_freed(tmp_path: Path, apart: bool) -> None:
    captured = cut(tmp_path, apart=apart)
    captured.close()
    told = "offsets 5 to 8 of 'jobs' and 11 later ones were freed"
    with pytest.raises(DataLost, match=told):
        Stream(tmp_path, queues="jobs", startingOffsets='{"jobs": {"0": 3}}')


def test_a_batch_of_so_many_rows_counts_those_that_are_left(tmp_path: Path) -> None:
    """Found: it counted each piece as if it were the whole record."""
    captured = cut(tmp_path, apart=False)
    log = looked(captured)
    captured.close()
    selected = Selected(log, {1: Offsets("jobs", 0, 0, NO_LIMIT)}, Times(), 1, log.end)
    first, second = sorted(set(log.carried().origin.tolist()))
    assert advance(selected, rows_max=len(LEFT), bytes_max=None) == second
    assert advance(selected, rows_max=2 * len(LEFT), bytes_max=None) == log.end
    assert first < second
