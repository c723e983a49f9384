"""Segments that cannot be read, or are no files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.real_disk import RealFile
from spark.errors import SegmentUnreadable
from tests.captures import varied
from tests.unit.spark.loading import loaded, planned, query


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("put", [a_fifo, a_directory])
def test_what_is_no_file_in_place_of_a_segment_is_named_and_not_waited_for(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    """Found: a FIFO was waited for, for ever; of a directory the error did not tell which."""
    captured = varied(tmp_path, 1)
    captured.close()
    file = captured.path / segment_name(2)
    put(file)
    with pytest.raises(SegmentUnreadable) as failed:
        loaded(tmp_path, damaged="skip")
    told = f"{file}: Not a regular file; `mesh-broker salvage` copies what can be read"
    assert str(failed.value) == told


def test_a_segment_that_the_disk_does_not_return_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: `[Errno 5] Input/output error`, and not where."""
    captured = varied(tmp_path, 1)
    captured.close()
    (work,) = planned(tmp_path)
    pread = RealFile.pread

    def broken(file: RealFile, size_bytes: int, at: int) -> bytes:
        if size_bytes > SEGMENT_HEADER_BYTES:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(file, size_bytes, at)

    found = query(tmp_path)
    times = found.select().times
    monkeypatch.setattr(RealFile, "pread", broken)
    with pytest.raises(SegmentUnreadable, match=r"/msgs\.0000000001: Input/output error; "):
        list(found.read(work, times))
