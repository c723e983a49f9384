"""`mesh-broker` as an operator uses it: real processes, real directories."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mesh.entry import TERMINATED
from mesh.loading import INTERRUPTED
from tests.loopback import HOST
from tests.shell import Shell

LINES = [f"order {number}".encode() for number in range(1000)]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path, "durable.cli")
    shell.environment["MESH_SETTLE_S"] = "5"
    return shell


class Served:
    """A broker of its own process; its events, one by one."""

    def __init__(self, shell: Shell, *words: str) -> None:
        listen = ("--listen", shell.seed)
        self._buffer = b""
        self.recovered: dict[str, Any] = {}
        """What it said of its first vhost."""
        self.process = shell.start("serve", "--data", "data", "--json", *listen, *words)

    def event(self, wanted: str) -> dict[str, Any]:
        """The next one of that name."""
        stdout = self.process.stdout
        assert stdout is not None
        while True:
            while b"\n" not in self._buffer:
                assert select.select([stdout], [], [], 20)[0], f"no {wanted} within 20 s"
                piece = os.read(stdout.fileno(), 1 << 16)
                assert piece, f"ended before {wanted}: {self.words()}"
                self._buffer += piece
            line, self._buffer = self._buffer.split(b"\n", 1)
            row: dict[str, Any] = json.loads(line)
            if row["event"] == wanted:
                return row

    def words(self) -> str:
        """Everything on stderr, once it has ended."""
        assert self.process.stderr is not None
        said = self.process.stderr.read().decode()
        assert "Traceback" not in said, said
        return said

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(9)  # Longer: what drains it has been cancelled.


@contextmanager
def served(shell: Shell, *words: str) -> Iterator[Served]:
    """A broker that is ready."""
    broker = Served(shell, *words)
    try:
        broker.recovered = broker.event("recovered")
        broker.event("ready")
        yield broker
    finally:
        broker.process.kill()
        broker.process.communicate()


def refused(shell: Shell, *words: str, status: int = 1) -> str:
    """The one line it says."""
    done = shell.run(*words)
    assert (done.returncode, done.stdout) == (status, b""), done.stderr
    (line,) = done.stderr.splitlines()
    return line.decode()


def good(shell: Shell, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = shell.run(*words, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_says_when_it_is_ready_and_ends_as_it_is_told(
    shell: Shell, number: int, status: int
) -> None:
    broker = Served(shell)
    found, ready = broker.event("recovered"), broker.event("ready")
    assert (found["vhost"], found["formatted"], found["gaps"]) == ("/", True, [])
    assert shell.seed in ready["endpoints"]
    assert ready["pid"] == broker.process.pid
    assert broker.stop(number) == status
    said = broker.words().splitlines()
    assert said[0] == "mesh-broker: vhost /: a new store"
    assert said[1] == f"mesh-broker: ready, broker at {' '.join(ready['endpoints'])}"
    assert said[2:] == ["mesh-broker: stopped"]
    broker.process.communicate()
    assert good(shell, "verify", "data").stdout.endswith(b"vhost /: no problems\n")


HANGS = """
import sys, threading
from durable import cli
from durable.log.real_disk import RealDisk
def lock(_):
    print("it hangs", flush=True)
    threading.Event().wait()
