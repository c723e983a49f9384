"""What is missing and what came twice, by the sequences that publishers count their messages with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from .windows import LATE_S, watermarked, window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ON_THE_MESH = ("publisher", "epoch", "topic")
"""`node.publish` counts the messages of each topic."""
TO_THE_BROKER = ("publisher", "epoch")
"""A durable publisher counts all its messages, whatever their key."""


def sequences(
    df: DataFrame, *, every_s: float | None = None, by: Sequence[str] = ON_THE_MESH,
    late_s: float = LATE_S,
) -> DataFrame:  # fmt: skip
    """Per publisher: gaps and duplicates.

    Args:
        every_s: per window, too; a gap between two windows shows in neither. A stream needs it.
        by: what sequences count: `ON_THE_MESH`, or `TO_THE_BROKER`, where `df` has to hold every
            queue that a publisher sends to.
    Returns:
        start (with `every_s`), the columns of `by`, first, last, messages, missing, duplicates.
    Raises:
        ValueError: a stream, and no `every_s`.
    """
    if every_s is None and df.isStreaming:
        raise ValueError("sequences of a stream: want every_s, the length of a window")
    spans = [] if every_s is None else [window(every_s)]
    sequence = f.col("sequence")
    df = df.where("sequence IS NOT NULL")  # What is damaged, and was kept, has none.
    # Sets of 32,768 sequences as bitmaps: exact, and 4 KB each, however many windows are open.
    pieces = watermarked(df, late_s) if spans else df
    pieces = pieces.groupBy(*spans, *by, f.bitmap_bucket_number(sequence).alias("piece")).agg(
        f.count("*").alias("count"), f.min("sequence").alias("low"), f.max("sequence").alias("high"),
        f.bitmap_construct_agg(f.bitmap_bit_position(sequence)).alias("seen"),
    )  # fmt: skip
    summed = pieces.groupBy(*(["window"] if spans else []), *by).agg(
        f.min("low").alias("first"), f.max("high").alias("last"), f.sum("count").alias("messages"),
        f.sum(f.bitmap_count("seen")).alias("distinct"),
    )  # fmt: skip
    start: list[Column] = [f.col("window.start").alias("start")] if spans else []
    return summed.select(
        *start, *by, "first", "last", "messages",
        (f.col("last") - f.col("first") + 1 - f.col("distinct")).alias("missing"),
        (f.col("messages") - f.col("distinct")).alias("duplicates"),
    )  # fmt: skip
