"""Pipelines against the same thing computed by hand; as a stream, they give what the table gives."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Pipeline = Callable[[DataFrame], DataFrame]

START_US = 1_767_225_600_000_000
SCHEMA = (
    "topic string, value binary, timestamp timestamp, published timestamp, publisher binary, "
    "epoch bigint, sequence bigint"
)
TOPICS = ("orders.eu", "orders.us", "stock")
PUBLISHERS = (b"A" * 16, b"B" * 16)
SECONDS, LOST, TWICE, SILENT = 60, range(500, 520), range(700, 705), range(40, 43)
MESSAGES = 6000


class Traffic:
    """A minute of it: sequences lost and repeated, and one topic that is silent for a while."""

    def __init__(self) -> None:
        random = Random(7)
        self.rows: list[dict[str, Any]] = []
        sequences: Counter[tuple[bytes, str]] = Counter()
        for number in range(MESSAGES):
            at_us = number * SECONDS * 1_000_000 // MESSAGES
            topic, publisher = random.choice(TOPICS), random.choice(PUBLISHERS)
            sequence = sequences[publisher, topic]
            sequences[publisher, topic] += 1
            silent = topic == "stock" and at_us // 1_000_000 in SILENT
            if sequence in LOST or silent:
                continue
            row = {
                "topic": topic, "value": bytes(random.randrange(200)), "at_us": at_us,
                "took_us": int(random.lognormvariate(6, 2)), "publisher": publisher, "epoch": 1,
                "sequence": sequence,
            }  # fmt: skip
            self.rows += [row] * (2 if sequence in TWICE else 1)

    def table(self, session: SparkSession) -> DataFrame:
        from pyspark.sql import functions as f

        columns = "topic string, value binary, at_us bigint, took_us bigint, publisher binary, epoch bigint, sequence bigint"
        at = f.col("at_us") + START_US
        return session.createDataFrame(self.rows, columns).select(
            "topic", "value", f.timestamp_micros(at).alias("timestamp"),
            f.timestamp_micros(at - f.col("took_us")).alias("published"), "publisher", "epoch",
            "sequence",
        )  # fmt: skip


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture(scope="module")
def files(session: SparkSession, traffic: Traffic, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("traffic") / "rows")
    traffic.table(session).coalesce(1).write.parquet(path)
    return path


@pytest.fixture
def table(session: SparkSession, files: str) -> DataFrame:
    return session.read.parquet(files)


def second(row: Any) -> int:
    moment: datetime = row["start"]
    return round((moment - datetime(2026, 1, 1)) / timedelta(seconds=1))


def test_rates_and_bytes_per_topic(table: DataFrame, traffic: Traffic) -> None:
    from spark import pipelines

    expected: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in traffic.rows:
        entry = expected[row["at_us"] // 10_000_000 * 10, row["topic"]]
        entry[0] += 1
        entry[1] += len(row["value"])
    found = pipelines.rates(table, every_s=10).collect()
    assert {(second(r), r["topic"]): [r["messages"], r["bytes"]] for r in found} == expected
    assert all(r["messages_per_s"] == r["messages"] / 10 for r in found)


def test_latency_percentiles_are_within_one_percent_of_the_exact_ones(
    table: DataFrame, traffic: Traffic
) -> None:
    from spark import pipelines

    shares = {"p50_us": 50, "p90_us": 90, "p99_us": 99}
    by_topic = defaultdict(list)
    for row in traffic.rows:
        by_topic[row["topic"]].append(row["took_us"])
    found = {r["topic"]: r for r in pipelines.latency(table, every_s=60).collect()}
    assert set(found) == set(by_topic)
    for topic, took in by_topic.items():
        took.sort()
        told = found[topic]
        assert (told["min_us"], told["max_us"], told["messages"]) == (took[0], took[-1], len(took))
        for name, share in shares.items():
            exact = took[-(-len(took) * share // 100) - 1]
            assert exact <= told[name] <= exact * 1.01 + 1
        assert sum(bucket["count"] for bucket in told["histogram"]) == len(took)


def test_a_clock_that_is_ahead_is_counted_and_is_no_negative_time(table: DataFrame) -> None:
    from pyspark.sql import functions as f

    from spark import pipelines

    row = pipelines.latency(table, by=(), took_us=f.lit(-5)).collect()[0]
    assert row["negative"] == row["messages"] == table.count()
    assert (row["min_us"], row["p50_us"]) == (-5, -5)


def test_times_that_are_not_known_do_not_count(table: DataFrame) -> None:
    """Found: each was 0 us, so that the median was less than the least."""
    from pyspark.sql import functions as f

    from spark import pipelines

    took_us = f.when(f.col("topic") == "stock", 1000)
    known = table.where("topic = 'stock'").count()
    (row,) = pipelines.latency(table, by=(), took_us=took_us).collect()
    assert (row["messages"], row["min_us"], row["p50_us"]) == (known, 1000, 1000)
    assert [one["count"] for one in row["histogram"]] == [known]


@pytest.mark.parametrize("low_us", [2**38 + 5, 2**38 * 3 // 2, 2**39 + 12_345, 2**62, 2**63 - 2001])
def test_long_times_are_one_percent_exact_too(session: SparkSession, low_us: int) -> None:
    """Found: from three days on a percentile was below the exact one, and each value had a bucket."""
    from pyspark.sql import functions as f

    from spark import pipelines

    took_us = f.col("id") + low_us
    rows = session.range(2000).withColumn("timestamp", f.timestamp_micros(f.lit(START_US)))
    (row,) = pipelines.latency(rows, by=(), took_us=took_us).collect()
    for name, share in (("p50_us", 50), ("p99_us", 99)):
        exact = low_us + 2000 * share // 100 - 1
        assert exact <= row[name] <= exact * 1.01
    assert row["max_us"] == low_us + 1999
    assert len(row["histogram"]) <= 2


def test_gaps_and_duplicates_per_publisher(table: DataFrame, traffic: Traffic) -> None:
    from spark import pipelines

    expected: dict[tuple[bytes, str], list[int]] = defaultdict(list)
    for row in traffic.rows:
        expected[row["publisher"], row["topic"]].append(row["sequence"])
    found = pipelines.sequences(table).collect()
    assert len(found) == len(expected) == len(TOPICS) * len(PUBLISHERS)
    for told in found:
        numbers = expected[bytes(told["publisher"]), told["topic"]]
        assert (told["first"], told["last"]) == (min(numbers), max(numbers))
        assert told["missing"] == max(numbers) - min(numbers) + 1 - len(set(numbers))
        assert told["duplicates"] == len(numbers) - len(set(numbers))
    assert min(row["missing"] for row in found) == len(LOST)
    assert max(row["duplicates"] for row in found) == len(TWICE)


def test_damaged_rows_that_were_kept_are_no_duplicates(session: SparkSession) -> None:
    """Found: of a publisher that is NULL, one each."""
    from spark import pipelines

    rows = [
        (b"p", 1, "a", 5),
        (None, None, None, None),
        (None, None, None, None),
        (b"p", 1, "a", 8),
    ]
    columns = "publisher binary, epoch bigint, topic string, sequence bigint"
    (told,) = pipelines.sequences(session.createDataFrame(rows, columns)).collect()
    assert (told["messages"], told["missing"], told["duplicates"]) == (2, 2, 0)


def test_sessions_end_with_silence(table: DataFrame) -> None:
    from spark import pipelines

    found = pipelines.sessions(table.where("topic = 'stock'"), idle_s=2, by=("topic",)).collect()
    first, last = sorted(found, key=second)
    assert (first["end"].second, last["start"].second) == (39, 43)
    assert first["topics"] == ["stock"]
    assert first["messages"] + last["messages"] == table.where("topic = 'stock'").count()


def test_top_talkers_come_in_the_order_of_their_bytes(table: DataFrame, traffic: Traffic) -> None:
    from spark import pipelines

    sizes: Counter[str] = Counter()
    for row in traffic.rows:
        sizes[row["topic"]] += len(row["value"])
    found = pipelines.top_talkers(table, count=2, by=("topic",)).collect()
    assert [(row["topic"], row["bytes"]) for row in found] == sizes.most_common(2)


def test_silence_is_an_anomaly_and_nothing_else_of_this_is(table: DataFrame) -> None:
    from spark import pipelines

    flagged = pipelines.anomalies(table, deviations=4.5).where("anomaly").collect()
    assert {row["topic"] for row in flagged} == {"stock"}
    assert SILENT.start in {second(row) for row in flagged}
    assert {second(row) for row in flagged} <= set(SILENT)


def test_a_burst_is_an_anomaly(session: SparkSession, table: DataFrame) -> None:
    from spark import pipelines

    burst = table.where("second(timestamp) = 50 and topic = 'orders.eu'")
    more = table
    for _ in range(3):
        more = more.union(burst)
    flagged = pipelines.anomalies(more).where("anomaly and score > 0").collect()
    assert [(row["topic"], second(row)) for row in flagged] == [("orders.eu", 50)]


@pytest.mark.parametrize(("baseline", "windows_min"), [(5, 10), (0, 0), (-1, 0)])
def test_a_baseline_by_which_nothing_is_flagged_is_refused(
    table: DataFrame, baseline: int, windows_min: int
) -> None:
    """Found: none was, and nobody was told."""
    from spark import pipelines

    with pytest.raises(ValueError, match=f"a baseline of {baseline} windows: want "):
        pipelines.anomalies(table, baseline=baseline, windows_min=windows_min)
    pipelines.anomalies(table, baseline=10, windows_min=10)


@pytest.mark.parametrize("every_s", [1.0, 2 / 3])
def test_what_is_usual_is_the_mean_of_the_windows_before(
    session: SparkSession, every_s: float
) -> None:
    """Found: what was silent in front of the oldest message nearby did not count, so that a topic was
    new after each silence; and of a third of a second each window was told one too late."""
    from pyspark.sql import functions as f

    from spark import pipelines

    counts = {0: 100, **dict.fromkeys(range(25, 36), 10), 36: 200, 80: 500}
    every_us = round(every_s * 1e6)
    first = -(-START_US // every_us)
    at_us = [((first + at) * every_us + n,) for at, count in counts.items() for n in range(count)]
    at = f.timestamp_micros("at_us").alias("timestamp")
    rows = session.createDataFrame(at_us, "at_us bigint").select(f.lit("a").alias("topic"), at)
    told = pipelines.anomalies(rows, every_s=every_s).withColumn("us", f.unix_micros("start"))
    found = {row["us"] // every_us - first: row for row in told.collect()}
    assert {*counts} <= {*found} <= {*range(81)}
    for at_window, row in found.items():
        before = [counts.get(one, 0) for one in range(max(0, at_window - 30), at_window)]
        assert row["us"] == (first + at_window) * every_us
        assert row["messages"] == counts.get(at_window, 0)
        assert row["mean"] == pytest.approx(sum(before) / max(1, len(before)))
    assert {at_window for at_window, row in found.items() if row["anomaly"]} == {36, 80}


PIPELINES: dict[str, tuple[dict[str, Any], float]] = {
    # settings, and the least share of the rows that comes before the stream ends
    "rates": ({"every_s": 5.0}, 0.8),
    "latency": ({"every_s": 5.0}, 0.8),
    "sequences": ({"every_s": 5.0}, 0.8),
    "sessions": ({"idle_s": 2.0, "by": ("topic",)}, 0.25),
    "anomalies": ({}, 0.8),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_stream_gives_what_the_table_gives(
    name: str, session: SparkSession, table: DataFrame, files: str, tmp_path: Path
) -> None:
    """Each window once, those that the watermark has passed when the stream ends."""
    from spark import pipelines

    settings, share = PIPELINES[name]

    def run(df: DataFrame) -> DataFrame:
        found: DataFrame = getattr(pipelines, name)(df, late_s=1.0, **settings)
        return found

    stream = session.readStream.schema(table.schema).parquet(files)
    query = (
        run(stream)
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"), format="parquet")
    )
    assert query.awaitTermination(100)
    of_stream = Counter(map(str, session.read.parquet(str(tmp_path / "out")).collect()))
    of_table = Counter(map(str, run(table).collect()))
    assert of_stream <= of_table
    assert sum(of_stream.values()) >= sum(of_table.values()) * share


def test_a_stream_of_sequences_needs_windows(
    session: SparkSession, table: DataFrame, files: str
) -> None:
    from spark import pipelines

    with pytest.raises(ValueError, match="every_s"):
        pipelines.sequences(session.readStream.schema(table.schema).parquet(files))


def test_results_become_messages(table: DataFrame) -> None:
    from spark import pipelines

    rates = pipelines.rates(table, every_s=60)
    found = pipelines.messages(rates, "stats.rates").collect()
    assert {row["topic"] for row in found} == {"stats.rates"}
    assert sorted(json.loads(row["value"])["messages"] for row in found) == sorted(
        row["messages"] for row in rates.collect()
    )


def test_messages_have_whole_times_and_columns_of_any_name(session: SparkSession) -> None:
    """Found: microseconds were cut off, with a zone and without, and a name with a backtick in it was
    an error of Spark's."""
    from pyspark.sql import functions as f

    from spark import pipelines

    at = f.timestamp_micros(f.lit(START_US + 7)).alias("at")
    local = at.cast("timestamp_ntz").alias("local")
    frame = session.range(1).select(
        at, local, f.array(local).alias("list"), f.lit(1).alias("a`b.c")
    )
    (row,) = pipelines.messages(frame, "t").collect()
    found = json.loads(row["value"])
    (stored,) = frame.collect()
    assert stored["local"].microsecond == (START_US + 7) % 1_000_000
    assert datetime.fromisoformat(found["at"]).timestamp() == stored["at"].timestamp()
    assert [found["local"]] == found["list"]
    assert datetime.fromisoformat(found["local"]) == stored["local"]
    assert found["a`b.c"] == 1


