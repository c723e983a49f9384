"""`mesh capture`: what a broker has stored, from a shell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import durable
from spark.capture.rows import SQL_TYPES
from tests.brokers import SMALL, client, numbered, serving
from tests.nodes import node
from tests.processes import SECRET
from tests.shell import Shell
from tests.stores import flip, secret_file

JOBS = 5000
"""More than a pipe holds."""


async def store(data: Path, config: durable.BrokerConfig = SMALL) -> None:
    async with serving(data, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        await shop.bind("amq.topic", "audit", "orders.#")
        await shop.publish_many("", "jobs", numbered(JOBS))
        await shop.publish("amq.topic", "orders.eu", b"\x1b[31m\xff", headers={"who": "me"})
        await shop.publish("amq.topic", "orders.us", b"plain")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """With a broker's directory `data` that three topics have been stored in."""
    trio.run(store, tmp_path / "data")
    return Shell(tmp_path)


def rows(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_stats_count_by_queue_and_topic(shell: Shell) -> None:
    found = rows(shell.run("capture", "stats", "data", "--json").stdout)
    counted = {(row["queue"], row["topic"]): (row["messages"], row["bytes"]) for row in found}
    assert counted == {
        ("jobs", "jobs"): (JOBS, sum(map(len, numbered(JOBS)))),
        ("audit", "orders.eu"): (1, 6),
        ("audit", "orders.us"): (1, 5),
    }
    assert all(0 < row["p50_us"] <= row["p99_us"] <= row["max_us"] for row in found)
    table = shell.run("capture", "stats", "data").stdout.decode().splitlines()
    assert table[0].split()[:4] == ["queue", "topic", "messages", "bytes"]
    assert [line.split()[2] for line in table[1:]] == ["1", "1", f"{JOBS:,}"]


def test_cat_prints_messages_and_nothing_that_steers_a_terminal(shell: Shell) -> None:
    done = shell.run("capture", "cat", "data", "--stream", "audit")
    lines = done.stdout.decode().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "audit@0 orders.eu \\x1b[31m\\xff",
        "audit@1 orders.us plain",
    ]


def test_cat_as_json_loses_nothing(shell: Shell) -> None:
    first, second = rows(shell.run("capture", "cat", "data", "--stream", "audit", "--json").stdout)
    assert (first["payload_base64"], first["headers"]) == ("G1szMW3/", {"who": "me"})
    assert (second["payload"], second["exchange"]) == ("plain", "amq.topic")
    assert {*SQL_TYPES} - {"value"} <= {*second}, "Found: not when it was published"
    assert second["published"] <= second["timestamp"]


def test_every_time_that_is_printed_says_utc_alike(shell: Shell) -> None:
    """Found: `stats` wrote +00:00 where `cat` writes Z."""
    cat = rows(shell.run("capture", "cat", "data", "--stream", "audit", "--json").stdout)
    stats = rows(shell.run("capture", "stats", "data", "--json").stdout)
    told = [row[name] for row in cat for name in ("timestamp", "published")]
    told += [row[name] for row in stats for name in ("first", "last")]
    assert all(re.fullmatch(r"[-\d]{10}T[:\d]{8}\.\d{3,6}Z", one) for one in told)


@pytest.mark.parametrize(("us", "year"), [(-(2**63), "0001"), (2**63 - 1, "9999")])
def test_a_time_that_is_in_no_calendar_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, us: int, year: str
) -> None:
    """Found: a stack trace, for one message of a publisher whose clock said so."""
    clock = SimpleNamespace(time_ns=lambda: us * 1000)
    monkeypatch.setattr("durable.client.publisher.time", clock)
    trio.run(store, tmp_path / "data")
    done = Shell(tmp_path).run("capture", "cat", "data", "--stream", "audit", "--json")
    assert [row["published"][:4] for row in rows(done.stdout)] == [year, year]


def test_a_stdout_that_is_full_is_named(shell: Shell) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mesh.cli", "capture", "cat", "data"], stdout=full,
            stderr=subprocess.PIPE, env=shell.environment, cwd=shell.directory, timeout=40,
            check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"mesh: stdout: No space left on device\n")


