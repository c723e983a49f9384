"""Analyses a capture with Spark: prints a table, and draws rates and latencies over time.

python -m examples.analysis DIR PICTURE.png
"""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING, Any

import spark
from examples.captured import STREAM
from spark import pipelines
from spark.commands.quiet import quiet
from spark.commands.table import lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

HEADINGS = ("topic", "messages", "per s", "p50 us", "p99 us", "missing", "twice", "unusual seconds")


def table(df: DataFrame, rates: Sequence[Row], seconds: float) -> list[tuple[str, ...]]:
    """Return the rows of the table, one per topic. `rates` are ordered by their start."""
    took = {row["topic"]: row for row in pipelines.latency(df, every_s=1e6).collect()}
    sequences = {row["topic"]: row for row in pipelines.sequences(df).collect()}
    unusual: dict[str, list[int]] = {}
    first, last = rates[0]["start"], rates[-1]["start"]
    flagged = pipelines.anomalies(df, windows_min=5).where("anomaly").orderBy("start").collect()
    for row in flagged:
        if row["start"] == last:  # The last second is not complete.
            continue
        unusual.setdefault(row["topic"], []).append(round((row["start"] - first).total_seconds()))
    return [
        (
            topic, f"{took[topic]['messages']:,}", f"{took[topic]['messages'] / seconds:,.0f}",
            f"{took[topic]['p50_us']:,}", f"{took[topic]['p99_us']:,}",
            f"{sequences[topic]['missing']}", f"{sequences[topic]['duplicates']}",
            ", ".join(map(str, unusual.get(topic, []))) or "none",
        )
        for topic in sorted(took)
    ]  # fmt: skip


def picture(df: DataFrame, rates: Sequence[Row], path: str) -> None:
    """Draw messages per second above, the 99th percentile of latency below, with a line per topic."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    latency = pipelines.latency(df, every_s=1).orderBy("start").collect()
    first = rates[0]["start"]
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(9, 6))
    for topic in sorted({row["topic"] for row in rates}):
        for axes, rows, column in ((above, rates, "messages_per_s"), (below, latency, "p99_us")):
            points = [
                ((row["start"] - first).total_seconds(), row[column])
                for row in rows
                if row["topic"] == topic
            ]
            axes.plot(*zip(*points, strict=True), label=topic)
    above.set(ylabel="messages per second", title="captured traffic of the shop")
    below.set(ylabel="p99 from publisher to disk, us", xlabel="seconds", yscale="log")
    above.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(directory: str, path: str) -> None:
    with tempfile.TemporaryFile() as log, quiet(log.fileno()):
        analyse(directory, path)


def analyse(directory: str, path: str) -> None:
    session = spark.session(
        "local[2]", **{"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}
    )
    try:
        df = spark.read_capture(session, directory, streams=STREAM).cache()
        span: Any = df.selectExpr(
            "count(*) as messages", "min(timestamp) as low", "max(timestamp) as high"
        ).first()
        seconds = (span["high"] - span["low"]).total_seconds()
        print(
            f"  {span['messages']:,} messages of {seconds:.0f} s, read by Spark from the broker's "
            "directory"
        )
        rates = pipelines.rates(df).orderBy("start").collect()
        for line in lines(HEADINGS, table(df, rates, seconds)):
            print(f"  {line}")
        picture(df, rates, path)
        print(f"  rates and latencies over time: {path}")
    finally:
        session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
