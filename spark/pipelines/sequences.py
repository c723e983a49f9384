"""Missing and duplicate messages, found by the sequences that publishers number their messages with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from .windows import LATE_S, watermarked, window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ON_THE_MESH = ("publisher", "epoch", "topic")
"""`node.publish` numbers the messages of each topic."""
TO_THE_BROKER = ("publisher", "epoch")
"""A durable publisher numbers all its messages, whatever their key."""


def sequences(
    df: DataFrame, *, every_s: float | None = None, by: Sequence[str] = ON_THE_MESH,
    late_s: float = LATE_S,
) -> DataFrame:  # fmt: skip
    """Return gaps and duplicates per publisher.

    Args:
        every_s: also per window of this length, which a stream needs; a gap between two windows is in
            neither.
        by: what sequences number: `ON_THE_MESH`, or `TO_THE_BROKER`; for the latter `df` has to hold
            every queue that a publisher sends to.
    Returns:
        start (with `every_s`), the columns of `by`, first, last, messages, missing, duplicates.
    Raises:
        ValueError: a stream without `every_s`.
    """
    if every_s is None and df.isStreaming:
        raise ValueError("sequences of a stream: want every_s, the length of a window")
    spans = [] if every_s is None else [window(every_s)]
    sequence = f.col("sequence")
    df = df.where("sequence IS NOT NULL")  # Rows that stand for kept damage have none.
    # Bitmaps of 32,768 sequences each: exact, and 4 KB each, however many windows are open.
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
