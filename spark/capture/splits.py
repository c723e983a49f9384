"""What batch and streaming queries share: from a schema to columns, from a plan to splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..errors import UnknownColumn
from .plan import Times, Work
from .rows import SQL


@dataclass(init=False)
class Split(InputPartition):
    """What one task reads."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times = work, times


def splits(works: Sequence[Work], times: Times) -> list[Split]:
    # Of an empty list Spark would make a partition of its own, which is no Split.
    return [Split(one, times) for one in works or [Work((), {})]]


def columns(schema: StructType) -> tuple[str, ...]:
    """Their names. Raises UnknownColumn."""
    for one in schema.fields:
        if SQL.get(one.name) != one.dataType.simpleString():
            known = [f"{name} {kind}" for name, kind in SQL.items()]
            raise UnknownColumn(one.name, one.dataType.simpleString(), known)
    return tuple(schema.names)
