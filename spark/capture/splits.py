"""What batch and streaming queries share: from a selection to splits, from a split to rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..errors import UnknownColumn
from .options import QUEUE, Options
from .plan import Selected, Times, Work, pack
from .rows import SQL
from .topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(init=False)
class Split(InputPartition):
    """What one task reads."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times = work, times


class Rows:
    """What both readers share: from options and a schema to splits, and from a split to rows."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options, self.columns = options, _columns(schema)
        self.topics = Topics(options.subscribe, options.subscribe_pattern)
        self.times = Times()

    def splits(self, selected: Selected) -> list[Split]:
        options = self.options
        works = pack(
            selected, split_bytes=options.max_partition_bytes, splits_min=options.min_partitions,
            ordered=options.ordering == QUEUE,
        )  # fmt: skip
        # Of an empty list Spark would make a partition of its own, which is no Split.
        return [Split(one, selected.times) for one in works or [Work((), {})]]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        from .columns import Wanted
        from .reading import read

        options = self.options
        accepts = None if self.topics.all else self.topics
        wanted = Wanted(self.columns, split.times, accepts, options.batch_rows)
        return read(
            split.work, wanted, damaged=options.damaged,
            fail_on_data_loss=options.fail_on_data_loss, keys=options.keys,
        )  # fmt: skip


def _columns(schema: StructType) -> tuple[str, ...]:
    for one in schema.fields:
        if SQL.get(one.name) != one.dataType.simpleString():
            known = [f"{name} {kind}" for name, kind in SQL.items()]
            raise UnknownColumn(one.name, one.dataType.simpleString(), known)
    return tuple(schema.names)
