"""One replay, from a directory to a report.

survey: how much, from when to when ──> rehearsal, if it is paced ──> rows ──> report
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from mesh.errors import InvalidName
from mesh.names import TOPIC_BYTES_MAX, check_topic

from ..capture.frame import frame_of
from ..capture.options import Options, read_options
from ..capture.query import Query
from ..capture.rows import SQL_TYPES, schema_of
from ..errors import CaptureError, InvalidOption, said
from ..settings import key_options
from ..sink.messages import REPLAYED_FROM, lane_name
from ..sink.noting import read_progress
from ..sink.options import PAUSES_MAX
from ..sink.pacing import cut_pauses
from ..sink.report import Report, decode_reports
from .errors import ReplayFailed, ReplayInterrupted, TooManyPauses, TopicRefused
from .plan import QUEUES, TOPICS, Destination, ReplayPlan
from .preflight import check_names, checked_options, destination_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEAD_S = 1.0
"""Least time from the start of a paced job to its first message: tasks begin at different times, and all wait for it.
If the rehearsal took longer, it is that time."""
POLL_S = 0.5
SURVEY_COLUMNS = "queue", "partition", "timestamp"
SAMPLE_COLUMNS = "queue", "partition", "offset"
TOPICS_SHOWN = 20
WORKER_GONE = "Python worker exited unexpectedly"
INVALID_TOPIC = (
    r"^$|^\.|\.\.|\.$|"
    r"[\x00-\x20*>\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
)
"""The rules of `mesh.names` for Java: the survey checks every topic with it, and sends none of them to Python."""

Progress = Callable[[int, int], None]
"""Called now and then with the number of messages done, and the total."""


class Survey(NamedTuple):
    """How much is selected."""

    rows: int
    first_us: int
    last_us: int
    lanes: Mapping[tuple[str, int], int]
    """Number of rows by queue and partition."""

    @property
    def queues(self) -> list[str]:
        return sorted({queue for queue, _ in self.lanes})


class ReplayResult(NamedTuple):
    """What was replayed, and the result."""

    id: str
    survey: Survey
    report: Report
    topics: Mapping[str, int]
    """Of a dry run to topics: number of messages by topic, as renamed, of those with most messages."""

    def plain(self) -> dict[str, Any]:
        return {
            "id": self.id, "selected": self.survey.rows, "queues": self.survey.queues,
            "first_us": self.survey.first_us, "last_us": self.survey.last_us,
            **({"topics": dict(self.topics)} if self.topics else {}), **self.report.plain(),
        }  # fmt: skip


def replay(
    session: SparkSession, plan: ReplayPlan, joining: Mapping[str, str], *,
    names: frozenset[str] | None = None, dry_run: bool = False, progress: Progress | None = None,
) -> ReplayResult:  # fmt: skip
    """Replay what a broker has stored.

    Args:
        joining: options of the sink that say how the tasks join the mesh: `mesh.*`, `cluster`. Its keys
            are also used to read the log, if that is encrypted.
        names: the result of `destination_names`; if not given, that is called.
        dry_run: only look at what is selected, and whether there is somebody to send it to.
    Raises:
        ReplayFailed, ReplayInterrupted: it had begun. Anything else is raised before anything was sent.
    """
    plan.check()
    name = plan.id or f"replay-{uuid4().hex[:12]}"
    sink_options = checked_options(plan, joining)
    slots = session.sparkContext.defaultParallelism
    with one_line_errors():
        check_renaming(session, plan.to)
        source = Source(
            session, read_options({**plan.source_options(slots), **key_options(joining)})
        )
        frame, stored_times = selected_rows(source, plan), selected_times(source, plan)
        survey = take_survey(stored_times)
    if names is None:
        names = destination_names(sink_options)
    check_names(plan, survey.queues, names, sink_options.cluster)
    tasks = min(slots, len(survey.lanes))
    shows_topics = dry_run and plan.to.kind == TOPICS
    with one_line_errors():
        topics = (
            busiest_topics(frame if plan.again else not_replayed(frame)) if shows_topics else {}
        )
        found = ReplayResult(name, survey, Report(), topics)
    if dry_run or not survey.rows:
        return found
    with one_line_errors():
        pauses = [] if plan.max_gap_s is None else _pauses(stored_times, plan.max_gap_s)
        if plan.to.kind == QUEUES:
            joining = {**joining, "lanes": json.dumps(source.lanes(survey.lanes))}
        options = {**plan.sink_options(name, 0, tasks), **joining}
        lead_s = max(LEAD_S, rehearse(frame, options)) if plan.speed else 0.0
    for loop in range(plan.loop):
        options = {
            **plan.sink_options(name, loop, tasks), **joining, "originMicros": str(survey.first_us),
            "pauses": json.dumps(pauses), "startMicros": str(time.time_ns() // 1000 + round(lead_s * 1e6)),
        }  # fmt: skip
        report_progress = _loop_progress(progress, loop * survey.rows, plan.loop * survey.rows)
        _write(frame, options, found.report, report_progress)
    return found


def _loop_progress(
    progress: Progress | None, done: int, total: int
) -> Callable[[int], None] | None:
    """Return a callback for one of several loops; `done` messages were sent by those before."""
    return None if progress is None else lambda sent: progress(done + sent, total)


def check_renaming(session: SparkSession, to: Destination) -> None:
    """Check the pattern with Spark itself, before anything is read. Raises InvalidOption."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    if not to.pattern:
        return
    try:
        session.range(1).select(f.regexp_replace(f.lit(""), to.pattern, to.replacement)).collect()
    except PySparkException:
        raise InvalidOption("--to", to.pattern, "a regular expression of Java") from None


