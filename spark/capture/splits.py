"""What batch and streaming queries share: from a schema to columns, from a plan to splits, to rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..errors import ContradictoryOptions, UnknownColumn
from .options import KEEP, Options
from .plan import Times, Work
from .query import Query, spare_modules
from .rows import ARROW, SQL


@dataclass(init=False)
class Split(InputPartition):
    """What one task reads."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times = work, times


def splits(works: Sequence[Work], times: Times) -> list[Split]:
    # Of an empty list Spark would make a partition of its own, which is no Split.
    return [Split(one, times) for one in works or [Work((), {})]]


def read(query: Query, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What a task does."""
    assert isinstance(partition, Split)
    yield from query.read(partition.work, partition.times)
    spare_modules()


def checked(schema: StructType, options: Options) -> pa.Schema:
    """The same for Arrow, null where `schema` says so: Spark wants to get that to the letter.

    Raises:
        UnknownColumn.
        ContradictoryOptions: a column stands in it twice, or what is damaged is to be kept and one is
            declared never null.
    """
    names = schema.names
    for one in schema.fields:
        if names.count(one.name) > 1:
            raise ContradictoryOptions(("schema",), f"column {one.name} stands in it twice")
        if SQL.get(one.name) != one.dataType.simpleString():
            known = [f"{name} {kind}" for name, kind in SQL.items()]
            raise UnknownColumn(one.name, one.dataType.simpleString(), known)
        if not one.nullable and options.damaged == KEEP:
            why = f"{one.name} is NOT NULL, and null in a row of what is damaged"
            raise ContradictoryOptions(("schema", "damaged"), why)
    return pa.schema([pa.field(one.name, ARROW[one.name], one.nullable) for one in schema.fields])
