"""Topics whose rate has changed: each window is compared with those right before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from .windows import LATE_S, watermarked, whole_us, window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def anomalies(
    df: DataFrame, *, every_s: float = 1.0, baseline: int = 30, windows_min: int = 10,
    deviations: float = 4.0, late_s: float = LATE_S,
) -> DataFrame:  # fmt: skip
    """Return per window and topic the rate, the usual rate, and whether it is unusual. Silence counts, too.

    Args:
        baseline: how many windows before make up what is usual; those without messages count as 0, except
            those before the topic's first message. A stream remembers only `baseline` windows: there, a
            topic that was silent for as long starts anew.
        windows_min: a topic that has existed for fewer windows is not flagged.
        deviations: a window is flagged if it is so many standard deviations from the mean. The deviation
            is at least that of as many messages at random (the root of the mean), and at least 1.
    Returns:
        start, topic, messages, mean, deviation, score (in deviations), anomaly (boolean).
    Raises:
        ValueError: `baseline` is below `windows_min`; a topic's age is known only up to `baseline`, so none
            would ever be flagged.
    """
    least = max(1, windows_min)
    if baseline < least:
        raise ValueError(
            f"a baseline of {baseline} windows: want at least {least}, see windows_min"
        )
    counted = watermarked(df, late_s).groupBy(window(every_s), "topic").agg(f.count("*").alias("n"))
    first = f.col("window.end")  # The first in the span, on a stream.
    if not df.isStreaming:
        first = f.min("window.end").over(Window.partitionBy("topic"))
    # Each window counts in its own row, and in the rows of the `baseline` windows after it.
    every_us = whole_us(every_s)
    span, slide = (f"{us} microseconds" for us in (every_us * (baseline + 1), every_us))
    sliding = f.window(f.window_time("window"), span, slide)
    rows = counted.withColumn("first", first).select(
        "topic", "n", "window", "first", sliding.alias("span")
    )

    def age_at(end: str) -> Column:
        us = f.unix_micros("span.end") - f.unix_micros(end)
        return (us / every_us).cast("long")

    before = f.col("age") > 0
    n = f.col("n")
    windows = (
        rows.withColumn("age", age_at("window.end"))
        .groupBy("span", "topic")
        .agg(
            f.sum(f.when(~before, n).otherwise(0)).alias("messages"),
            f.sum(f.when(before, n).otherwise(0)).alias("sum"),
            f.sum(f.when(before, n * n).otherwise(0)).alias("squares"),
            f.least(f.max(age_at("first")), f.lit(baseline)).alias("windows"),
        )
        .withColumn("start", f.timestamp_micros(f.unix_micros("span.end") - every_us))
    )
    count = f.greatest(f.col("windows"), f.lit(1))
    mean = f.col("sum") / count
    deviation = f.sqrt(f.greatest(f.col("squares") / count - mean * mean, mean, f.lit(1.0)))
    scored = windows.select(
        "start", "topic", "messages", mean.alias("mean"), deviation.alias("deviation"), "windows"
    )
    score = (f.col("messages") - f.col("mean")) / f.col("deviation")
    stands_out = (f.abs(score) >= deviations) & (f.col("windows") >= windows_min)
    flagged = scored.select(
        "start", "topic", "messages", "mean", "deviation", score.alias("score"),
        stands_out.alias("anomaly"),
    )  # fmt: skip
    if df.isStreaming:
        return flagged
    # Windows after the last message of all topics are not silence, but the end of the table.
    last = counted.agg(f.max("window.start").alias("last"))
    return flagged.crossJoin(f.broadcast(last)).where("start <= last").drop("last")