RealDisk.lock = lock
sys.argv = ["mesh-broker", "serve", "--data", "data"]
sys.exit(cli.main())
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_start_whose_disk_hangs_ends_as_it_is_told(
    shell: Shell, number: int, status: int
) -> None:
    """Found: nothing but SIGKILL ended it."""
    broker = subprocess.Popen(
        [sys.executable, "-c", HANGS], env=shell.environment, cwd=shell.directory,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"it hangs\n"
        broker.send_signal(number)
        _, said = broker.communicate(timeout=9)
        assert (broker.returncode, said) == (status, b"mesh-broker: stopped\n")
    finally:
        broker.kill()
        broker.communicate()


def test_what_was_confirmed_survives_sigkill(shell: Shell) -> None:
    with served(shell, "--segment-size", "1M") as broker:
        good(shell, "declare-queue", "jobs")
        done = good(shell, "publish", "jobs", "--lines", stdin=b"\n".join(LINES))
        assert b"on disk: 1000" in done.stderr
        assert good(shell, "consume", "jobs", "--count", "10").stdout.splitlines() == LINES[:10]
        broker.process.kill()
        broker.process.wait(10)
    looked = json.loads(good(shell, "inspect", "data", "--json").stdout)
    (queue,) = looked["vhosts"][0]["queues"]
    assert (queue["name"], queue["ready"]) == ("jobs", 990)
    with served(shell, "--segment-size", "1M") as broker:
        read = broker.recovered
        assert read["records"] >= 3
        assert read["bytes_read"] > len(b"".join(LINES))
        rate = read["bytes_read"] / read["seconds"] / 1e6
        assert read["megabytes_per_s"] == pytest.approx(rate, abs=0.1)
        done = good(shell, "consume", "jobs", "--count", "990", "--peek")
        assert done.stdout.splitlines() == LINES[10:]
        done = good(shell, "consume", "jobs", "--count", "1", "--json")
        row = json.loads(done.stdout)
        assert (row["payload"], row["redelivered"]) == ("order 10", 0), "a look changes nothing"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)]
)
def test_publishing_lines_says_how_far_it_came_when_it_is_interrupted(
    shell: Shell, number: signal.Signals, status: int
) -> None:
    with served(shell):
        good(shell, "declare-queue", "jobs")
        publisher = shell.start("publish", "jobs", "--lines")
        try:
            assert publisher.stdin is not None
            publisher.stdin.write(b"1\n2\n3\n")
            publisher.stdin.flush()
            good(shell, "consume", "jobs", "--count", "3")
            publisher.send_signal(number)
            assert publisher.wait(10) == status
            assert publisher.stderr is not None
            assert re.fullmatch(rb"mesh-broker: on disk: [0-3] of 3\n", publisher.stderr.read())
        finally:
            publisher.kill()
            publisher.communicate()


def test_a_broker_of_another_name_is_found_by_it(shell: Shell) -> None:
    """Each has its own cluster: one named `broker` is not there."""
    with served(shell, "--cluster", "archive"):
        by_name = ("--broker", "archive")
        good(shell, "declare-queue", "jobs", *by_name)
        good(shell, "publish", "jobs", "x", *by_name)
        assert good(shell, "consume", "jobs", "--count", "1", *by_name).stdout == b"x\n"
        assert "broker" in refused(shell, "publish", "jobs", "x", "--timeout", "0.5")


def test_only_one_broker_has_a_directory_and_nobody_looks_into_it_meanwhile(shell: Shell) -> None:
    with served(shell):
        assert "is open in another broker" in refused(shell, "serve", "--data", "data")
        for words in (["inspect"], ["verify"], ["salvage", "--to", "new"]):
            assert "--unlocked" in refused(shell, *words, "data")
        assert b"vhost /" in good(shell, "inspect", "data", "--unlocked").stdout
    assert good(shell, "verify", "data").returncode == 0


def test_other_peoples_directories_are_left_alone(shell: Shell) -> None:
    (shell.directory / "data").mkdir()
    (shell.directory / "data/thesis.tex").write_text("x")
    assert "it contains thesis.tex" in refused(shell, "serve", "--data", "data")
    assert "thesis.tex cannot be used by a broker: it is not a directory" in refused(
        shell, "serve", "--data", "data/thesis.tex"
    )
    assert os.listdir(shell.directory / "data") == ["thesis.tex"]
    for words in (["inspect"], ["verify"], ["salvage", "--to", "new"]):
        assert "not a broker's directory" in refused(shell, *words, "data")
    assert not (shell.directory / "new").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["serve", "--data", "network.secret"], "network.secret"),
        (["serve", "--data", "data", "--listen", "tcp://1.2.3.4:1"], "listen"),
        (["status", "--timeout", "0.5"], "refused, nothing listens there"),
        (["publish", "jobs", "x", "--timeout", "0.5"], "refused, nothing listens there"),
        (["inspect", "gone"], "gone: no such directory"),
        (["verify", "network.secret"], "no such directory"),
        (["salvage", "gone", "--to", "new"], "gone: no such directory"),
        (["definitions", "import", "gone"], "gone: No such file"),
        (["definitions", "import", "network.secret"], "not JSON"),
    ],
)
def test_what_cannot_be_is_a_line_and_status_1(shell: Shell, words: list[str], says: str) -> None:
    done = shell.run(*words)
    assert (done.returncode, done.stdout) == (1, b"")
    assert says in done.stderr.decode()
    assert not (shell.directory / "data").exists()