def test_cat_of_payloads_takes_patterns_and_a_limit(shell: Shell) -> None:
    assert shell.run("capture", "cat", "data", "--payload", "--topic", "*.us").stdout == b"plain\n"
    done = shell.run("capture", "cat", "data", "--payload", "--queue", "jobs", "--limit", "7")
    assert done.stdout.splitlines() == numbered(7)
    most = ("--limit", "9" * 18)
    done = shell.run("capture", "cat", "data", "--payload", "--topic", "*.us", *most)
    assert done.stdout == b"plain\n", "Found: an OverflowError of Arrow's"


def test_export_writes_parquet_by_date_and_topic_and_overwrites_nothing(shell: Shell) -> None:
    import pyarrow.dataset as ds

    assert shell.run("capture", "export", "data", "out").returncode == 0
    table = ds.dataset(str(shell.directory / "out"), partitioning="hive").to_table()
    found = sorted(zip(table["topic"].to_pylist(), table["value"].to_pylist(), strict=True))
    expected = [("jobs", one) for one in numbered(JOBS)]
    assert found == sorted([*expected, ("orders.eu", b"\x1b[31m\xff"), ("orders.us", b"plain")])
    again = shell.run("capture", "export", "data", "out")
    assert (again.returncode, again.stderr.count(b"\n")) == (1, 1)
    assert b"the directory is not empty" in again.stderr
    assert shell.run("capture", "export", "data", "none", "--topic", "nobody").returncode == 0
    assert list((shell.directory / "none").iterdir()) == []


def test_export_takes_every_topic_there_may_be(tmp_path: Path) -> None:
    """Found: `File name too long` for legal topics, and what came behind them was not written."""
    import pyarrow.dataset as ds

    topics = ["a.first", "z" * 255, "z" * 254, "ä" * 127, "b/c.d%", "b.last"]

    async def publish() -> None:
        async with serving(tmp_path / "data") as broker, client(broker) as shop:
            await shop.declare_stream("audit")
            await shop.bind("amq.topic", "audit", "#")
            for topic in topics:
                await shop.publish("amq.topic", topic, b"x")

    trio.run(publish)
    assert Shell(tmp_path).run("capture", "export", "data", "out").returncode == 0
    table = ds.dataset(str(tmp_path / "out"), partitioning="hive").to_table()
    found = sorted(table["full_topic"].to_pylist())
    assert found == sorted(topics)
    by_folder = ds.field("topic") == "b/c.d%"
    assert table.filter(by_folder)["full_topic"].to_pylist() == ["b/c.d%"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("stats", "nowhere"), 1, "no such directory"),
        (("cat", "data", "--stream", "nope"), 1, "no stream 'nope'"),
        (("cat", "data", "--from", "yesterday"), 2, "yesterday"),
        (("cat", "data", "--from", ""), 2, "UTC unless it has a zone, or seconds since 1970"),
        (("cat", "data", "--from", "1750000000000"), 2, "seconds since 1970"),
        (("cat", "data", "--from", "0001-01-01T00:00+12:00"), 2, "seconds since 1970"),
        (("cat", "data", "--until", "9999-12-31T23:59:59-12:00"), 2, "seconds since 1970"),
        (("cat", "data", "--vhost", "\udcff"), 2, "text, UTF-8"),
        (("cat", "data", "--topic", "\udcff"), 2, "text, UTF-8"),
        (("cat", "data", "--vhost", ""), 2, "a name"),
        (("cat", "data", "--queue", ""), 2, "a name"),
        (("cat", "data", "--from", "2026-01-02", "--until", "2026-01-01"), 2, "--from and --until"),
        (("stats", "data", "--keys-dir", "a", "--network-secret-file", "b"), 2, "not allowed with"),
        (("cat", "data", "--vhost", "other"), 1, "other"),
        (("cat", "data", "--limit", "0"), 2, "1 or more"),
        (("cat", "data", "--topic", "a..b"), 2, "a..b"),
    ],
)
def test_bad_input_is_one_line(
    shell: Shell, words: tuple[str, ...], status: int, said: str
) -> None:
    done = shell.run("capture", *words)
    assert done.returncode == status
    (line,) = done.stderr.decode().splitlines()
    assert said in line


