"""The data source `mesh-capture`: the interface that Spark asks for, on top of the other modules.

load ──> schema: options are checked   driver
plan ──> partitions: the catalog, then splits
task ──> read: one split               executor, which needs the directory and this package
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from .filters import narrow
from .options import Options, check_batch, read_options
from .query import Query
from .rows import ddl, schema_of
from .splits import Split, arrow_schema, read, splits
from .streaming import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "mesh-capture"


class BatchReader(DataSourceReader):
    """Reader for one batch query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_batch(options)
        self._query = Query(options, arrow_schema(schema, options))

    def partitions(self) -> list[Split]:
        selected = self._query.select()
        return splits(self._query.works(selected), selected.times)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._query, partition)


class PushingReader(BatchReader):
    """A BatchReader that accepts filters. While filter pushdown is off, Spark refuses to plan a reader that does."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        query = self._query
        query.times = narrow(filters, query.topics, query.times)
        return filters


class MeshCapture(DataSource):
    """The data source that is registered as `mesh-capture`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ddl(schema_of(read_options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(self.options), schema)


class PushingCapture(MeshCapture):
    """MeshCapture with filter pushdown; `register` says what is wrong with that."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushingReader(read_options(self.options), schema)