def test_on_a_port_that_is_used_no_store_is_made(shell: Shell) -> None:
    """Found: half a gigabyte, empty."""
    with served(shell):
        said = refused(shell, "serve", "--data", "other", "--listen", shell.seed)
        assert "already in use; use port 0 for any free port" in said
        assert not (shell.directory / "other").exists()
        again = refused(shell, "serve", "--data", "data", "--listen", shell.seed)
        assert "is open in another broker" in again


def test_on_a_port_that_is_used_a_store_stays_as_it_is(shell: Shell) -> None:
    """Found: it was recovered and written to first, two records with each attempt."""
    with served(shell):
        good(shell, "declare-queue", "jobs")
    files = {
        one: one.read_bytes() for one in (shell.directory / "data").rglob("*") if one.is_file()
    }
    with socket.create_server((HOST, 0)) as taken:
        listen = f"tcp://{HOST}:{taken.getsockname()[1]}"
        assert "already in use" in refused(shell, "serve", "--data", "data", "--listen", listen)
    assert {one: one.read_bytes() for one in files} == files


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--segment-size", "8"], "--segment-size is 8,"),
        (["--reserve-size", "1"], "--reserve-size is 1, want a multiple of 8"),
        (["--pending-size", "0"], "--pending-size is 0, want more than 0"),
        (["--window-size", "1G"], "does not fit into a segment"),
        (
            ["--window-size", "190M"],
            "does not fit into a segment, which has room for 197132288 bytes",
        ),
        (["--window-size", "0"], "--window-size is 0"),
        (["--window-size", "10K"], "--window-size is 10240"),
        (["--capture-size", "0"], "--capture-size is 0,"),
        (["--window-size", "1K"], "--window-size is 1024: want at least 131072"),
        (["--window-size", "64K"], "--window-size is 65536: want at least 131072"),
        (["--segment-size", "64K"], "--segment-size is 65536: want at least 311296"),
        (["--segment-size", "64K", "--reserve-size", "8K"], "want at least 270336"),
        (["--listen", "127.0.0.1:7600"], "listen: want tcp://HOST:PORT"),
        (["--seed", "nowhere"], "seeds: "),
        (["--cluster", "Bad"], "'Bad'"),
        (["--network-secret-file", "gone"], "mesh keys new-network gone"),
    ],
)
def test_settings_that_cannot_be_are_wrong_usage_and_make_no_store(
    shell: Shell, words: list[str], says: str
) -> None:
    assert says in refused(shell, "serve", "--data", "data", *words, status=2)
    assert not (shell.directory / "data").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["serve"], ["serve", "--data", ""], ["serve", "--data", "d", "--recent-size", "64X"],
        ["inspect", "data", "--cat"], ["publish", "jobs", "x", "--lines"], ["salvage", "data"],
        ["declare-queue", "jobs", "max_length"], ["declare-queue", "jobs", "name=other"],
        ["declare-stream", "audit", "name=audit"],
    ],
)  # fmt: skip
def test_wrong_usage_is_status_2(shell: Shell, words: list[str]) -> None:
    done = shell.run(*words)
    assert done.returncode == 2
    (said,) = done.stderr.decode().splitlines()
    assert said.startswith(f"mesh-broker {words[0]}: ")


def test_that_a_queue_ends_with_the_command_is_said(shell: Shell) -> None:
    """Found: an exclusive queue was "declared", and there was none."""
    with served(shell):
        told = good(shell, "declare-queue", "mine", "exclusive=true").stderr
        assert b"mine declared, and deleted with this command's connection" in told
        told = good(shell, "declare-queue", "ours", "exclusive=false").stderr
        assert told.endswith(b"ours declared\n")


