"""Windows of time, the same for tables and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATE_S = 10.0
"""How long after its end a window of a stream waits for what comes late."""


def whole_us(seconds: float) -> int:
    """As windows count them: a third of a second is no number of them. Raises ValueError: it is not positive."""
    us = round(seconds * 1e6)
    if us <= 0:
        raise ValueError(f"an interval of {seconds} s: want a positive one")
    return us


def interval(seconds: float) -> str:
    """As Spark writes it. Raises ValueError: it is not positive."""
    return f"{whole_us(seconds)} microseconds"


def watermarked(df: DataFrame, late_s: float) -> DataFrame:
    """A table as it is; a stream with a watermark, without which no window would ever end."""
    return df.withWatermark("timestamp", interval(late_s)) if df.isStreaming else df


def window(seconds: float) -> Column:
    return f.window("timestamp", interval(seconds))
