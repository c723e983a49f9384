"""Writing into the mesh with Spark, with brokers that run in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio

import durable
import mesh
from durable.client.connection import Connection
from spark.sink.report import Report, decode_reports
from tests.brokers import SMALL, client, node_of, serving
from tests.loopback import ANY_PORT
from tests.processes import SECRET
from tests.stores import secret_file
from tests.waiting import until_in_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
LARGE = b"." * 2000
"""Appended to a value: a task sends messages this large in several batches."""
FLAG_S_MAX = 30.0


async def in_spark(session: SparkSession, function: Callable[[], T]) -> T:
    """Call `function` in a thread, so that brokers keep running; Spark finds the session by the thread."""

    def run() -> T:
        from pyspark.sql import SparkSession

        SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(
            session._jsparkSession
        )
        return function()

    return await trio.to_thread.run_sync(run)


@asynccontextmanager
async def two_brokers(
    tmp_path: Path, *, encrypt: bool = False
) -> AsyncIterator[tuple[Connection, Connection, durable.Broker]]:
    """Run a broker to replay from, in `tmp_path / "from"`, and one to replay to, `broker2`."""
    async with (
        serving(tmp_path / "from", config=replace(SMALL, encrypt=encrypt)) as one,
        serving(tmp_path / "to", cluster="broker2") as other,
        client(one) as source,
        client(other, cluster="buyer") as node,
    ):
        yield source, durable.connect(node._channel._node, cluster="broker2"), other


def way_in(tmp_path: Path, node: mesh.Node, secret: str = SECRET) -> dict[str, str]:
    """Return the options with which tasks join the mesh of `node`."""
    path = tmp_path / f"secret-{secret[-8:]}"
    if not path.exists():
        secret_file(path, secret)
    return {
        "mesh.network_secret_file": str(path), "mesh.seeds": node.endpoints[0],
        "mesh.zeroconf": "false", "mesh.listen": ANY_PORT, "timeoutSeconds": "20",
    }  # fmt: skip


def way_into(tmp_path: Path, broker: durable.Broker) -> dict[str, str]:
    return way_in(tmp_path, node_of(broker))


def write(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("mesh").mode("append").options(**options).save()


def reports(path: Path) -> list[Report]:
    return decode_reports(path.read_text().splitlines())


def rows(queue: str, values: list[bytes]) -> list[tuple[str, bytes]]:
    return [(queue, value) for value in values]


def failing_once(flag: Path, after: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for `mapPartitions`: each task's first attempt fails after `after` rows, once `flag` exists."""
    path = str(flag)

    def pass_on(found: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        for number, row in enumerate(found):
            if task is not None and task.attemptNumber() == 0 and number == after:
                until_in_thread(Path(path).exists, FLAG_S_MAX)
                raise RuntimeError("on purpose")
            yield row

    return pass_on


async def ready(broker: Connection, queue: str) -> int:
    return int((await broker.statistics())["queues"][queue]["ready"])
