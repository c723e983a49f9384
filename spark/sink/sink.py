"""The data sink `mesh`: the writer that Spark asks for, and batch queries.

save ──> writer: options and columns are checked   driver
task ──> write: its rows are sent                  worker, see publishing.py
commit, abort: results of all tasks become a report
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

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
from .columns import check_columns
from .commits import TaskCommit, check_lanes, collect, task_context, write_report
from .options import SinkOptions, read_sink_options
from .streaming import StreamWriter, check_streaming

if TYPE_CHECKING:
    import pyarrow as pa


NAME = "mesh"


class BatchWriter(DataSourceArrowWriter):
    """Writer for one batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        from .publishing import Identity, publish

        partition = task_context().partitionId()
        identity = Identity(f"{self._options.id}/{partition}", 0, partition)
        return TaskCommit(publish(iterator, self._options, identity))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        check_lanes(messages)  # If this raises, Spark calls abort, which writes the report.
        write_report(collect(messages), self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        write_report(collect(messages, aborted=True), self._options)


class MeshSink(DataSource):
    """The data sink that is registered as `mesh`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = self._read_options(schema, overwrite)
        # By default each query has an id of its own: its tasks can be retried, the query itself cannot.
        return BatchWriter(replace(options, id=options.id or uuid4().hex))

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter | DataSourceStreamArrowWriter:
        options = self._read_options(schema, overwrite)
        check_streaming(options)
        return StreamWriter(options)

    def _read_options(self, schema: StructType, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise InvalidOption(
                "mode", "overwrite", "append: messages that were sent cannot be taken back"
            )
        options = read_sink_options(self.options)
        check_columns({one.name: one.dataType.simpleString() for one in schema.fields}, options)
        if options.report:
            _check_report(options.report)
        return options


def _check_report(path: str) -> None:
    """Raises InvalidOption if the report cannot be written: checked before anything is sent."""
    try:
        Path(path).open("a").close()
    except (OSError, ValueError):
        allowed = "a writable file in an existing directory"
        raise InvalidOption("report", path, allowed) from None
