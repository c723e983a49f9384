"""The rows of a capture without Spark, read in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .options import check_batch, read_options
from .query import Query
from .rows import schema_of

if TYPE_CHECKING:
    import pyarrow as pa


def batches(options: Mapping[str, str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield what `mesh-capture` reads with these options, as Arrow batches of `columns` (see rows.py).

    In the order of the log, unless `ordering` asks for another one.

    Raises:
        CaptureError, DurableError: as a batch query, each in one line.
    """
    parsed = read_options(options)
    check_batch(parsed)
    query = Query(parsed, schema_of(parsed, columns))
    selected = query.select()
    for work in query.works(selected):
        yield from query.read(work, selected.times)
