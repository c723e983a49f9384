"""Spark sessions that know our formats."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from subprocess import Popen
from traceback import walk_tb
from typing import TYPE_CHECKING

from .home import unpacked
from .java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
QUIET: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
LOCAL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}
"""Besides, where all of Spark is on this machine: nothing listens to others."""


def register(session: SparkSession, *, push_filters: bool = False) -> SparkSession:
    """Make `mesh-capture` and `mesh` known to `session`. Returns the session.

    Args:
        push_filters: let filters by topic and time spare reading. Off, because Spark 4.3 keeps the filters
            of one query for every other one of the same DataFrame: a union of two of its halves is wrong.
            Where it is on, load a DataFrame anew for each use. The options do the same, and safely.
    """
    from .capture.source import MeshCapture, PushingCapture
    from .sink.sink import MeshSink

    if push_filters:
        session.conf.set(PUSH_DOWN, "true")
    _show_archive(session)
    session.dataSource.register(PushingCapture if push_filters else MeshCapture)
    session.dataSource.register(MeshSink)
    return session


def _show_archive(session: SparkSession) -> None:
    """Where this package came with `--py-files`, say so to the process that plans a stream.

    Spark 4.3 looks for such files in `userFiles/streaming_job` there, where they are only under Connect:
    batches found us, and streams ended with "No module named spark.capture".
    """
    from pyspark.sql.utils import is_remote

    archive = getattr(getattr(__spec__, "loader", None), "archive", None)
    if archive is None or is_remote():
        return
    environment = session.sparkContext.environment
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    path = os.path.abspath(archive)
    if path not in known:
        environment["PYTHONPATH"] = os.pathsep.join([path, *filter(None, known)])


def session(master: str = "local[*]", **conf: str) -> SparkSession:
    """A session with our formats, made when there is none yet.

    Args:
        conf: Spark's settings, over ours; `_` for `.` where they are written as keywords.
    Raises:
        JavaMissing: says which package to install.
    """
    check_java()
    from pyspark.sql import SparkSession

    # Else workers run whatever `python3` is on PATH, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = dict(QUIET)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOCAL
    builder = SparkSession.builder.master(master).appName("mesh")
    for name, value in (settings | conf).items():
        builder = builder.config(name.replace("_", "."), value)
    with unpacked(), no_orphans():
        return register(builder.getOrCreate())


@contextmanager
def no_orphans() -> Iterator[None]:
    """Processes whose start is interrupted in the block are ended.

    PySpark takes away the file in which a JVM is to say where it is, and the JVM, which cannot, stays for
    ever, with the terminal or the pipe that it was given. Nobody has that process but the interrupted call.
    """
    try:
        yield
    except BaseException as error:
        for frame, _ in walk_tb(error.__traceback__):
            for one in frame.f_locals.values():
                if isinstance(one, Popen) and one.poll() is None:
                    one.kill()
                    one.wait()
        raise
