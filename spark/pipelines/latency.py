"""How long messages took, as histograms with a bounded relative error, as in HdrHistogram.

A bucket holds the values that are equal in their 8 highest bits: it is less than 1 % wide, whatever the value.
Counts per bucket can be added up over tasks and time, so percentiles are those of all messages, in a stream as
well. A sketch that bounds the error of ranks would be reliable only in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from .windows import LATE_S, watermarked, window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUANTILES: Mapping[str, float] = {
    "p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p99_9_us": 0.999, "p99_99_us": 0.9999,
}  # fmt: skip
KEPT_BITS = 8


def latency(
    df: DataFrame, *, every_s: float = 60.0, by: Sequence[str] = ("topic",),
    took_us: Column | None = None, late_s: float = LATE_S,
) -> DataFrame:  # fmt: skip
    """Return per window and topic how long messages took.

    Args:
        took_us: by default the time from being packed, by the publisher's clock, to being received by the
            broker, by the broker's clock: on two machines it includes the difference of their clocks.
            Values below 0 count as 0, and in `negative`; rows where it is NULL do not count.
    Returns:
        start, the columns of `by`, messages, negative, min_us, p50_us, p90_us, p99_us, p99_9_us,
        p99_99_us, max_us, histogram (an array of (us, count), ascending).
    """
    took = f.unix_micros("timestamp") - f.unix_micros("published") if took_us is None else took_us
    timed = watermarked(df, late_s).withColumn("took", took.cast("long")).where("took is not null")
    buckets = timed.groupBy(window(every_s), *by, bucket(f.col("took")).alias("us")).agg(
        f.count("*").alias("count"), f.min("took").alias("least"), f.max("took").alias("most"),
        f.count_if(f.col("took") < 0).alias("below"),
    )  # fmt: skip
    summed = buckets.groupBy("window", *by).agg(
        f.sum("count").alias("messages"), f.sum("below").alias("negative"),
        f.min("least").alias("min_us"), f.max("most").alias("max_us"),
        f.array_sort(f.collect_list(f.struct("us", "count"))).alias("histogram"),
    )  # fmt: skip
    shares = [
        f.least(percentile(f.col("histogram"), f.col("messages"), share), "max_us").alias(name)
        for name, share in QUANTILES.items()
    ]
    return summed.select(
        f.col("window.start").alias("start"), *by, "messages", "negative", "min_us", *shares,
        "max_us", "histogram",
    )  # fmt: skip


def bucket(us: Column) -> Column:
    """Return the largest value of the same bucket: the one with the same highest bits."""
    value = f.greatest(us, f.lit(0).cast("long"))
    length = f.floor(f.log2(f.greatest(value, f.lit(1)).cast("double"))).cast("int") + 1
    one, cut = f.lit(1).cast("long"), f.greatest(length - KEPT_BITS, f.lit(0))
    return value.bitwiseOR(f.call_function("shiftleft", one, cut) - 1)


def percentile(histogram: Column, total: Column, share: float) -> Column:
    """Return the value that this share of all does not exceed, from an array of (us, count), ascending."""
    rank = f.ceil(total * share)
    start = f.struct(f.lit(0).cast("long").alias("seen"), f.lit(None).cast("long").alias("found"))

    def count(state: Column, one: Column) -> Column:
        seen = state["seen"] + one["count"]
        here = f.when(state["found"].isNull() & (seen >= rank), one["us"]).otherwise(state["found"])
        return f.struct(seen.alias("seen"), here.alias("found"))

    return f.aggregate(histogram, start, count, lambda state: state["found"])
