"""Spark sessions that know our formats."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
LOCAL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
}
"""For a session on this machine: nothing listens to others, times are UTC."""


def register(session: SparkSession) -> SparkSession:
    """Make `mesh-capture` known to `session`, and let it push filters down. Returns the session."""
    from .capture.source import PushingCapture

    session.conf.set(PUSH_DOWN, "true")
    session.dataSource.register(PushingCapture)
    return session


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
    builder = SparkSession.builder.master(master).appName("mesh")
    for name, value in {**LOCAL, **{k.replace("_", "."): v for k, v in conf.items()}}.items():
        builder = builder.config(name, value)
    return register(builder.getOrCreate())
