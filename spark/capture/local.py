"""The rows of a capture without Spark, in this process and in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .catalog import Catalog
from .columns import Wanted
from .options import check_batch, read_options
from .plan import pack
from .reading import read
from .topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa


def batches(options: Mapping[str, str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """What `mesh-capture` with these options gives, as Arrow batches of `columns` (see rows.py).

    Raises:
        CaptureError, DurableError: as a batch query does, each in one line.
    """
    asked = read_options(options)
    check_batch(asked)
    catalog = Catalog(asked)
    catalog.look()
    catalog.check()
    selected = catalog.batch()
    topics = Topics(asked.subscribe, asked.subscribe_pattern)
    accepts = None if topics.all else topics
    wanted = Wanted(tuple(columns), selected.times, accepts, asked.batch_rows)
    works = pack(selected, split_bytes=asked.max_partition_bytes, splits_min=1, ordered=False)
    for work in works:
        yield from read(
            work, wanted, damaged=asked.damaged, fail_on_data_loss=asked.fail_on_data_loss,
            keys=asked.keys,
        )  # fmt: skip
