"""Topics whose rate is not what it was: each window against those right before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from .windows import LATE_S, interval, watermarked, window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def anomalies(
    df: DataFrame, *, every_s: float = 1.0, baseline: int = 30, windows_min: int = 10,
    deviations: float = 4.0, late_s: float = LATE_S,
) -> DataFrame:  # fmt: skip
    """Per window and topic: the rate, what it was, and whether it stands out. Silence does, too.

    Args:
        baseline: so many windows before are what is usual; those without messages count as 0.
        windows_min: a topic that is younger than so many windows is not flagged.
        deviations: a window is flagged so many standard deviations away from the mean, where the
            deviation is at least that of as many messages at random (the root of the mean), or 1.
    Returns:
        start, topic, messages, mean, deviation, score (in deviations), anomaly (boolean).
    """
    counted = watermarked(df, late_s).groupBy(window(every_s), "topic").agg(f.count("*").alias("n"))
    # Each window counts in its own row and in the rows of the `baseline` windows behind it.
    sliding = f.window(
        f.window_time("window"), interval(every_s * (baseline + 1)), interval(every_s)
    )
    every_us = round(every_s * 1e6)
    age = ((f.unix_micros("span.end") - f.unix_micros("window.end")) / every_us).cast("int")
    rows = counted.select("topic", "n", "window", sliding.alias("span"))
    before = f.col("age") > 0
    n = f.col("n")
    told = (
        rows.withColumn("age", age)
        .groupBy("span", "topic")
        .agg(
            f.sum(f.when(~before, n).otherwise(0)).alias("messages"),
            f.sum(f.when(before, n).otherwise(0)).alias("sum"),
            f.sum(f.when(before, n * n).otherwise(0)).alias("squares"),
            f.max("age").alias("windows"),
        )
        .withColumn("start", f.timestamp_micros(f.unix_micros("span.end") - every_us))
    )
    count = f.greatest(f.col("windows"), f.lit(1))
    mean = f.col("sum") / count
    deviation = f.sqrt(f.greatest(f.col("squares") / count - mean * mean, mean, f.lit(1.0)))
    scored = told.select(
        "start", "topic", "messages", mean.alias("mean"), deviation.alias("deviation"), "windows"
    )
    score = (f.col("messages") - f.col("mean")) / f.col("deviation")
    stands_out = (f.abs(score) >= deviations) & (f.col("windows") >= windows_min)
    flagged = scored.select(
        "start",
        "topic",
        "messages",
        "mean",
        "deviation",
        score.alias("score"),
        stands_out.alias("anomaly"),
    )
    if df.isStreaming:
        return flagged
    # What comes after the last message of all is not silence, but the end of the table.
    last = counted.agg(f.max("window.start").alias("last"))
    return flagged.crossJoin(f.broadcast(last)).where("start <= last").drop("last")
