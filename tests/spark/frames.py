"""Reading captures with Spark, and streaming queries that tests run step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.errors import said
from tests.captures import Message, of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_S_MAX = 120
LATE = "Python worker failed to connect back"


def load(session: SparkSession, data: Path, **options: Any) -> DataFrame:
    """Return a frame over the capture in `data`; the option `columns` names its columns."""
    columns = options.pop("columns", None)
    reader = session.read.format("mesh-capture").options(**options)
    return (reader.schema(columns) if columns else reader).load(str(data))


def messages(frame: DataFrame) -> list[Message]:
    return of_rows(row.asDict(recursive=True) for row in frame.collect())


@contextmanager
def one_line_with(*texts: str) -> Iterator[None]:
    """Expect an error of Spark's, with one of our errors in it whose single line contains these texts."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        yield
    line = said(caught.value)
    assert line is not None, caught.value
    for text in texts:
        assert text in line, line
    assert "\n" not in line


class Query:
    """A streaming query into Parquet with a checkpoint; each `run` reads to the end and stops."""

    def __init__(self, session: SparkSession, data: Path, home: Path, **options: Any) -> None:
        self._session, self._data, self._home = session, data, home
        self.options = {"startingOffsets": "earliest", **options}

    def run(self) -> int:
        """Read all there is; return the count of micro-batches with rows. Raises what the query raised.

        It is tried up to three times when Spark did not wait long enough for the source's process to start: ten
        seconds, which a busy machine may exceed.
        """
        from pyspark.errors import StreamingQueryException

        for _ in range(2):
            try:
                return self._run()
            except StreamingQueryException as error:
                if LATE not in str(error):
                    raise
        return self._run()

    def _run(self) -> int:
        frame = (
            self._session.readStream.format("mesh-capture")
            .options(**self.options)
            .load(str(self._data))
        )
        writer = frame.writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._home / "checkpoint")).start(
            str(self._home / "out")
        )
        assert query.awaitTermination(QUERY_S_MAX), "it ends by itself"
        return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)

    @property
    def messages(self) -> list[Message]:
        """All messages that it has written so far."""
        return messages(self._session.read.parquet(str(self._home / "out")))
