"""A job for `spark-submit`, see test_cluster.py: of this project it has only the shipped archive.

It copies the messages of two streams into queues, by a batch and by a streaming query, and also the table of
a pipeline.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark import pipelines, read_capture, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKAGES = ("mesh", "durable", "spark", "security", "discovery")
STREAM_S_MAX = 100


def note(path: Path, archive: str) -> None:
    """Write down from where this process has the packages, and which of them it would find elsewhere."""
    others = [one for one in sys.path if Path(one).name != archive]
    told = {
        "directory": os.getcwd(),
        "shipped": [__import__(name).__file__ for name in PACKAGES],
        "elsewhere": [
            name
            for name in PACKAGES
            if any(finder.find_spec(name, others) for finder in sys.meta_path)
        ],
    }
    path.write_text(json.dumps(told))


def noting(directory: str, archive: str) -> Callable[[str], str]:
    """Return a function for a UDF that returns its argument; each task calls `note` before its first value."""
    noted: set[int] = set()

    def pass_on(value: str) -> str:
        task = TaskContext.get()
        assert task is not None
        number = task.taskAttemptId()
        if number not in noted:
            noted.add(number)
            note(Path(directory, f"task-{number}"), archive)
        return value

    return pass_on


def run(session: SparkSession, given: dict[str, Any]) -> None:
    capture = {**given["keys"], "streams": "one,two", "ordering": "queue", "minPartitions": "2"}
    sink = {**given["joining"], "to": "queues", "report": given["report"]}
    noted = f.udf(noting(given["notes"], given["archive"]), "string", useArrow=False)

    def addressed(frame: DataFrame, ending: str) -> DataFrame:
        return frame.select(f.concat(noted("queue"), f.lit(ending)).alias("queue"), "value")

    stored = session.read.format("mesh-capture").options(**capture).load(given["data"])
    copies = addressed(stored, ".copy").write.format("mesh").mode("append")
    copies.options(**sink).save()
    read = read_capture(session, given["data"], **capture)
    told = pipelines.messages(pipelines.sequences(read).coalesce(1), "told")
    told.write.format("mesh").mode("append").options(**sink, queue="told").save()
    live = session.readStream.format("mesh-capture").options(**capture, startingOffsets="earliest")
    following = addressed(live.load(given["data"]), ".live").writeStream.format("mesh")
    query = (
        following.options(**sink, checkpointLocation=given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(STREAM_S_MAX), "it ends by itself"


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    note(Path(given["notes"], "driver"), given["archive"])
    session = register(SparkSession.builder.getOrCreate())
    run(session, given)
    session.stop()


if __name__ == "__main__":
    main()
