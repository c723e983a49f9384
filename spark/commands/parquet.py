"""Parquet files in folders `date=2026-11-27/topic=orders.eu`, written in the calling thread.

`pyarrow.dataset.write_dataset` has threads of its own: after an error one of them may still hold a Python object
when Python ends, which aborts the process, and the error is not shown.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ..folders import FULL_TOPIC, folder

FILES_OPEN_MAX = 256
GATHERED_BYTES = 64 << 20
DATE, TOPIC = "date", "topic"
HIVE = ds.partitioning(pa.schema([(DATE, pa.date32()), (TOPIC, pa.string())]), flavor="hive")


def joined_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches to about GATHERED_BYTES each, since the rows of one batch in a folder become a row group."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= GATHERED_BYTES:
            yield pa.concat_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.concat_batches(held)


def by_folder(batch: pa.RecordBatch) -> Iterator[tuple[date, str, pa.RecordBatch]]:
    """Yield date, the folder's topic, and their rows in order; `full_topic` has each topic as it is."""
    topics = batch.column(TOPIC).dictionary_encode()
    folders = pa.array([folder(one) for one in topics.dictionary.to_pylist()], pa.string())
    dates = batch.column("timestamp").cast(pa.date32())
    keys = pa.table(
        [dates, folders.take(topics.indices), pa.arange(0, len(batch))], [DATE, TOPIC, "row"]
    )
    found = keys.group_by([DATE, TOPIC], use_threads=False).aggregate([("row", "list")])
    rows = batch.drop_columns(TOPIC).append_column(FULL_TOPIC, batch.column(TOPIC))
    for day, topic, numbers in zip(
        *(found[name] for name in (DATE, TOPIC, "row_list")), strict=True
    ):
        yield day.as_py(), topic.as_py(), rows.take(numbers.values)


class Folders:
    """Writes one file per folder. At most FILES_OPEN_MAX are open, those written to last."""

    def __init__(self, root: Path) -> None:
        self._root, self._file_count = root, 0
        self._open_files: OrderedDict[str, _File] = OrderedDict()

    def write(self, batch: pa.RecordBatch) -> None:
        """Raises OSError, pyarrow.ArrowException."""
        for day, topic, rows in by_folder(batch):
            place, _ = HIVE.format((pc.field(DATE) == day) & (pc.field(TOPIC) == topic))
            self._file(place, rows.schema).write_batch(rows)

    def _file(self, place: str, schema: pa.Schema) -> _File:
        if place not in self._open_files:
            if len(self._open_files) == FILES_OPEN_MAX:
                _, oldest = self._open_files.popitem(last=False)
                oldest.close()
            directory = self._root / place
            directory.mkdir(parents=True, exist_ok=True)
            self._open_files[place] = _File(directory / f"part-{self._file_count}.parquet", schema)
            self._file_count += 1
        self._open_files.move_to_end(place)
        return self._open_files[place]

    def close(self) -> None:
        """Close all files; only then can they be read. Raises as `write` does, after all have been closed."""
        with ExitStack() as closing:
            for file in self._open_files.values():
                closing.callback(file.close)
            self._open_files.clear()


class _File:
    """One file. It is opened here, because pyarrow would take a path with a colon for an address, and none that is
    not UTF-8."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = pa.OSFile(os.fsencode(path), "wb")
        self._writer = pq.ParquetWriter(self._file, schema)

    def write_batch(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def close(self) -> None:
        with self._file:
            self._writer.close()
