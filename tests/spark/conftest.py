"""One Spark session for all tests here: it takes seconds to start, and half a gigabyte of memory.

They run in one xdist process, see tests/conftest.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.installed import missing_reason
from tests.captures import Captured, jobs_and_audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BATCH_ROWS = "50"
JVM = (
    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
    # Saves a fifth of the start: Spark's released archives need no bytecode verification.
    "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
)  # fmt: skip
CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # Saves half of the start; code that takes seconds to compile would run only once here.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": " ".join(JVM),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here as slow, and skip each of them where there can be no session."""
    reason = missing_reason()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    import spark

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Failed tasks are tried again, as on a cluster.
    found = spark.session("local[2,4]", **CONF)
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    """A log with a queue and a stream, in segments of 4 KiB."""
    return jobs_and_audit(tmp_path / "data")


@pytest.fixture
def filled(captured: Captured) -> None:
    """`captured` with messages: two topics, some headers, a third of the messages in both lanes."""
    for number in range(120):
        lanes = [[1], [2], [1, 2]][number % 3]
        headers = [{"n": str(number)}] if number % 4 == 0 else None
        topic = f"orders.{'eu' if number % 2 else 'us'}"
        captured.publish(lanes, [b"%d" % number], topic, headers=headers, exchange="amq.topic")


@pytest.fixture
def small_batches(session: SparkSession) -> None:
    """Make Spark pass small batches to the sink."""
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS)
