"""Out of one process: `spark-submit` to executors that have what was shipped, and not this repository.

    wheel ──> durable_mesh.zip ──--py-files──> driver, two executors
    an environment with everything but the project ──> PYSPARK_PYTHON

The development install shows the repository to every process of its Python, by a .pth file. What
stands in site-packages is therefore lent to an environment of its own, in which .pth files of the other
one mean nothing; and each task looks whether it could find a package anywhere but in the archive.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.waiting import until

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from spark.home import create_home
from spark.settings import key_options
from tests.brokers import SMALL, client, drain, numbered, serving
from tests.spark.conftest import CONF, ROOT
from tests.spark.sinks import reports, way_into

MASTER = "local-cluster[2,1,1024]"
JOB_S_MAX, ENDING_S_MAX = 180, 20
ON_CLUSTER = {
    **CONF,
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": CONF["spark.driver.extraJavaOptions"],
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    # Else the first executor that is there takes both tasks.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
COUNT = 400


def ship(home: Path) -> Path:
    """The project's wheel, named as Spark wants archives of Python; made offline."""
    command = [
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-cache-dir",
        "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", str(home), str(ROOT),
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=JOB_S_MAX)
    (wheel,) = home.glob("*.whl")
    return wheel.rename(home / "durable_mesh.zip")


def lend_packages(home: Path) -> Path:
    """A Python that has what the project needs, and not the project."""
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "lent.pth").write_text("\n".join(lent) + "\n")
    return home / "bin/python"


def processes(directory: Path) -> list[int]:
    """Those that work in `directory`, or below."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # It has ended, or is none of ours.
            if one.readlink().is_relative_to(directory):
                found.append(int(one.parent.name))
    return found


@asynccontextmanager
async def nothing_left(directory: Path) -> AsyncIterator[None]:
    """What was begun in `directory` ends by itself; what does not is killed, and is a failure."""
    try:
        yield
        with suppress(trio.TooSlowError):
            await until(lambda: not processes(directory), ENDING_S_MAX)
        assert processes(directory) == []
    finally:
        for pid in processes(directory):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def submit(home: Path, given: dict[str, Any], archive: Path, python: Path) -> None:
    """Run the job in `home`; raises what it said, when it fails."""
    shutil.copy(Path(__file__).parent / "job.py", home)
    (home / "given").write_text(json.dumps(given))
    spark = home / "home_of_spark"  # Executors write there.
    create_home(spark)
    conf = [word for name, value in ON_CLUSTER.items() for word in ("--conf", f"{name}={value}")]
    command = [
        str(spark / "bin/spark-submit"), "--master", MASTER, "--py-files", str(archive), *conf,
        "job.py", "given",
    ]  # fmt: skip
    environment = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    environment |= {
        "HOME": str(home), "SPARK_HOME": str(spark), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
    }  # fmt: skip
    with trio.fail_after(JOB_S_MAX):
        done = await trio.run_process(
            command, env=environment, cwd=home, check=False, stdin=subprocess.DEVNULL,
            capture_stdout=True, capture_stderr=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


async def test_executors_with_only_what_was_shipped_read_and_send_everything_once(
    tmp_path: Path,
) -> None:
    """An encrypted log, so that executors need the key, too: a path, by option."""
    home, notes, report = tmp_path / "home", tmp_path / "notes", tmp_path / "report"
    home.mkdir()
    notes.mkdir()
    python = lend_packages(tmp_path / "environment")
    archive = ship(tmp_path)
    async with (
        serving(tmp_path / "data", config=replace(SMALL, encrypt=True)) as broker,
        client(broker) as shop,
    ):
        await shop.declare_queue("told")
        for name in ("one", "two"):
            await shop.declare_stream(name)
            await shop.declare_queue(f"{name}.copy")
            await shop.declare_queue(f"{name}.live")
            await shop.publish_many("", name, numbered(COUNT))
        joining = way_into(tmp_path, broker)
        given = {
            "data": str(tmp_path / "data"), "keys": key_options(joining), "joining": joining,
            "report": str(report), "notes": str(notes), "archive": archive.name,
            "checkpoint": str(tmp_path / "checkpoint"),
        }  # fmt: skip
        async with nothing_left(home):
            await submit(home, given, archive, python)
        for name in ("one", "two"):
            assert await drain(shop, f"{name}.copy") == numbered(COUNT)
            assert await drain(shop, f"{name}.live") == numbered(COUNT)
        rows = sorted(map(json.loads, await drain(shop, "told")), key=lambda row: row["topic"])
        wanted = {"messages": COUNT, "missing": 0, "duplicates": 0}
        assert [row | wanted for row in rows] == rows
        assert [(row["topic"], row["first"]) for row in rows] == [("one", 0), ("two", COUNT)]
    counts = [one.counts for one in reports(report)]
    assert [(one.sent, one.duplicates) for one in counts] == [
        (2 * COUNT, 0),
        (2, 0),
        (2 * COUNT, 0),
    ]
    check_notes(notes, archive, home / "home_of_spark/work")


def check_notes(notes: Path, archive: Path, work: Path) -> None:
    """Every process has the packages from the archive, tasks from their executor's copy of it."""
    executors = set()
    for path in notes.iterdir():
        told = json.loads(path.read_text())
        directory = Path(told["directory"])
        assert told["elsewhere"] == []
        for file in told["shipped"]:
            assert archive.name in Path(file).parts
            assert path.name == "driver" or Path(directory, file).is_relative_to(
                directory / archive.name
            )
        if path.name != "driver":
            assert directory.is_relative_to(work)
            executors.add(directory)
    assert len(executors) == 2
    assert (notes / "driver").exists()
