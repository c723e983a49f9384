"""`mesh capture export`: Parquet files, in folders by date (UTC) and topic."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mesh.commands.terminal import words

from ..errors import ExportFailed
from ..folders import FULL_TOPIC, folder
from .reading import read_batches

if TYPE_CHECKING:
    import pyarrow as pa

FILES_OPEN_MAX = 256
FOLDERS_MAX = 100_000


def run(args: argparse.Namespace) -> int:
    """Raises CaptureError, DurableError; ExportFailed: what has been written so far stays."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    from ..capture.options import Options
    from ..capture.rows import SQL, schema_of

    columns = tuple(SQL)
    found = read_batches(args, columns, includeHeaders="true")
    if args.out.exists() and any(args.out.iterdir()):
        raise ExportFailed(str(args.out), "there is something in it already")
    rows = 0

    def dated() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in found:
            rows += batch.num_rows
            date = batch.column("timestamp").cast(pa.date32())
            topics = batch.column("topic").dictionary_encode()
            folders = pa.array([folder(one) for one in topics.dictionary.to_pylist()], pa.string())
            arrays = [*batch.columns, batch.column(at), date]
            arrays[at] = folders.take(topics.indices)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    schema = schema_of(Options(), columns)
    at = schema.get_field_index("topic")
    schema = schema.append(schema.field(at).with_name(FULL_TOPIC))
    schema = schema.append(pa.field("date", pa.date32()))
    keys = pa.schema([schema.field("date"), schema.field("topic")])
    try:
        args.out.mkdir(parents=True, exist_ok=True)  # Also for no messages at all.
        ds.write_dataset(
            pa.RecordBatchReader.from_batches(schema, dated()), str(args.out), format="parquet",
            partitioning=ds.partitioning(keys, flavor="hive"), max_open_files=FILES_OPEN_MAX,
            max_partitions=FOLDERS_MAX, existing_data_behavior="overwrite_or_ignore",
        )  # fmt: skip
    except (pa.ArrowException, OSError) as error:
        raise ExportFailed(str(args.out), str(error).splitlines()[0]) from error
    words(f"{rows:,} messages are in {args.out}")
    return 0
