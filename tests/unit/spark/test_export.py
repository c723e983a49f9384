"""`mesh capture export` to files of Parquet, from batches that no broker has stored."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from durable.errors import RecordDamaged
from spark.capture.options import Options
from spark.capture.rows import SQL_TYPES, schema_of
from spark.commands import export, parquet
from spark.errors import ExportFailed

DAY_US = 86_400_000_000
ROWS = 100


def batch(first: int, topics: int) -> pa.RecordBatch:
    """Rows `first` and on; each topic in turn, and a day goes by with each row."""
    offsets = range(first, first + ROWS)
    columns: dict[str, list[Any]] = {
        "queue": ["audit"] * ROWS, "partition": [0] * ROWS, "offset": [*offsets],
        "timestamp": [at // ROWS * DAY_US for at in offsets],
        "exchange": ["amq.topic"] * ROWS, "topic": [f"t.{at % topics}" for at in offsets],
        "value": [b"%d" % at for at in offsets], "publisher": [b"p"] * ROWS, "epoch": [1] * ROWS,
        "sequence": [*offsets], "published": [0] * ROWS, "headers": [[]] * ROWS,
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(columns, schema_of(Options(), SQL_TYPES))


def run(monkeypatch: pytest.MonkeyPatch, out: Path, batches: Iterable[pa.RecordBatch]) -> int:
    monkeypatch.setattr(export, "read_batches", lambda *_, **__: iter(batches))
    return export.run(Namespace(out=out))


def written(out: Path) -> list[tuple[str, int]]:
    """Topic and offset, file after file."""
    table = ds.dataset(str(out), partitioning="hive").to_table()
    return [*zip(table["topic"].to_pylist(), table["offset"].to_pylist(), strict=True)]


@pytest.mark.parametrize("gathered_bytes", [1, 64 << 20])
def test_each_row_is_in_the_folder_of_its_date_and_topic_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gathered_bytes: int
) -> None:
    """With more folders than files may be open, too."""
    monkeypatch.setattr(parquet, "FILES_OPEN_MAX", 3)
    monkeypatch.setattr(parquet, "GATHERED_BYTES", gathered_bytes)
    days = [batch(first, topics=7) for first in range(0, 5 * ROWS, ROWS)]
    assert run(monkeypatch, tmp_path, days) == 0
    assert sorted(written(tmp_path)) == sorted((f"t.{at % 7}", at) for at in range(5 * ROWS))
    for day in range(5):
        folder = tmp_path / f"date=1970-01-0{day + 1}" / "topic=t.6"
        offsets = ds.dataset(str(folder)).to_table()["offset"].to_pylist()
        assert offsets == [at for at in range(day * ROWS, day * ROWS + ROWS) if at % 7 == 6]


def test_small_batches_become_one_row_group_of_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run(monkeypatch, tmp_path, [batch(0, topics=4) for _ in range(10)]) == 0
    files = ds.dataset(str(tmp_path)).get_fragments()
    assert [one.num_row_groups for one in files] == [1] * 4


def test_an_error_while_reading_is_told_and_what_was_written_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Found: pyarrow read in a thread of its own, and one in six such commands was aborted at its end."""
    monkeypatch.setattr(parquet, "GATHERED_BYTES", 1)
    readers: set[int] = set()

    def damaged() -> Iterator[pa.RecordBatch]:
        yield batch(0, topics=4)
        readers.add(threading.get_ident())
        raise RecordDamaged("batch", 7)

    with pytest.raises(RecordDamaged):
        run(monkeypatch, tmp_path, damaged())
    assert readers == {threading.get_ident()}
    assert sorted(written(tmp_path)) == sorted((f"t.{at % 4}", at) for at in range(ROWS))


def test_what_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every file is closed for all that."""

    class Full:
        closed = 0

        def __init__(self, *_: object) -> None:
            pass

        def write_batch(self, _rows: object) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            Full.closed += 1

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", Full)
    with pytest.raises(ExportFailed, match=r"out: .*No space left on device"):
        run(monkeypatch, tmp_path / "out", [batch(0, topics=4)])
    assert Full.closed == 1


def test_a_place_where_nothing_can_be_made_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: "x/out: [Errno 20] Not a directory: 'x/out'"."""
    (tmp_path / "x").touch()
    with pytest.raises(ExportFailed) as failed:
        run(monkeypatch, tmp_path / "x" / "out", [])
    assert str(failed.value) == f"{tmp_path}/x/out: Not a directory"


@pytest.mark.parametrize("name", ["out:1", "mock:out", "o\udcff"])
def test_a_directory_of_any_name_is_written_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: a name with a colon was taken for an address, and one that is not UTF-8 was a stack trace."""
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, Path(name), [batch(0, topics=1)]) == 0
    Path(name).rename("plain")
    assert written(Path("plain")) == [("t.0", at) for at in range(ROWS)]
