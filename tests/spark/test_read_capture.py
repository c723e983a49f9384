"""`spark.read_capture`: what the format reads, by a function."""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import pyarrow as pa
from pyspark.sql.types import LongType, StructType

from spark import read_capture
from spark.capture.frame import make_reader
from spark.capture.options import read_options
from spark.capture.query import Query
from spark.capture.rows import schema_of
from spark.capture.source import MeshCapture
from spark.errors import CaptureError
from tests.captures import Captured
from tests.spark.frames import load, messages, one_line_with
from tests.stores import flip

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.usefixtures("filled")


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_it_is_what_the_format_reads(session: SparkSession, captured: Captured, zone: str) -> None:
    options: dict[str, Any] = {"includeHeaders": True, "maxPartitionBytes": "8k", "batchRows": 5}
    session.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = read_capture(session, str(captured.data), **options)
        assert frame.rdd.getNumPartitions() > 2
        assert frame.dtypes == load(session, captured.data, **options).dtypes
        assert Counter(messages(frame)) == Counter(captured.messages)
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("damaged", ["fail", "skip", "keep"])
def test_only_what_is_damaged_can_be_null(
    session: SparkSession, captured: Captured, damaged: str
) -> None:
    """Spark asks each row of each column that can be."""
    flip(captured.path / "msgs.0000000001", 2000)
    options: dict[str, Any] = {"includeHeaders": True, "damaged": damaged}
    frame = read_capture(session, str(captured.data), **options)
    for one in (frame, load(session, captured.data, **options)):
        assert {column.nullable for column in one.schema} == {damaged == "keep"}
    if damaged != "fail":
        assert frame.where("offset IS NULL").count() == (damaged == "keep")


def tasks_of_a_frame(data: Path) -> Iterator[pa.RecordBatch]:
    options = read_options({"path": str(data)})
    query = Query(options, schema_of(options, ["offset"]))
    found = query.select()
    works = pa.array([pickle.dumps([work]) for work in query.works(found)], pa.binary())
    return make_reader(query, found.times)(iter([pa.record_batch([works], ["works"])]))


def tasks_of_the_format(data: Path) -> Iterator[pa.RecordBatch]:
    schema = StructType().add("offset", LongType(), nullable=False)
    reader = MeshCapture({"path": str(data)}).reader(schema)
    return (batch for split in reader.partitions() for batch in reader.read(split))


@pytest.mark.parametrize("tasks", [tasks_of_a_frame, tasks_of_the_format])
def test_a_worker_spares_its_modules_once_all_are_loaded(
    captured: Captured, monkeypatch: pytest.MonkeyPatch,
    tasks: Callable[[Path], Iterator[pa.RecordBatch]],
) -> None:  # fmt: skip
    """What is garbage later is collected."""
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(frozen))
    for _ in range(2):
        assert sum(batch.num_rows for batch in tasks(captured.data)) == len(captured.messages)
        assert frozen == [True]


