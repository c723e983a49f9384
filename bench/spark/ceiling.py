"""A source in Python that makes nothing: what Spark 4.3 itself takes for rows that come from one.

Each task reads one batch of a capture, and hands that over until it has handed over its share. What
remains is the way of the rows: Python's socket, Arrow in the JVM, rows of Spark's.
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
    """What one task hands over."""

    def __init__(self, first: InputPartition, rows: int) -> None:
        self.first, self.rows = first, rows


class SameBatch(DataSource):
    """Options: those of `mesh-capture`, and `count`, of the rows."""

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
