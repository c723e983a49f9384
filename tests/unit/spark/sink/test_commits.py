"""What is written down of a query, and whether it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

from pyspark.sql.types import StringType, StructField, StructType

from spark.errors import InvalidOption
from spark.sink.commits import TaskCommit
from spark.sink.errors import Disordered
from spark.sink.options import read_sink_options
from spark.sink.pacing import Lateness
from spark.sink.publishing import TaskResult
from spark.sink.report import Counts, decode_reports
from spark.sink.sink import BatchWriter, MeshSink


def committed(*lanes: str) -> TaskCommit:
    return TaskCommit(TaskResult(Counts(sent=10), Lateness(), lanes, 1.0))


def test_a_query_whose_commit_fails_has_one_report_that_is_not_complete(tmp_path: Path) -> None:
    """As Spark does it: commit, and when that raises, abort with the same messages."""
    path = tmp_path / "report"
    writer = BatchWriter(read_sink_options({"report": str(path)}))
    two = [committed("jobs/0"), committed("jobs/0", "jobs/1")]
    with pytest.raises(Disordered, match="jobs/0"):
        writer.commit(two)
    writer.abort(two)
    (report,) = decode_reports(path.read_text().splitlines())
    assert (report.counts.sent, report.failed_tasks, report.complete) == (20, 0, False)


def test_a_query_that_ends_well_has_one_that_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "report"
    BatchWriter(read_sink_options({"report": str(path)})).commit(
        [committed("jobs/0"), committed("jobs/1")]
    )
    (report,) = decode_reports(path.read_text().splitlines())
    assert report.complete


@pytest.mark.parametrize("name", ["nowhere/report", ".", "\0"])
def test_a_report_that_cannot_be_written_is_told_before_anything_is_sent(
    tmp_path: Path, name: str
) -> None:
    """Found: where a directory has that name, when all had been sent, by a stack."""
    schema = StructType([StructField(one, StringType()) for one in ("topic", "value")])
    MeshSink({"report": str(tmp_path / "report")}).writer(schema, overwrite=False)
    with pytest.raises(InvalidOption, match="want a writable file in an existing directory"):
        MeshSink({"report": str(tmp_path / name)}).writer(schema, overwrite=False)