def test_damage_is_named_and_can_be_skipped(shell: Shell) -> None:
    (segment,) = shell.directory.rglob("msgs.0000000001")
    flip(segment, segment.read_bytes().index(b"".join(numbered(20))) + 7)
    refused = shell.run("capture", "cat", "data", "--payload")
    assert (refused.returncode, refused.stderr.count(b"\n")) == (1, 1)
    assert b"are damaged" in refused.stderr
    assert b"or give `mesh capture` --skip-damaged" in refused.stderr
    rest = shell.run("capture", "cat", "data", "--payload", "--skip-damaged")
    assert rest.returncode == 0
    assert rest.stdout.splitlines()[-1] == b"plain"
    assert numbered(JOBS)[6] not in rest.stdout.splitlines()


def test_a_damaged_header_of_a_segment_takes_no_message_away(shell: Shell) -> None:
    whole = shell.run("capture", "cat", "data", "--payload")
    (segment,) = shell.directory.rglob("msgs.0000000001")
    flip(segment, 0)
    found = shell.run("capture", "cat", "data", "--payload")
    assert (found.returncode, found.stdout) == (0, whole.stdout)
    assert len(whole.stdout.splitlines()) == JOBS + 2


def test_what_is_encrypted_wants_its_key(tmp_path: Path) -> None:
    trio.run(store, tmp_path / "data", replace(SMALL, encrypt=True))
    shell = Shell(tmp_path)
    key = secret_file(tmp_path / "its.secret", SECRET)
    payload = ("--payload", "--queue", "jobs", "--limit", "7")
    for command in (("stats", "data"), ("cat", "data", *payload), ("export", "data", "out")):
        done = shell.run("capture", *command)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
        assert b"the keys given are" in done.stderr, "the environment names another key"
        done = shell.run("capture", *command, "--network-secret-file", key)
        assert done.returncode == 0
        assert command[0] != "cat" or done.stdout.splitlines() == numbered(7)
    none = {"MESH_NETWORK_SECRET_FILE": ""}
    done = shell.run("capture", "cat", "data", environment=none)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"MESH_NETWORK_SECRET_FILE" in done.stderr
    done = shell.run("capture", "cat", "data", *payload, environment={
        "MESH_NETWORK_SECRET_FILE": key
    })  # fmt: skip
    assert done.stdout.splitlines() == numbered(7)


def test_a_reader_that_leaves_is_no_error(shell: Shell) -> None:
    process = shell.start("capture", "cat", "data")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(20) in (0, 141)
    for pipe in (process.stdin, process.stderr):
        pipe.close()  # type: ignore[union-attr]


async def store_elsewhere(data: Path) -> None:
    async with serving(data) as broker, client(broker) as shop:
        for vhost in ("billing", "bare"):
            await shop.create_vhost(vhost)
        assert broker.node is not None
        async with node("shop", broker.node) as joined:
            billing = durable.connect(joined, vhost="billing")
            await billing.declare_queue("jobs")
            await billing.publish("", "jobs", b"x")


def test_who_reads_an_empty_vhost_is_told_of_the_others(tmp_path: Path) -> None:
    """Found: an empty table, and not a word."""
    trio.run(store_elsewhere, tmp_path / "data")
    shell = Shell(tmp_path)
    told = b"mesh: vhost / has no messages; vhosts with queues or streams: billing; choose one with --vhost\n"
    for words in (["stats"], ["cat"], ["export", "out"]):
        done = shell.run("capture", words[0], "data", *words[1:])
        assert (done.returncode, done.stderr[: len(told)]) == (0, told)
    done = shell.run("capture", "stats", "data", "--vhost", "billing", "--topic", "other")
    assert (done.returncode, done.stderr) == (0, b""), "its messages were not wanted"
    done = shell.run("capture", "cat", "data", "--vhost", "billing", "--payload")
    assert (done.stdout, done.stderr) == (b"x\n", b"")
