"""`mesh replay`: a command with a JVM of its own, so it needs no session of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.brokers import numbered
from tests.loopback import ANY_PORT
from tests.spark.conftest import CONF, ROOT
from tests.spark.sinks import ready, two_brokers, way_into


def defaults(directory: Path) -> Path:
    """Settings of Spark for a command that has no option for them: as small as those of our session."""
    directory.mkdir()
    lines = [f"{name} {value}" for name, value in CONF.items()]
    (directory / "spark-defaults.conf").write_text("\n".join(lines))
    return directory


async def test_the_command_prints_a_report_and_nothing_of_sparks(tmp_path: Path) -> None:
    """A JVM of its own: what it says must not reach the terminal. What is replayed is encrypted."""
    async with two_brokers(tmp_path, encrypt=True) as (source, target, broker):
        for one in (source, target):
            await one.declare_queue("jobs")
        await source.publish_many("", "jobs", numbered(300))
        options = way_into(tmp_path, broker)
        command = [
            sys.executable, "-m", "mesh.cli", "replay", str(tmp_path / "from"), "--to", "broker2",
            "--json", "--loop", "2", "--sample", "0.5", "--no-zeroconf",
            "--network-secret-file", options["mesh.network_secret_file"],
            "--seed", options["mesh.seeds"], "--listen", ANY_PORT, "--timeout", "20",
        ]  # fmt: skip
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(defaults(tmp_path / "conf")),
        }  # fmt: skip
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False, env=environment,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.stderr == b""
        assert done.returncode == 0
        told = json.loads(done.stdout)
        assert told["complete"]
        assert told["sent"] == 2 * told["selected"] == await ready(target, "jobs")
        assert 0 < told["selected"] < 300
