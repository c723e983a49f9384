"""A streaming query as Spark drives it, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema

from spark.capture.options import read_options
from spark.capture.rows import SQL_TYPES, schema_of
from spark.capture.streaming import StreamReader
from tests.captures import Message, of_rows

BATCHES_MAX = 100


def reader(data: Path, **given: Any) -> StreamReader:
    options = read_options({"path": str(data), **{name: str(one) for name, one in given.items()}})
    return StreamReader(options, from_arrow_schema(schema_of(options, SQL_TYPES)))


class Stream:
    """A query and its checkpoint. `messages`: all that it has read, across restarts."""

    def __init__(self, data: Path, **given: Any) -> None:
        self._data = data
        self.restart(**given)
        self.at = self.reader.initialOffset()
        self.messages: list[Message] = []

    def restart(self, **given: Any) -> None:
        self.reader = reader(self._data, **given)

    def run(self) -> int:
        """Run until nothing is left to read; return how many batches that took."""
        for count in range(BATCHES_MAX):
            if not self.step():
                return count
        raise AssertionError(f"it goes on and on: {self.at}")

    def step(self) -> bool:
        """Read one batch; return False if there is nothing to read."""
        end = self.plan()
        if end == self.at:
            return False
        self.take(end)
        return True

    def plan(self) -> dict[str, Any]:
        """Return where the next batch ends."""
        return self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())

    def take(self, end: dict[str, Any]) -> None:
        for split in self.reader.partitions(self.at, end):
            for batch in self.reader.read(split):
                self.messages += of_rows(batch.to_pylist())
        self.at = end