def test_a_task_is_sent_no_split_but_its_own(
    session: SparkSession, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What all are sent was as large as the plan, so that a large log's tasks cost its square."""
    from pyspark import cloudpickle

    sent: list[tuple[DataFrame, Any]] = []
    pickled: Any = cloudpickle.dumps
    kind = type(session.range(1))
    made = kind.mapInArrow

    def observed(self: DataFrame, function: Any, schema: str) -> DataFrame:
        sent.append((self, function))
        return made(self, function, schema)

    monkeypatch.setattr(kind, "mapInArrow", observed)
    for size in ("1g", "4k"):
        read_capture(session, str(captured.data), maxPartitionBytes=size, streams="audit")
    (_, of_one), (rows, of_many) = sent
    parts = rows.rdd.map(lambda row: len(pickle.loads(row[0]))).glom().collect()
    assert len(parts) > 2
    assert parts == [[1]] * len(parts)
    # The options are in it, so the size of a partition as a number.
    assert abs(len(pickled(of_many)) - len(pickled(of_one))) < 16


def test_a_session_without_rdds_reads_the_same(session: SparkSession, captured: Captured) -> None:
    """As one of Spark Connect."""
    without: Any = SimpleNamespace(createDataFrame=session.createDataFrame)
    frame = read_capture(without, str(captured.data), includeHeaders=True, maxPartitionBytes="8k")
    alike = read_capture(session, str(captured.data), maxPartitionBytes="8k")
    assert frame.rdd.getNumPartitions() == alike.rdd.getNumPartitions() > 2
    assert 0 not in frame.rdd.glom().map(len).collect()
    assert Counter(messages(frame)) == Counter(captured.messages)
    assert read_capture(without, str(captured.data), subscribe="nobody.>").count() == 0


def test_columns_that_are_not_asked_for_are_not_made(
    session: SparkSession, captured: Captured
) -> None:
    frame = read_capture(
        session, str(captured.data), columns=["value", "offset", "value"], queues="jobs"
    )
    assert frame.columns == ["value", "offset"]
    found = [(row.offset, bytes(row.value)) for row in frame.orderBy("offset").collect()]
    assert found == [(one.offset, one.value) for one in captured.messages if one.queue == "jobs"]


def test_a_small_log_is_read_by_all_cores(
    session: SparkSession, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_capture(session, str(captured.data)).rdd.getNumPartitions() == 1
    monkeypatch.setattr("spark.capture.plan.SPLIT_BYTES_MIN", 1)
    frame = read_capture(session, str(captured.data), includeHeaders=True)
    assert frame.rdd.getNumPartitions() >= session.sparkContext.defaultParallelism
    assert Counter(messages(frame)) == Counter(captured.messages)


def test_parts_of_one_frame_do_not_mix(session: SparkSession, captured: Captured) -> None:
    frame = read_capture(session, str(captured.data))
    halves = [frame.where(f"topic = 'orders.{half}'") for half in ("eu", "us")]
    assert halves[0].union(halves[1]).count() == len(captured.messages)


def test_it_is_what_was_stored_then(session: SparkSession, captured: Captured) -> None:
    frame, before = read_capture(session, str(captured.data)), len(captured.messages)
    captured.publish([1], [b"later"])
    assert [frame.count(), frame.count()] == [before, before]
    assert read_capture(session, str(captured.data)).count() == before + 1


def test_one_task_reads_a_whole_queue_in_order(session: SparkSession, captured: Captured) -> None:
    options: dict[str, Any] = {"ordering": "queue", "minPartitions": 2, "maxPartitionBytes": "4k"}
    frame = read_capture(session, str(captured.data), columns=("queue", "offset"), **options)
    parts = frame.rdd.glom().collect()
    queues = [{row.queue for row in part} for part in parts]
    assert queues in ([{"audit"}, {"jobs"}], [{"jobs"}, {"audit"}])
    assert [[row.offset for row in part] for part in parts] == [list(range(80))] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": None, "vhost": None, "columns": None, "batchRows": None},
        {"streams": ["audit"], "queues": ("jobs",)},
        {"streams": {"audit"}, "queues": frozenset({"jobs"})},
        {"startingOffsets": {"jobs": {0: 0}}},
    ],
)
def test_options_are_values_of_python(
    session: SparkSession, captured: Captured, options: dict[str, Any]
) -> None:
    assert read_capture(session, str(captured.data), **options).count() == len(captured.messages)


def test_times_are_of_one_kind_in_every_session(session: SparkSession, captured: Captured) -> None:
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frames = read_capture(session, str(captured.data)), load(session, captured.data)
        kinds = [dict(frame.dtypes)["timestamp"] for frame in frames]
        assert kinds == ["timestamp", "timestamp"]
        assert Counter(messages(frames[0])) == Counter(messages(frames[1]))
    finally:
        session.conf.unset("spark.sql.timestampType")


def test_nothing_selected_is_an_empty_frame(session: SparkSession, captured: Captured) -> None:
    assert read_capture(session, str(captured.data), subscribe="nobody.>").count() == 0
    assert read_capture(session, str(captured.data), endingTimestamp=0).count() == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startOffsets": "earliest"}, "no option 'startOffsets': did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "option startingOffsets is 'latest': want earliest or JSON"),
        ({"queues": "job"}, "no queue 'job' has messages in this log: did you mean 'jobs'?"),
        ({"columns": ["key"]}, "mesh-capture has no column 'key': it has queue string"),
        ({"columns": "topic"}, "option columns is 'topic': want a list of names, such as ['topic']"),
        ({"columns": []}, "option columns is []: want at least one name, or None for all columns"),
        ({"columns": {"topic"}}, "option columns is {'topic'}: want a list of names: a set has no"),
        ({"columns": [["key"]]}, "mesh-capture has no column \"['key']\": it has queue string"),
        ({"PATH": "elsewhere"}, "path and PATH: these are the same option: give it once"),
        ({"maxOffsetsPerTrigger": 5}, "maxOffsetsPerTrigger and read: only for streaming"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said_by_the_call(
    session: SparkSession, captured: Captured, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(CaptureError) as caught:
        read_capture(session, str(captured.data), **options)
    assert str(caught.value).startswith(text)


def test_what_is_gone_since_the_call_fails_the_query_or_is_left_out(
    session: SparkSession, captured: Captured
) -> None:
    frame = read_capture(session, str(captured.data))
    left = read_capture(session, str(captured.data), failOnDataLoss=False)
    (captured.path / "msgs.0000000002").unlink()
    with one_line_with("msgs.0000000002", "failOnDataLoss=false"):
        frame.count()
    assert 0 < left.count() < len(captured.messages)
