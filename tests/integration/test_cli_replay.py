"""`mesh replay` where it ends before Spark begins: what is wrong is one line, at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import mesh
from durable.broker.directory import make_vhost
from security.files import format_network_secret
from tests.brokers import node_of, serving
from tests.nodes import node
from tests.processes import SECRET

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

from spark.replay.preflight import destination_names
from spark.sink.errors import Unreachable
from spark.sink.options import read_sink_options
from tests.spark.sinks import way_in

ROOT = Path(__file__).parents[2]
HIDDEN = "import sys; sys.modules['pyspark'] = None; from mesh.cli import main; sys.exit(main())"


def replay(*args: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-m", "mesh.cli"] if code is None else ["-c", code]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MESH_")}
    return subprocess.run(
        [sys.executable, *start, "replay", *args], capture_output=True, text=True, check=False,
        env={**environment, "PYTHONPATH": str(ROOT)}, timeout=50,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--to", "Broker"], "a broker's cluster"),
        (["--to", "b", "--speed", "fast"], "a number, more than 0"),
        (["--to", "b", "--sample", "2"], "at most 1"),
        (["--to", "b", "--from", "yesterday"], "2026-"),
        (["--to", "b", "--topic", "a b"], "tokens"),
        (["--to", "b", "--max-gap", "5 parsecs"], "200ms"),
        (["--to", "b", "--loop", "0"], "whole number"),
        (["--to", "b", "--vhost", ""], "a name"),
        (["--to", "b", "--max-gap", "5s"], "--max-gap and --speed"),
        (["--to", "b", "--from", "2026-01-02", "--until", "2026-01-01"], "--from and --until"),
        ([], "--to"),
    ],
)
def test_wrong_usage(args: list[str], text: str) -> None:
    """Found: options that contradict each other were status 1, as what the mesh refuses."""
    done = replay("orders.data", *args)
    assert done.returncode == 2
    assert text in done.stderr.splitlines()[-1]


def test_keys_that_are_not_there(tmp_path: Path) -> None:
    make_vhost(tmp_path, "/")
    secret = ("--network-secret-file", str(tmp_path / "none"))
    done = replay(str(tmp_path), "--to", "b", "--timeout", "1", *secret)
    assert (done.returncode, done.stdout) == (1, "")
    assert "none" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_spark_it_says_what_to_install() -> None:
    done = replay("orders.data", "--to", "b", code=HIDDEN)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "mesh: pyspark is not installed: pip install '.[spark]' in the project's clone, and apt-get "
        "install openjdk-17-jre-headless if there is no Java 17"
    ]


async def names(tmp_path: Path, seed: mesh.Node, **options: str) -> frozenset[str]:
    secret = options.pop("secret", SECRET)
    given = {**way_in(tmp_path, seed, secret), "timeoutSeconds": "0.5", **options}
    return await trio.to_thread.run_sync(destination_names, read_sink_options(given))


async def test_who_cannot_be_reached_is_named(tmp_path: Path) -> None:
    async with node("shop") as shop:
        with pytest.raises(Unreachable, match="broker 'elsewhere' cannot be reached"):
            await names(tmp_path, shop, to="queues", broker="elsewhere")
        assert await names(tmp_path, shop) == frozenset(), (
            "to topics it is enough that somebody is there"
        )
        stranger = format_network_secret(b"another secret of 32 bytes, yes!")
        with pytest.raises(Unreachable, match=r"no members found within 0.5 s.*doctor"):
            await names(tmp_path, shop, secret=stranger)


async def test_the_names_of_a_brokers_queues_and_streams(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as broker:
        found = await names(tmp_path, node_of(broker), to="queues", timeoutSeconds="20")
        assert found == frozenset()
