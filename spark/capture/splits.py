"""What batch and streaming queries share: from a schema to columns, from a selection to splits."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..errors import UnknownColumn
from .plan import Selected, Times, Work
from .query import Query
from .rows import SQL


@dataclass(init=False)
class Split(InputPartition):
    """What one task reads."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times = work, times


def splits(query: Query, selected: Selected) -> list[Split]:
    # Of an empty list Spark would make a partition of its own, which is no Split.
    return [Split(one, selected.times) for one in query.works(selected) or [Work((), {})]]


def columns(schema: StructType) -> tuple[str, ...]:
    """Their names. Raises UnknownColumn."""
    for one in schema.fields:
        if SQL.get(one.name) != one.dataType.simpleString():
            known = [f"{name} {kind}" for name, kind in SQL.items()]
            raise UnknownColumn(one.name, one.dataType.simpleString(), known)
    return tuple(schema.names)
