"""A capture as a DataFrame without the data source: its rows are made once on their way.

Of a source in Python, Spark 4.3 makes each row twice: out of Arrow, and in the projection that it puts
over a scan by rows. What a function gives as Arrow becomes rows once.

    call ──> splits, each pickled      here
    task ──> one split                 executor: its number is the row that Spark has of it
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidOption, UnknownColumn
from .options import check_batch, read_options
from .query import Query
from .rows import SQL, ddl, named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def read_capture(
    session: SparkSession, path: str, *, columns: Iterable[str] | None = None, **options: object
) -> DataFrame:
    """What `session.read.format("mesh-capture")` with these options reads, in two thirds of its time.

    It is what is stored now, whenever the frame is used, and however often.

    Args:
        path: a broker's directory, here and on the executors.
        columns: names of those to be made (see rows.py), once each; none: all, headers with `includeHeaders`.
        options: of the format, as `streams=["audit"], batchRows=4096`; None: not set.
    Raises:
        CaptureError, DurableError: at once, whatever would be wrong with a plan.
    """
    given = {name: as_text(value) for name, value in options.items() if value is not None}
    asked = read_options({"path": str(path), **given})
    check_batch(asked)
    if isinstance(columns, str):
        raise InvalidOption("columns", columns, f"a list of names, as [{columns!r}]")
    names = tuple(dict.fromkeys(map(str, columns or ()))) or named(headers=asked.include_headers)
    for column in names:
        if column not in SQL:
            raise UnknownColumn(column, "", [f"{name} {kind}" for name, kind in SQL.items()])
    query = Query(asked, names)
    selected = query.selected()
    works = query.works(selected, cores=cores_of(session))
    # All of them go to each task, which unpacks its own: a log of a terabyte has 8,000.
    splits = [pickle.dumps((work, selected.times)) for work in works]
    numbers = session.range(0, len(splits), 1, max(1, len(splits)))
    return numbers.mapInArrow(reading(query, splits), ddl(names))


def reading(
    query: Query, splits: Sequence[bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                work, times = pickle.loads(splits[number])
                yield from query.read(work, times)

    return read


def cores_of(session: SparkSession) -> int:
    """As many as Spark's own files are shared out to; 1 for a session of Spark Connect, which cannot say."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except AttributeError:
        return 1


def as_text(value: object) -> str:
    """An option, as Spark's readers hand it over, and JSON of what they take none of."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=str) if isinstance(value, list | tuple | dict) else str(value)
