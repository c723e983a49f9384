"""A Spark session with two cores that reads a broker's directory, Parquet files, or one batch over and over.

The rows are discarded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import spark
from bench.roles.spark_workers import peak_rss_bytes
from bench.roles.stage import Stage, leave_on_sigterm, play
from bench.spark import ceiling
from spark.capture.options import Options
from spark.capture.rows import HEADERS, SQL_TYPES, ddl, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MASTER = "local[2]"
COLUMNS = [name for name in SQL_TYPES if name != HEADERS]
"""All columns."""


def run(stage: Stage) -> None:
    leave_on_sigterm()  # Deletes its directories.
    session = spark.session(MASTER, spark_driver_memory="2g")
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(ceiling.SameBatch)
    parquet = ""
    stage.ready()
    for order in stage.orders():
        if order["do"] == "write_parquet":
            parquet = order["path"]
            capture = session.read.format("mesh-capture").load(stage.settings["data"])
            capture.write.option("compression", "none").parquet(parquet)
            stage.done(rows=session.read.parquet(parquet).count())
        elif order["do"] == "read":
            columns = order["columns"]
            if order["source"] == "parquet":
                df = session.read.parquet(parquet).select(*columns or "*")
            elif order["source"] == "read_capture":
                df = spark.read_capture(session, stage.settings["data"], columns=columns or COLUMNS)
            else:
                reader = session.read.format(order["source"]).options(**order["options"])
                rows = schema_of(Options(), columns or COLUMNS)
                df = reader.schema(ddl(rows)).load(stage.settings["data"])
            stage.done(seconds=seconds_to_read(df))
        else:
            stage.done(peak_rss_bytes=peak_rss_bytes())
    session.stop()


def seconds_to_read(df: DataFrame) -> float:
    start_s = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    play(run)
