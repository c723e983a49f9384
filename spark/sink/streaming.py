"""The sink `mesh` for streaming queries.

A batch that was unfinished when a query ended runs again with the same number, and with the same rows in the
same partitions. The rows get the same sequences, so the broker stores only those that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ..errors import ContradictoryOptions
from .commits import TaskCommit, collect, task_context, write_report
from .numbering import BATCH_SHIFT
from .options import OFFSETS, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of a task. Spark sets them without documenting them; tests/spark checks that it does."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer for one streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        from .publishing import Identity, publish

        task = task_context()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        assert query is not None, "Spark says which query this is"
        assert batch is not None, "Spark says which batch this is"
        partition = task.partitionId()
        name = f"{self._options.id or query}/{partition}"
        return TaskCommit(
            publish(iterator, self._options, Identity(name, int(batch) << BATCH_SHIFT, partition))
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        write_report(collect(messages, batchId), self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        write_report(collect(messages, batchId, aborted=True), self._options)


def check_streaming(options: SinkOptions) -> None:
    """Raises ContradictoryOptions if an option does not work in a streaming query."""
    if options.numbering == OFFSETS:
        raise ContradictoryOptions(
            ("numbering", "writeStream"), "a streaming query always numbers rows by batch"
        )
    if options.speed:
        raise ContradictoryOptions(
            ("speed", "writeStream"), "a streaming query has no pace of its own"
        )
