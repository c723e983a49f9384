"""A Spark session with two cores: a broker's directory, or Parquet files, to nowhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import spark
from bench.roles.spark_workers import peak_rss_bytes
from bench.roles.stage import Stage, play
from spark.capture.rows import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER = "local[2]"


def run(stage: Stage) -> None:
    session = spark.session(MASTER, spark_driver_memory="2g")
    session.sparkContext.setLogLevel("OFF")
    parquet = ""
    stage.ready()
    for order in stage.orders():
        if order["do"] == "write_parquet":
            parquet = order["path"]
            captured(session, stage.settings["data"], []).write.option(
                "compression", "none"
            ).parquet(parquet)
            stage.done(rows=session.read.parquet(parquet).count())
        elif order["do"] == "read":
            if order["source"] == "capture":
                df = captured(session, stage.settings["data"], order["columns"])
            else:
                df = session.read.parquet(parquet).select(*order["columns"] or "*")
            stage.done(seconds=seconds_to_read(df))
        else:
            stage.done(peak_rss_bytes=peak_rss_bytes())
    session.stop()


def captured(session: SparkSession, data: str, columns: list[str]) -> DataFrame:
    reader = session.read.format("mesh-capture")
    if columns:
        reader = reader.schema(ddl(columns))
    return reader.load(data)


def seconds_to_read(df: DataFrame) -> float:
    start_s = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    play(run)