def test_parquet_has_folders_by_date_and_topic_and_a_stream_writes_each_row_once(
    session: SparkSession, table: DataFrame, files: str, tmp_path: Path
) -> None:
    from spark import pipelines

    assert pipelines.write_parquet(table, str(tmp_path / "table")) is None
    names = {
        path.parent.relative_to(tmp_path / "table")
        for path in tmp_path.rglob("table/*/*/*.parquet")
    }
    assert names == {Path("date=2026-01-01", f"topic={topic}") for topic in TOPICS}
    assert session.read.parquet(str(tmp_path / "table")).count() == table.count()
    stream = session.readStream.schema(table.schema).parquet(files)
    for _ in range(2):
        query = pipelines.write_parquet(
            stream, str(tmp_path / "stream"), checkpoint=str(tmp_path / "checkpoint")
        )
        assert query is not None
        assert query.awaitTermination(100)
    assert session.read.parquet(str(tmp_path / "stream")).count() == table.count()
    with pytest.raises(ValueError, match="checkpoint"):
        pipelines.write_parquet(stream, str(tmp_path / "stream"))


def test_folders_by_date_are_those_of_utc_whatever_the_session_shows(
    session: SparkSession, table: DataFrame, tmp_path: Path
) -> None:
    """Found: what came at 20:00 was in the next day's, in Tokyo."""
    from pyspark.sql import functions as f

    from spark import pipelines

    days = {"2025-12-31": -1, "2026-01-01": 20 * 3600, "1969-12-31": -START_US // 1_000_000 - 1}
    row = table.limit(1).drop("timestamp").withColumn("topic", f.lit("a"))
    seconds = session.createDataFrame([(one,) for one in days.values()], "at bigint")
    at = f.timestamp_micros(f.col("at") * 1_000_000 + START_US)
    zone = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        pipelines.write_parquet(
            row.crossJoin(seconds.select(at.alias("timestamp"))), str(tmp_path / "table")
        )
    finally:
        session.conf.set("spark.sql.session.timeZone", zone or "UTC")
    found = {path.name for path in (tmp_path / "table").glob("date=*")}
    assert found == {f"date={one}" for one in days}


def test_topics_too_long_for_a_folder_are_whole_in_a_column(
    session: SparkSession, table: DataFrame, tmp_path: Path
) -> None:
    """Found: such a topic ended the writing of all of them, and later one of many asterisks did, and one
    with a NUL in it. Both ways to export name folders alike."""
    from spark import pipelines
    from spark.folders import NO_TOPIC, folder

    topics = ["z" * 255, "ä" * 127, "a.b", "b/c.d%", "~" * 100, "x y*" * 40, "*" * 200]
    topics += ["\0", "a\0b", "ab", NO_TOPIC]
    row = table.limit(1).drop("topic")
    given = [*topics, "", None]
    rows = row.crossJoin(session.createDataFrame([(one,) for one in given], "topic string"))
    pipelines.write_parquet(rows, str(tmp_path / "table"))
    table = session.read.parquet(str(tmp_path / "table"))
    found = table.where("topic IS NOT NULL").select("topic", "full_topic").collect()
    assert table.count() == len(given)
    assert {(one.full_topic, one.topic) for one in found} == {(one, folder(one)) for one in topics}
