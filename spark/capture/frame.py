"""A capture as a DataFrame without the data source: its rows are made once on their way.

Of a source in Python, Spark 4.3 makes each row twice: out of Arrow, and in the projection that it puts
over a scan by rows. What a function gives as Arrow becomes rows once.

    call ──> splits, each pickled in a partition of its own    here
    task ──> the one in its partition                          executor: no task is sent another's
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOption, UnknownColumn
from .options import check_batch, read_options
from .plan import Selected, Times, Work
from .query import Query, spare_modules
from .rows import SQL, ddl, schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


def read_capture(
    session: SparkSession, path: str, *, columns: Iterable[str] | None = None, **options: object
) -> DataFrame:
    """What `session.read.format("mesh-capture")` with these options reads, in less time.

    How much less, `mesh-bench spark --only "read by"` says. It is what is stored now, whenever the frame
    is used, and however often.

    Args:
        path: a broker's directory, here and on the executors.
        columns: names of those to be made (see rows.py), once each, in this order; None: all, headers with
            `includeHeaders`.
        options: of the format, as `streams=["audit"], batchRows=4096`; None: not set.
    Raises:
        CaptureError, DurableError: at once, whatever would be wrong with a plan.
    """
    given = {name: as_text(value) for name, value in options.items() if value is not None}
    asked = read_options({"path": str(path), **given})
    check_batch(asked)
    query = Query(asked, schema_of(asked, None if columns is None else chosen(columns)))
    return frame_of(session, query, query.selected())


def frame_of(session: SparkSession, query: Query, selected: Selected) -> DataFrame:
    """What has been `selected` by this query, or by one like it for other columns."""
    context = context_of(session)
    # As many cores as Spark's own files are shared out to; Spark Connect cannot say.
    works = query.works(selected, cores=1 if context is None else context.defaultParallelism)
    rows = sent(session, works) if context is None else parallelized(session, context, works)
    return rows.mapInArrow(reading(query, selected.times), ddl(query.schema))


def chosen(columns: Iterable[str]) -> tuple[str, ...]:
    """Raises InvalidOption, UnknownColumn."""
    if isinstance(columns, str):
        raise InvalidOption("columns", columns, f"a list of names, as [{columns!r}]")
    if isinstance(columns, set | frozenset):
        raise InvalidOption("columns", columns, "a list of names: a set has no order")
    names = tuple(dict.fromkeys(map(str, columns)))
    if not names:
        raise InvalidOption("columns", columns, "one name at least, or None, which is all of them")
    for column in names:
        if column not in SQL:
            raise UnknownColumn(column, None, [f"{name} {kind}" for name, kind in SQL.items()])
    return names


def reading(
    query: Query, times: Times
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What all tasks have in common: their rows have one column, a list of Work, pickled."""

    def read(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            for works in batch.column(0).to_pylist():
                for work in pickle.loads(works):
                    yield from query.read(work, times)
        spare_modules()

    return read


def context_of(session: SparkSession) -> SparkContext | None:
    """None of a session of Spark Connect, which has none."""
    try:
        return session.sparkContext
    except AttributeError:
        return None


def parallelized(session: SparkSession, context: SparkContext, works: Sequence[Work]) -> DataFrame:
    """A partition for each, which Spark sends with its task alone.

    Of an RDD as PySpark keeps it, lists of one, pickled: `createDataFrame` of one has every task unpickle
    it in a second worker in Python.
    """
    from pyspark.sql import DataFrame

    jvm: Any = session._jvm
    pickled = context.parallelize(works, max(1, len(works)))._jrdd.rdd()
    binary = jvm.org.apache.spark.sql.Encoders.BINARY()
    return DataFrame(session._jsparkSession.createDataset(pickled, binary).toDF(), session)


def sent(session: SparkSession, works: Sequence[Work]) -> DataFrame:
    """The same where there are no RDDs: a shuffle puts each in its partition."""
    import pyarrow as pa

    numbers = pa.array(range(len(works)), pa.int32())
    pickled = pa.array([pickle.dumps([work]) for work in works], pa.binary())
    frame = session.createDataFrame(pa.table({"number": numbers, "works": pickled}))
    return frame.repartitionById(max(1, len(works)), "number").select("works")


def as_text(value: object) -> str:
    """An option, as Spark's readers hand it over, and JSON of what they take none of."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, set | frozenset):  # It would be another text in every process.
        value = sorted(value, key=str)
    return json.dumps(value, default=str) if isinstance(value, list | tuple | dict) else str(value)