def test_what_a_broker_refuses_is_said_by_name(shell: Shell) -> None:
    refusals = (
        (["declare-queue", "jobs", "max_length=20"], b"max_length: existing 10, requested 20"),
        (["publish", "job", "x"], b"mesh-broker: there is no queue 'job': did you mean 'jobs'?"),
        (["publish", "mail", "x"], b"mesh-broker: there is no queue 'mail': declare it first"),
        (["publish", "jobs", "x", "--exchange", "amq.direct"], b"routes 'jobs' to no queue: bind"),
        (
            ["publish", "order.eu", "x", "--exchange", "amq.topic"],
            b"did you mean 'orders.eu', which has a binding",
        ),
        (
            ["publish", "orders.us", "x", "--exchange", "amq.fanout"],
            b"'orders.us' to no queue: bind",
        ),
        (["consume", "job"], b"did you mean 'jobs'?"),
        (["bind", "amq.topic", "job", "a"], b"no queue 'job'"),
        (  # Found: "declare it first".
            ["bind", "amq.topic", "nowhere", "a"],
            b"no queue 'nowhere': an exchange has that name: bind to it with --to-exchange",
        ),
        (["status", "--vhost", "other"], b"no vhost 'other'"),
        (  # Found: "without if_empty", which is no option.
            ["delete-queue", "full", "--if-empty"],
            b"1 messages; consume or purge them first, or delete it without --if-empty",
        ),
        (["delete-exchange", "used", "--if-unused"], b"or delete it without --if-unused"),
    )
    with served(shell):
        good(shell, "declare-queue", "jobs", "max_length=10")
        good(shell, "bind", "amq.topic", "jobs", "orders.eu")
        good(shell, "declare-exchange", "nowhere")
        good(shell, "bind", "amq.fanout", "nowhere", "orders.us", "--to-exchange")
        good(shell, "declare-queue", "full")
        good(shell, "publish", "full", "x")
        good(shell, "declare-exchange", "used")
        good(shell, "bind", "used", "full")
        for process, says in [(shell.start(*words), says) for words, says in refusals]:
            out, words = process.communicate(timeout=40)
            assert (process.returncode, out) == (1, b""), words
            lines = words.splitlines()
            assert len(lines) == 1, words
            (line,) = lines
            assert says in line


def test_definitions_go_out_and_come_in_the_same(shell: Shell) -> None:
    written = {
        "version": 1, "vhost": "/",
        "queues": [
            {"name": "jobs", "max_length": 10, "dead_letter_exchange": "dead"},
            {"name": "lost"}, {"name": "scratch", "durability": "memory"}, {"name": "größe"},
        ],
        "exchanges": [{"name": "dead", "type": "fanout"}],
        "streams": [{"name": "audit", "patterns": ["orders.>"], "max_age_s": 60}],
        "bindings": [
            {"exchange": "dead", "destination": "lost"},
            {"exchange": "dead", "destination": "scratch"},
            {"exchange": "amq.headers", "destination": "jobs", "arguments": {"n": 1}},
        ],
        "permissions": [
            {"cluster": "console", "configure": ".*", "write": ".*", "read": ".*"}
        ],
    }  # fmt: skip
    (shell.directory / "written.json").write_text(json.dumps(written))
    wrong = {**written, "bindings": [{"exchange": "dead", "destination": "nothing"}]}
    (shell.directory / "wrong.json").write_text(json.dumps(wrong))
    with served(shell) as broker:
        assert b"4 queues, 1 stream" in good(shell, "definitions", "import", "written.json").stderr
        good(shell, "definitions", "export", "all.json")
        assert b"nothing new" in good(shell, "definitions", "import", "all.json").stderr
        assert broker.stop() == 0
    first = json.loads((shell.directory / "all.json").read_text())
    names = {one["name"] for one in first["queues"]}
    assert names == {"jobs", "lost", "größe"}, "memory ends with it"
    assert len(first["bindings"]) == 2
    (shell.directory / "data").rename(shell.directory / "old")
    with served(shell) as broker:
        said = refused(shell, "definitions", "import", "wrong.json")
        assert said.startswith("mesh-broker: wrong.json: no queue 'nothing'")
        (shell.directory / "none.json").write_text("{}")
        said = refused(shell, "definitions", "import", "none.json")
        assert said.startswith("mesh-broker: none.json: definitions: version is None"), (
            "Found: no file"
        )
        assert b"3 queues" in good(shell, "definitions", "import", "all.json").stderr
        plain = {"PYTHONIOENCODING": "ascii"}  # Found: a stack trace, for the name that is not.
        shown = shell.run("definitions", "export", "-", environment=plain).stdout
        assert json.loads(shown) == first
        assert b"gr\\xf6\\xdfe" in shell.run("status", environment=plain).stdout
        assert broker.stop() == 0
    records = good(shell, "inspect", "data", "--records", "--json").stdout.splitlines()
    changes = [row["what"] for row in map(json.loads, records) if row["kind"] == "definitions"]
    assert (
        changes[0] == changes[1] == "1 x exchange, 3 x queue, 1 x stream, 2 x bind, 1 x permission"
    )
    assert all("snapshot" in one for one in changes[2:]), "one import is one record, written twice"


