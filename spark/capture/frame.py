"""A capture as a DataFrame without the data source, which saves making its rows twice.

For a data source in Python, Spark 4.3 makes each row twice: out of Arrow, and in the projection that it puts
on top of a scan by rows. Arrow batches that a function returns become rows only once.

    call ──> splits, each pickled in a partition of its own    here
    task ──> the split in its partition                        executor: no task is sent another one's
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOption, UnknownColumn
from .options import check_batch, read_options
from .plan import Selected, Times, Work
from .query import Query, freeze_modules
from .rows import SQL_TYPES, ddl, schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


def read_capture(
    session: SparkSession, path: str, *, columns: Iterable[str] | None = None, **options: object
) -> DataFrame:
    """Return what `session.read.format("mesh-capture")` with these options reads, in less time.

    How much less, `mesh-bench spark --only "read by"` measures. The frame has what is stored at this call,
    whenever and however often it is used.

    Args:
        path: a broker's directory, on this machine and on the executors.
        columns: names of the columns to be made (see rows.py), once each, in this order; None: all, headers
            with `includeHeaders`.
        options: of the format, such as `streams=["audit"], batchRows=4096`; None: not set.
    Raises:
        CaptureError, DurableError: at once, for anything that would be wrong with a plan.
    """
    given = {name: option_text(value) for name, value in options.items() if value is not None}
    parsed = read_options({"path": str(path), **given})
    check_batch(parsed)
    query = Query(parsed, schema_of(parsed, None if columns is None else column_names(columns)))
    return frame_of(session, query, query.select())


def frame_of(session: SparkSession, query: Query, selected: Selected) -> DataFrame:
    """Return a frame of what was `selected` by this query, or by a similar one for other columns."""
    context = context_of(session)
    # The number of cores for which Spark shares out files, too; Spark Connect cannot tell it.
    works = query.works(selected, cores=1 if context is None else context.defaultParallelism)
    rows = (
        repartitioned(session, works) if context is None else parallelized(session, context, works)
    )
    return rows.mapInArrow(make_reader(query, selected.times), ddl(query.schema))


def column_names(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of columns as a tuple. Raises InvalidOption, UnknownColumn."""
    if isinstance(columns, str):
        raise InvalidOption("columns", columns, f"a list of names, such as [{columns!r}]")
    if isinstance(columns, set | frozenset):
        raise InvalidOption("columns", columns, "a list of names: a set has no order")
    names = tuple(dict.fromkeys(map(str, columns)))
    if not names:
        raise InvalidOption("columns", columns, "at least one name, or None for all columns")
    for column in names:
        if column not in SQL_TYPES:
            raise UnknownColumn(
                column, None, [f"{name} {kind}" for name, kind in SQL_TYPES.items()]
            )
    return names


def make_reader(
    query: Query, times: Times
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that all tasks run. Its rows have one column: a pickled list of Work."""

    def read(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            for works in batch.column(0).to_pylist():
                for work in pickle.loads(works):
                    yield from query.read(work, times)
        freeze_modules()

    return read


def context_of(session: SparkSession) -> SparkContext | None:
    """Return the session's context; None for a session of Spark Connect, which has none."""
    try:
        return session.sparkContext
    except AttributeError:
        return None


def parallelized(session: SparkSession, context: SparkContext, works: Sequence[Work]) -> DataFrame:
    """Return a frame with a partition for each work, which Spark sends only to that partition's task.

    It is made from an RDD as PySpark stores it: pickled lists of one item. `createDataFrame` of an RDD would
    instead have every task unpickle it in a second Python worker.
    """
    from pyspark.sql import DataFrame

    jvm: Any = session._jvm
    pickled = context.parallelize(works, max(1, len(works)))._jrdd.rdd()
    binary = jvm.org.apache.spark.sql.Encoders.BINARY()
    return DataFrame(session._jsparkSession.createDataset(pickled, binary).toDF(), session)


def repartitioned(session: SparkSession, works: Sequence[Work]) -> DataFrame:
    """Return the same frame where there are no RDDs: a shuffle puts each work in its partition."""
    import pyarrow as pa

    numbers = pa.array(range(len(works)), pa.int32())
    pickled = pa.array([pickle.dumps([work]) for work in works], pa.binary())
    frame = session.createDataFrame(pa.table({"number": numbers, "works": pickled}))
    return frame.repartitionById(max(1, len(works)), "number").select("works")


def option_text(value: object) -> str:
    """Return an option as text, like Spark's readers; lists and dicts, which these do not accept, become JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, set | frozenset):  # Its order differs between processes.
        value = sorted(value, key=str)
    return json.dumps(value, default=str) if isinstance(value, list | tuple | dict) else str(value)
