"""The Spark section of the README works as it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from tests.brokers import client, serving
from tests.integration.test_readme import PYTHON, SHELL
from tests.shell import Shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def store(data: Path) -> None:
    async with serving(data) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.bind("amq.topic", "audit", "orders.#")
        await shop.publish_many("amq.topic", "orders.eu", [b"one", b"two"])


def test_the_sample_shows_latencies(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's workers look where the session began, so the path is made absolute here."""
    trio.run(store, tmp_path / "orders.data")
    sample = PYTHON[3].replace("orders.data", str(tmp_path / "orders.data"))
    exec(compile(sample, "README.md", "exec"), {})
    table = capsys.readouterr().out
    assert "p99_us" in table
    assert "|orders.eu|       2|" in table


def test_the_commands_that_need_no_spark(tmp_path: Path) -> None:
    trio.run(store, tmp_path / "orders.data")
    shell = Shell(tmp_path)
    lines = [line for line in SHELL[4].splitlines() if line.startswith("mesh capture ")]
    assert len(lines) == 3
    for line in lines:
        words = line.partition("#")[0].replace("'", "").split()
        assert shell.run(*words[1:]).returncode == 0
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