def test_definitions_of_one_vhost_go_into_another(shell: Shell) -> None:
    with served(shell) as broker:
        good(shell, "declare-queue", "jobs")
        good(shell, "definitions", "export", "all.json")
        import_it = ["definitions", "import", "all.json"]
        assert "no vhost 'test'" in refused(shell, *import_it, "--vhost", "test")
        assert good(shell, "declare-vhost", "test").stderr == b"mesh-broker: vhost test declared\n"
        assert b"declared: 1 queues" in good(shell, *import_it, "--vhost", "test").stderr
        out = good(shell, "definitions", "export", "-", "--vhost", "test").stdout
        assert [one["name"] for one in json.loads(out)["queues"]] == ["jobs"]
        (shell.directory / "test.json").write_bytes(out)
        again = good(shell, "definitions", "import", "test.json")
        assert again.stderr == b"mesh-broker: declared: nothing new\n", "where it came from"
        good(shell, "publish", "jobs", "x", "--vhost", "test")
        assert broker.stop() == 0
    of_jobs = ["inspect", "data", "--queue", "jobs", "--cat"]
    assert good(shell, *of_jobs).stdout == b"", "of vhost /"
    assert good(shell, *of_jobs, "--vhost", "test").stdout == b"x\n"


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_disk_that_fails_ends_the_broker_unless_told_otherwise(
    shell: Shell, keep_going: bool
) -> None:
    """A limit on the size of its files, set while it runs: its next write fails."""
    words = ["--segment-size", "1M", *(["--keep-going"] if keep_going else [])]
    with served(shell, *words) as broker:
        good(shell, "declare-queue", "jobs")
        good(shell, "publish", "jobs", "before")
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (1000, 1000))
        done = shell.run("publish", "jobs", "--lines", stdin=b"\n".join([b"x" * 1000] * 200))
        assert done.returncode == 1, "refused, or unknown"
        failed = broker.event("failed")
        assert failed["vhost"] == "/"
        if not keep_going:
            assert broker.process.wait(20) == 1
            assert broker.words().count("THE DISK FAILED") == 1
            return
        assert "the store has stopped" in refused(shell, "publish", "jobs", "x")
        done = good(shell, "consume", "jobs", "--count", "1", "--peek")
        assert done.stdout == b"before\n", "what can be read is delivered"
        done = shell.run("status")
        assert (done.returncode, b"THE STORE HAS STOPPED" in done.stdout) == (1, True)
        assert broker.stop() == 0


def test_a_disk_that_fails_while_the_broker_ends_is_said_by_its_status(shell: Shell) -> None:
    """Found: status 0, as if all that was in flight were on the disk. Here it is the snapshot that it ends with."""
    with served(shell, "--segment-size", "1M") as broker:
        good(shell, "declare-queue", "jobs")
        good(shell, "publish", "jobs", "x" * 1000)
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (1000, 1000))
        assert broker.stop() == 1
        assert broker.event("failed")["vhost"] == "/"
        assert broker.words().count("THE DISK FAILED") == 1
