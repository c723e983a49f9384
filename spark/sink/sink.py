"""The data sink `mesh`: what Spark asks of a writer, batch queries.

save ──> writer: options and columns checked   driver
task ──> write: its rows are sent              worker, see publishing.py
commit, abort: what all tasks tell, as a report
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ..errors import InvalidOption
from .errors import Disordered
from .messages import check_columns
from .options import SinkOptions, read_sink_options
from .report import Counts, Report, encode_report

if TYPE_CHECKING:
    import pyarrow as pa

    from .publishing import Sent

logger = logging.getLogger("spark.sink")
NAME = "mesh"


@dataclass
class Told(WriterCommitMessage):
    """What one task tells."""

    sent: Sent


class BatchWriter(DataSourceArrowWriter):
    """One batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Told:
        from .publishing import Identity, publish

        partition = task_context().partitionId()
        identity = Identity(f"{self._options.id}/{partition}", 0, partition)
        return Told(publish(iterator, self._options, identity))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        write_report(collect(messages), self._options)
        check_lanes(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        write_report(collect(messages), self._options)


class MeshSink(DataSource):
    """Registered as `mesh`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = self._checked(schema, overwrite)
        # By default every query is one of its own: its tasks may be tried again, it may not.
        return BatchWriter(replace(options, id=options.id or uuid4().hex))

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter | DataSourceStreamArrowWriter:
        from .streaming import StreamWriter, check_streaming

        options = self._checked(schema, overwrite)
        check_streaming(options)
        return StreamWriter(options)

    def _checked(self, schema: StructType, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise InvalidOption("mode", "overwrite", "append: what was sent cannot be taken back")
        options = read_sink_options(self.options)
        check_columns(schema.names, options)
        return options


def task_context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None, "this runs in a task"
    return found


def collect(messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> Report:
    """What the tasks told; None: of a task that failed."""
    report = Report(batch=batch)
    for one in messages:
        report.tasks += 1
        if not isinstance(one, Told):
            report.failed_tasks += 1
            continue
        report.counts.add(one.sent.counts)
        report.lateness.merge(one.sent.lateness)
        report.seconds = max(report.seconds, one.sent.seconds)
    return report


def check_lanes(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raises Disordered: of one queue two tasks had rows."""
    seen: set[str] = set()
    for one in messages:
        for lane in one.sent.lanes if isinstance(one, Told) else ():
            if lane in seen:
                raise Disordered(lane, "two tasks had rows of it")
            seen.add(lane)


def write_report(report: Report, options: SinkOptions) -> None:
    counts: Counts = report.counts
    told = ", ".join(f"{name} {value}" for name, value in report.plain().items())
    level = logging.WARNING if counts.dropped or not report.complete else logging.INFO
    logger.log(level, "%s", told)
    if options.report:
        with Path(options.report).open("a") as file:
            file.write(encode_report(report) + "\n")
