"""How much traffic there is, and whose: rates, sessions, top talkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from .windows import LATE_S, interval, watermarked, window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def rates(df: DataFrame, *, every_s: float = 1.0, late_s: float = LATE_S) -> DataFrame:
    """Return per window and topic: messages, bytes, and both per second.

    Returns:
        start, topic, messages, bytes, messages_per_s, bytes_per_s, mean_bytes.
    """
    counted = watermarked(df, late_s).groupBy(window(every_s), "topic").agg(*_totals())
    return counted.select(
        f.col("window.start").alias("start"), "topic", "messages", "bytes",
        (f.col("messages") / every_s).alias("messages_per_s"),
        (f.col("bytes") / every_s).alias("bytes_per_s"),
        (f.col("bytes") / f.col("messages")).alias("mean_bytes"),
    )  # fmt: skip


def sessions(
    df: DataFrame, *, idle_s: float = 30.0, by: Sequence[str] = ("publisher",),
    late_s: float = LATE_S,
) -> DataFrame:  # fmt: skip
    """Return stretches of activity; one ends when nothing more comes for `idle_s`.

    Returns:
        the columns of `by`, start, end (of the last message), seconds, messages, bytes, topics.
    """
    active = watermarked(df, late_s).groupBy(
        f.session_window("timestamp", interval(idle_s)).alias("session"), *by
    )
    seconds = (f.unix_micros("end") - f.unix_micros("session.start")) / 1e6
    topics = f.array_sort(f.collect_set("topic")).alias("topics")
    return active.agg(f.max("timestamp").alias("end"), *_totals(), topics).select(
        *by, f.col("session.start").alias("start"), "end", seconds.alias("seconds"), "messages",
        "bytes", "topics",
    )  # fmt: skip


def top_talkers(df: DataFrame, *, count: int = 10, by: Sequence[str] = ("publisher",)) -> DataFrame:
    """Return who sends most bytes. On a stream that is of everything so far: write it in complete mode.

    Returns:
        the columns of `by`, messages, bytes, first, last.
    """
    talkers = df.groupBy(*by).agg(
        *_totals(), f.min("timestamp").alias("first"), f.max("timestamp").alias("last")
    )
    return talkers.orderBy(f.desc("bytes"), *by).limit(count)


def _totals() -> tuple[Column, Column]:
    return f.count("*").alias("messages"), f.sum(f.length("value")).cast("long").alias("bytes")
