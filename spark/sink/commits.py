"""The results of tasks: checked, added up, and written to the report."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from .errors import Disordered
from .options import SinkOptions
from .report import Counts, Report, encode_report

if TYPE_CHECKING:
    from .publishing import TaskResult

logger = logging.getLogger("spark.sink")


@dataclass
class TaskCommit(WriterCommitMessage):
    """The result of one task, as Spark carries it to the driver."""

    result: TaskResult


def task_context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None, "this runs in a task"
    return found


def collect(
    messages: Sequence[WriterCommitMessage | None], batch: int | None = None, *,
    aborted: bool = False,
) -> Report:  # fmt: skip
    """Add up the results of the tasks; None stands for a task that failed."""
    report = Report(batch=batch, aborted=aborted)
    for one in messages:
        report.tasks += 1
        if not isinstance(one, TaskCommit):
            report.failed_tasks += 1
            continue
        report.counts.add(one.result.counts)
        report.lateness.merge(one.result.lateness)
        report.seconds = max(report.seconds, one.result.seconds)
    return report


def check_lanes(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raises Disordered if two tasks had rows of the same queue and partition."""
    seen: set[str] = set()
    for one in messages:
        for lane in one.result.lanes if isinstance(one, TaskCommit) else ():
            if lane in seen:
                raise Disordered(lane, "two tasks had rows of this queue")
            seen.add(lane)


def write_report(report: Report, options: SinkOptions) -> None:
    counts: Counts = report.counts
    summary = ", ".join(f"{name} {value}" for name, value in report.plain().items())
    level = logging.WARNING if counts.dropped or not report.complete else logging.INFO
    logger.log(level, "%s", summary)
    if options.report:
        with Path(options.report).open("a") as file:
            file.write(encode_report(report) + "\n")
