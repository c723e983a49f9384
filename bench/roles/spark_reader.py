"""A Spark session with two cores: a broker's directory, or Parquet files, to nowhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import spark
from bench.roles.spark_workers import peak_rss_bytes
from bench.roles.stage import Stage, play

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MASTER = "local[2]"


def run(stage: Stage) -> None:
    session = spark.session(MASTER, spark_driver_memory="2g")
    session.sparkContext.setLogLevel("OFF")
    parquet = ""
    stage.ready()
    for order in stage.orders():
        capture = session.read.format("mesh-capture").load(stage.settings["data"])
        if order["do"] == "write_parquet":
            parquet = order["path"]
            capture.write.option("compression", "none").parquet(parquet)
            stage.done(rows=session.read.parquet(parquet).count())
        elif order["do"] == "read":
            df = capture if order["source"] == "capture" else session.read.parquet(parquet)
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