class Source:
    """The log as it was when this was made: all its frames have the same rows."""

    def __init__(self, session: SparkSession, options: Options) -> None:
        self._session, self._options = session, options
        self._selected = Query(options, schema_of(options, ())).select()

    def frame(self, columns: Sequence[str]) -> DataFrame:
        query = Query(self._options, schema_of(self._options, columns))
        return frame_of(self._session, query, self._selected)

    def lanes(self, wanted: Collection[tuple[str, int]]) -> dict[str, str]:
        """Return the sink's option `lanes`: which of all queues that ever had a name, and in which store."""
        found = self._selected
        return {
            lane_name(one.queue, one.partition): f"{found.log.digest}/{number}"
            for number, one in found.lanes.items()
            if (one.queue, one.partition) in wanted
        }


def selected_rows(source: Source, plan: ReplayPlan) -> DataFrame:
    """Return the rows, with the topics that they are sent to, and the columns that the sink needs."""
    columns = plan.columns()
    return _rename_topics(_read_selected(source, plan, columns), plan.to).select(*columns)


def selected_times(source: Source, plan: ReplayPlan) -> DataFrame:
    """Return when and in which queue the same rows were stored; if sent to topics, also to which."""
    columns = (*SURVEY_COLUMNS, "topic") if plan.to.kind == TOPICS else SURVEY_COLUMNS
    return _rename_topics(_read_selected(source, plan, columns), plan.to).select(*columns)


def _rename_topics(frame: DataFrame, to: Destination) -> DataFrame:
    from pyspark.sql import functions as f

    if not to.pattern:
        return frame
    return frame.withColumn("topic", f.regexp_replace("topic", to.pattern, to.replacement))


def _read_selected(source: Source, plan: ReplayPlan, columns: Sequence[str]) -> DataFrame:
    """Return the selected rows. Spark reads all columns that a source has, so this one has only the needed ones; all
    of them if there is a condition, which may need any."""
    needed = {*columns, *(SAMPLE_COLUMNS if plan.sample_sql() else ())}
    every = plan.where is not None
    frame = source.frame([one for one in SQL_TYPES if every or one in needed])
    for condition in (plan.where, plan.sample_sql()):
        if condition is not None:
            frame = frame.where(condition)
    return frame


def take_survey(frame: DataFrame) -> Survey:
    """Count the rows. Raises TopicRefused if one would be sent to an invalid topic."""
    from pyspark.sql import functions as f

    wrong = f.lit(None).cast("string")
    if "topic" in frame.columns:
        too_long = f.octet_length("topic") > TOPIC_BYTES_MAX
        wrong = f.when(too_long | f.col("topic").rlike(INVALID_TOPIC), f.col("topic"))
    found = (
        frame.groupBy("queue", "partition")
        .agg(
            f.count("*").alias("rows"),
            f.min(f.unix_micros("timestamp")).alias("low"),
            f.max(f.unix_micros("timestamp")).alias("high"),
            f.min(wrong).alias("wrong"),
        )
        .collect()
    )
    for one in found:
        if one.wrong is not None:
            _check_topic(one.wrong)
    return Survey(
        sum(one.rows for one in found), min((one.low for one in found), default=0),
        max((one.high for one in found), default=0),
        {(one.queue, one.partition): one.rows for one in found},
    )  # fmt: skip


