"""A queue's messages as rows, beside the same rows from uncompressed Parquet files.

A real broker stores the messages and is idle afterwards; Spark reads its directory from the page cache, by
`read_capture` and as the format `mesh-capture`. One session reads all sources in turns, into Spark's `noop` sink: four
columns, as most queries need, and all columns. The format is also compared with one batch returned over and over: no
Python source can be faster than that, whatever it does.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.durable.setting import queue_names, serving
from bench.figure import Bound, at_least, at_most
from bench.plan import Case, Family, Outcome, Row, Scale

if TYPE_CHECKING:
    from bench.processes import Troupe

SIZE_BYTES, COUNT = 100, 5_000_000
DIFFERENT = 500_000
"""Count of different payloads: a few thousand would be stored by Parquet as a dictionary."""
SOURCES = {
    "capture": "read_capture", "format": "mesh-capture", "parquet": "parquet", "one batch": "same-batch",
}  # fmt: skip
WARM_TURNS, TURNS = 2, 5
"""The first turn starts workers and compiles plans; in the second the JVM is still compiling, for all sources."""
ROWS_PER_S_MIN = 3_000_000
PARQUET_TIMES_MAX = 1.5
WORKER_MB_MAX = 300
MB = 1_000_000
COLUMNS = {"4 columns": ["topic", "offset", "timestamp", "value"], "all columns": []}
"""An empty list stands for all columns."""
READING = "read by Spark, 100 B"
ANSWER_S_MAX = 600.0


def reading(name: str) -> Case:
    def run(troupe: Troupe, scale: Scale) -> Outcome:
        count, (queue,) = scale.count(COUNT), queue_names(1)
        with serving(troupe) as setting:
            publisher = setting.start(
                "durable_publisher", size_bytes=SIZE_BYTES, ring_count=DIFFERENT, queues=[queue]
            )
            publisher.ask("run", start=0, count=count)
            spark = troupe.start("spark_reader", {"data": str(Path(setting.data) / "store")})
            rows = spark.ask("write_parquet", path=str(Path(setting.data) / "parquet"))["rows"]
            taken_s = {
                f"{source}, {words}": list[float]() for words in COLUMNS for source in SOURCES
            }
            for turn in range(-WARM_TURNS, TURNS):
                for words, columns in COLUMNS.items():
                    for source in SOURCES:
                        order = {"source": SOURCES[source], "columns": columns}
                        options = {"count": count} if source == "one batch" else {}
                        seconds = spark.ask("read", **order, options=options)["seconds"]
                        if turn >= 0:
                            taken_s[f"{source}, {words}"].append(seconds)
            worker_bytes = spark.ask("workers")["peak_rss_bytes"]
        values = {f"{way}, per_s": count / median(times) for way, times in taken_s.items()}
        return Outcome(
            {**values, "worker_mb": worker_bytes / MB},
            wrong=abs(rows - count),
            detail={"taken_s": taken_s},
        )

    return Case(name, run)


def family() -> list[Family]:
    return [
        Family(
            name="reading",
            cases=[reading(READING)],
            rows=[
                *(Row(
                    name=f"{READING}, {words}", unit="rows/s", case=READING,
                    value=f"capture, {words}, per_s", reference=(READING, f"parquet, {words}, per_s"),
                    bounds=(
                        at_least(ROWS_PER_S_MIN),
                        Bound("ratio", "at least", 1 / PARQUET_TIMES_MAX),
                    ),
                ) for words in COLUMNS),
                *(Row(
                    name=f"{READING}, {words}, as a format", unit="rows/s", case=READING,
                    value=f"format, {words}, per_s", reference=(READING, f"parquet, {words}, per_s"),
                ) for words in COLUMNS),
                *(Row(
                    name=f"{READING}, {words}, as a format, beside one batch again and again", unit="rows/s",
                    case=READING,
                    value=f"format, {words}, per_s", reference=(READING, f"one batch, {words}, per_s"),
                ) for words in COLUMNS),
                Row(
                    name="peak memory of a Python worker while reading", unit="MB", case=READING,
                    value="worker_mb", bounds=(at_most(WORKER_MB_MAX),),
                ),
            ],
        )
    ]  # fmt: skip
