"""Windows of time that are the same for tables and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATE_S = 10.0
"""How long a window of a stream waits after its end for late messages."""


def whole_us(seconds: float) -> int:
    """Return whole us, as windows have them: a third of a second is rounded. Raises ValueError unless positive."""
    us = round(seconds * 1e6)
    if us <= 0:
        raise ValueError(f"an interval of {seconds} s: want a positive one")
    return us


def interval(seconds: float) -> str:
    """Return an interval in Spark's notation. Raises ValueError if it is not positive."""
    return f"{whole_us(seconds)} microseconds"


def watermarked(df: DataFrame, late_s: float) -> DataFrame:
    """Return a table as it is, and a stream with a watermark, without which no window would ever end."""
    return df.withWatermark("timestamp", interval(late_s)) if df.isStreaming else df


def window(seconds: float) -> Column:
    return f.window("timestamp", interval(seconds))
