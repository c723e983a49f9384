"""The data source `mesh-capture`: what Spark asks, answered by everything below.

load ──> schema: options checked    driver
plan ──> partitions: the catalog, then splits
task ──> read: one split             executor, which needs the directory and this package
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

from .catalog import Catalog
from .filters import narrowed
from .options import Options, check_batch, read_options
from .rows import ddl
from .splits import Rows, Split
from .streaming import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "mesh-capture"


class BatchReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_batch(options)
        self._rows = Rows(options, schema)

    def partitions(self) -> list[Split]:
        catalog = Catalog(self._rows.options)
        catalog.look()
        catalog.check()
        selected = catalog.batch()
        times = selected.times.narrowed(self._rows.times)
        return self._rows.splits(selected._replace(times=times))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Split)
        return self._rows.read(partition)


class PushingReader(BatchReader):
    """The same, and takes filters. Spark plans none that does while pushing them down is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._rows.times = narrowed(filters, self._rows.topics, self._rows.times)
        return filters


class MeshCapture(DataSource):
    """Registered as `mesh-capture`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ddl(headers=read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(self.options), schema)


class PushingCapture(MeshCapture):
    """As MeshCapture, where filters are pushed down: see `register` for what is wrong with that."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushingReader(read_options(self.options), schema)
