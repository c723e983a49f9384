"""Starts Spark sessions and registers our formats with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from subprocess import Popen
from traceback import walk_tb
from typing import TYPE_CHECKING

from .home import compiled_pyspark
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
"""Settings added if all of Spark runs on this machine, so that nothing listens for other machines."""


def register(session: SparkSession, *, push_filters: bool = False) -> SparkSession:
    """Register the formats `mesh-capture` and `mesh` with `session`. Returns the session.

    Args:
        push_filters: let filters by topic and time reduce what is read. Off by default, because Spark 4.3 keeps
            the filters of one query for all other queries of the same DataFrame: the union of two halves of
            one is wrong. If on, load a DataFrame anew for each use. The options do the same safely.
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
    """If this package came with `--py-files`, add its archive to the path of the process that plans a stream.

    There Spark 4.3 looks for such files in `userFiles/streaming_job`, where they are only with Spark Connect.
    Batch queries found our package, and streams ended with "No module named spark.capture".
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
    """Return a session with our formats; starts one if there is none.

    Args:
        conf: Spark's settings, which override ours; as keywords with `_` in place of `.`.
    Raises:
        JavaMissing: says which package to install.
    """
    check_java()
    from pyspark.sql import SparkSession

    # Otherwise workers run whatever `python3` is on PATH, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = dict(QUIET)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOCAL
    builder = SparkSession.builder.master(master).appName("mesh")
    for name, value in (settings | conf).items():
        builder = builder.config(name.replace("_", "."), value)
    with compiled_pyspark(), no_orphans():
        return register(builder.getOrCreate())


@contextmanager
def no_orphans() -> Iterator[None]:
    """Kill processes whose start is interrupted in the block.

    PySpark then removes the file in which the JVM would tell its address, and the JVM, which cannot, stays for
    ever and holds on to the terminal or pipe that it inherited. Only frames of the interrupted call refer to it.
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
