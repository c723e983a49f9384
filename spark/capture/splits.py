"""Shared by batch and streaming queries: converts schemas to columns, plans to splits, and splits to rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..errors import ContradictoryOptions, UnknownColumn
from .options import KEEP, Options
from .plan import Times, Work
from .query import Query, freeze_modules
from .rows import ARROW_TYPES, SQL_TYPES


@dataclass(init=False)
class Split(InputPartition):
    """The part of a plan that one task reads."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times = work, times


def splits(works: Sequence[Work], times: Times) -> list[Split]:
    # For an empty list Spark would make a partition of its own, which is not a Split.
    return [Split(one, times) for one in works or [Work((), {})]]


def read(query: Query, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task."""
    assert isinstance(partition, Split)
    yield from query.read(partition.work, partition.times)
    freeze_modules()


def arrow_schema(schema: StructType, options: Options) -> pa.Schema:
    """Convert the schema to Arrow. Nullability is kept, because Spark expects exactly the schema that it was given.

    Raises:
        UnknownColumn.
        ContradictoryOptions: a column is in it twice; or one is declared NOT NULL although damage is to be
            kept, in rows with nulls.
    """
    names = schema.names
    for one in schema.fields:
        if names.count(one.name) > 1:
            raise ContradictoryOptions(("schema",), f"column {one.name} appears twice")
        if SQL_TYPES.get(one.name) != one.dataType.simpleString():
            known = [f"{name} {kind}" for name, kind in SQL_TYPES.items()]
            raise UnknownColumn(one.name, one.dataType.simpleString(), known)
        if not one.nullable and options.damaged == KEEP:
            why = f"{one.name} is NOT NULL, but null in rows of damaged data"
            raise ContradictoryOptions(("schema", "damaged"), why)
    return pa.schema(
        [pa.field(one.name, ARROW_TYPES[one.name], one.nullable) for one in schema.fields]
    )
