"""A Python data source that computes nothing: what Spark 4.3 itself takes for rows from any Python source.

Each task reads one batch of a capture, and returns it over and over until it has returned its share of the
rows. What is left is the transfer of the rows: Python's socket, Arrow in the JVM, Spark's rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark.capture.options import read_options
from spark.capture.source import BatchReader

if TYPE_CHECKING:
    import pyarrow as pa

NAME, COUNT = "same-batch", "count"
TASKS = 2


class Share(InputPartition):
    """The share of one task: a partition to read the batch from, and how many rows to return."""

    def __init__(self, first: InputPartition, rows: int) -> None:
        self.first, self.rows = first, rows


class SameBatch(DataSource):
    """The data source. Options: those of `mesh-capture`, and `count`, the number of rows."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        options = {name: value for name, value in self.options.items() if name != COUNT}
        return Reader(BatchReader(read_options(options), schema), int(self.options[COUNT]))


class Reader(DataSourceReader):
    def __init__(self, capture: BatchReader, count: int) -> None:
        self._capture, self._count = capture, count

    def partitions(self) -> list[Share]:
        first = self._capture.partitions()[0]
        return [Share(first, self._count // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        batch, left = next(self._capture.read(partition.first)), partition.rows
        while left:
            some = batch.slice(0, left)
            left -= some.num_rows
            yield some
