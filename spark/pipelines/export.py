"""Results out of Spark: back into the mesh as messages, or to Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from ..folders import FOLDER_BYTES_MAX, FRONT_CHARACTERS, FULL_TOPIC, HASH_DIGITS, NO_TOPIC, NUL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


DAY_S = 24 * 60 * 60
WHOLE_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
"""With microseconds; Spark's JSON has only milliseconds by default."""
QUOTED = {"+": "%20", "*": "%2A", "%7E": "~"}
"""Where Java's encoder for forms differs from the escaping of paths, see folders.py."""


def messages(df: DataFrame, topic: str) -> DataFrame:
    """Return rows as messages for the sink `mesh`: `topic`, and the whole row as JSON in `value`."""
    columns = (f.col("`{}`".format(name.replace("`", "``"))) for name in df.columns)
    formats = {"timestampFormat": f"{WHOLE_TIME}XXX", "timestampNTZFormat": WHOLE_TIME}
    row = f.to_json(f.struct(*columns), formats)
    return df.select(f.lit(topic).alias("topic"), f.encode(row, "utf-8").alias("value"))


def write_parquet(
    df: DataFrame, path: str, *, checkpoint: str | None = None
) -> StreamingQuery | None:
    """Write to Parquet files, in folders by date (UTC) and topic; a table is appended to what is there.

    A topic that cannot be a folder's name, because of its length or its characters, is changed in `topic`;
    `full_topic` has each topic as it was published.

    Args:
        checkpoint: for a stream, where Spark notes what has been written; each row is written once.
    Returns:
        for a stream the query that was started: it takes what there is, and ends.
    Raises:
        ValueError: a stream without a checkpoint.
    """
    # Spark escapes fewer characters than this, so what fits here fits there.
    escaped = f.url_encode("topic")
    for java, plain in QUOTED.items():
        escaped = f.replace(escaped, f.lit(java), f.lit(plain))
    topic, nul = f.col("topic"), f.lit(NUL)
    fits = (f.length(escaped) <= FOLDER_BYTES_MAX) & ~topic.contains(nul) & (topic != NO_TOPIC)
    front = f.substring(f.replace(topic, nul, f.lit("")), 1, FRONT_CHARACTERS)
    digits = f.substring(f.sha2(f.encode("topic", "utf-8"), 256), 1, HASH_DIGITS)
    short = f.when(~fits, f.concat(front, f.lit("~"), digits)).otherwise(topic)
    # `to_date` would give the date in the session's time zone.
    days = f.floor(f.unix_seconds("timestamp") / DAY_S).cast("int")
    dated = (
        df.withColumn("date", f.date_from_unix_date(days))
        .withColumn(FULL_TOPIC, f.col("topic"))
        .withColumn("topic", short)
    )
    if not df.isStreaming:
        dated.write.partitionBy("date", "topic").mode("append").parquet(path)
        return None
    if checkpoint is None:
        raise ValueError("a stream to Parquet: want checkpoint, a directory only for this query")
    return (
        dated.writeStream.partitionBy("date", "topic")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(path, format="parquet")
    )