def _check_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except InvalidName as error:
        raise TopicRefused(str(error)) from None


def not_replayed(frame: DataFrame) -> DataFrame:
    """Return the rows that the sink would not skip as replayed already."""
    marked = f"exists(headers, one -> one.key = '{REPLAYED_FROM}')"
    return frame.where(f"headers IS NULL OR NOT {marked}")


def busiest_topics(frame: DataFrame) -> dict[str, int]:
    counted = frame.groupBy("topic").count().orderBy("count", "topic", ascending=[False, True])
    return {one[0]: one[1] for one in counted.limit(TOPICS_SHOWN).collect()}


def _pauses(frame: DataFrame, longest_s: float) -> list[tuple[int, int]]:
    """Return the pauses to cut, of the rows of all queues together. Raises TooManyPauses."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # Slots are as long as the longest pause allowed, so a pause to cut lies between two slots, never inside one.
    longest_us = round(longest_s * 1e6)
    at = f.unix_micros("timestamp")
    slots = (
        frame.groupBy(f.expr(f"unix_micros(timestamp) div {longest_us}").alias("slot"))
        .agg(f.min(at).alias("low"), f.max(at).alias("high"))
        .withColumn("before", f.lag("high").over(Window.orderBy("slot")))
        .withColumn("length", f.col("low") - f.col("before"))
        .where(f.col("length") > longest_us)
    )
    found = slots.select("low", "length").limit(PAUSES_MAX + 1).collect()
    if len(found) > PAUSES_MAX:
        raise TooManyPauses(PAUSES_MAX)
    return cut_pauses([(one.low, one.length) for one in found], longest_us)


def rehearse(frame: DataFrame, options: Mapping[str, str]) -> float:
    """Let every worker load its modules, join the mesh and read its first rows, and return the seconds that took.
    Without this, the first messages of a paced replay would be late by as much."""
    began = time.monotonic()
    writer = frame.write.format("mesh").mode("append").options(**options)
    writer.options(startMicros="1", rehearse="true").save()
    return time.monotonic() - began


def _write(
    frame: DataFrame,
    options: Mapping[str, str],
    report: Report,
    report_progress: Callable[[int], None] | None,
) -> None:
    with tempfile.TemporaryDirectory(prefix="mesh-replay-") as directory:
        report_path, progress_path = Path(directory, "report"), Path(directory, "progress")
        progress_path.mkdir()
        writer = frame.write.format("mesh").mode("append").options(**options)
        try:
            with _reporting_progress(progress_path, report_progress), one_line_errors():
                writer.options(report=str(report_path), progress=str(progress_path)).save()
        except (CaptureError, KeyboardInterrupt) as error:
            before, ended = report.counts.sent, _read_reports(report_path)
            report.add(ended)
            # Unfinished tasks have only noted their counts; finished ones did not note their last messages.
            sent = before + max(ended.counts.sent, read_progress(progress_path).sent)
            if isinstance(error, CaptureError):
                raise ReplayFailed(str(error), report, sent) from None
            raise ReplayInterrupted(report, sent) from None
        report.add(_read_reports(report_path))


def _read_reports(path: Path) -> Report:
    found = Report()
    if path.exists():
        for one in decode_reports(path.read_text().splitlines()):
            found.add(one)
    return found


@contextmanager
def _reporting_progress(
    directory: Path, report_progress: Callable[[int], None] | None
) -> Iterator[None]:
    if report_progress is None:
        yield
        return
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(POLL_S):
            report_progress(read_progress(directory).done)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn Spark's exceptions into one line: our error's text, which they quote between two stacks, or their first."""
    from py4j.protocol import Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except CaptureError:
        raise
    except (Py4JNetworkError, ConnectionError):
        raise CaptureError("Spark's JVM was killed, or ran out of memory") from None
    except (PySparkException, Py4JJavaError) as error:  # The latter: a cancelled job, and others.
        text = str(error)
        lines = [one.strip() for one in text.splitlines() if one.strip()]
        first = lines[0] if isinstance(error, PySparkException) else lines[1].removeprefix(": ")
        if WORKER_GONE in first:
            first = "a worker process of Spark was killed, or ran out of memory"
        raise CaptureError(said(error) or first.partition(" SQLSTATE")[0]) from error
