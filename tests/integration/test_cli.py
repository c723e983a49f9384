"""The command line, as a person uses it: real processes, a network of one seed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mesh.cli import main
from mesh.commands.transfer import safe_name
from mesh.errors import MeshError
from tests.nodes import free_ports


class Shell:
    """Runs `mesh` with one network secret and one seed address."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seed = f"tcp://127.0.0.1:{free_ports(1)}"
        secret = directory / "network.secret"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MESH_")}
        self.environment = {
            **environment, "MESH_NETWORK_SECRET_FILE": str(secret), "MESH_ZEROCONF": "false",
            "MESH_SEEDS": self.seed, "MESH_LISTEN": "tcp://127.0.0.1:0",
        }  # fmt: skip
        assert self.run("keys", "new-network", str(secret)).returncode == 0

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "mesh.cli", *words], input=stdin, capture_output=True,
            env=self.environment, cwd=self.directory, timeout=40, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on; entered once it has said its first word."""
        process = subprocess.Popen(
            [sys.executable, "-m", "mesh.cli", *words], env=self.environment, cwd=self.directory,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            assert process.stderr.readline()
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_request_members_and_a_clean_end(shell: Shell) -> None:
    with shell.running("serve", "--echo", "--cluster", "echo", "--listen", shell.seed) as server:
        done = shell.run("request", "echo", "hello")
        assert (done.stdout, done.returncode) == (b"hello\n", 0)
        done = shell.run("request", "echo", "-", "--json", stdin=b"from stdin")
        assert json.loads(done.stdout) == {"reply": "from stdin"}
        done = shell.run("request", "echo", "all", "--gather", "--json")
        assert json.loads(done.stdout)["reply"] == "all"
        done = shell.run("members", "--json")
        assert json.loads(done.stdout)["clusters"] == ["echo"]
        done = shell.run("request", "echo/missing", "x")
        assert done.returncode == 1
        assert b"no_such_endpoint" in done.stderr
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0, "SIGTERM leaves properly"


def test_publish_and_subscribe(shell: Shell) -> None:
    with shell.running("subscribe", "orders.>", "--count", "2", "--json", "--listen", shell.seed) as subscriber:  # fmt: skip
        done = shell.run("publish", "orders.eu", "--lines", stdin=b"one\ntwo\n")
        assert done.returncode == 0, done.stderr
        assert subscriber.stdout is not None
        rows = [json.loads(subscriber.stdout.readline()) for _ in range(2)]
        assert [row["payload"] for row in rows] == ["one", "two"]
        assert subscriber.wait(10) == 0
    done = shell.run("publish", "orders.eu", "three")
    assert done.returncode == 1, "nobody is there any more"


def test_a_file_arrives_whole(shell: Shell) -> None:
    content = os.urandom(5 << 20)
    (shell.directory / "report.bin").write_bytes(content)
    with shell.running("receive-file", "in", "--cluster", "files", "--count", "1", "--listen", shell.seed) as taker:  # fmt: skip
        done = shell.run("send-file", "files", "report.bin")
        assert done.returncode == 0, done.stderr
        assert hashlib.sha256(content).hexdigest().encode() in done.stderr
        assert taker.wait(10) == 0
    assert (shell.directory / "in/report.bin").read_bytes() == content
    assert [one.name for one in (shell.directory / "in").iterdir()] == ["report.bin"]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".hidden", "", "a\\b", "x\n", 7, "n" * 300])  # fmt: skip
def test_a_peer_cannot_write_elsewhere(name: object) -> None:
    with pytest.raises(MeshError):
        safe_name(name)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["request", "nobody", "x", "--settle", "0.2"], 1, b"no members"),
        (["request", "UPPER", "x"], 1, b"UPPER"),
        (["broadcast", "nobody", "--settle", "0.1"], 1, b"0 members told"),
        (["members", "--listen", "tcp://1.2.3.4:1"], 1, b"listen"),
        (["members", "--network-secret-file", "missing"], 1, b"missing"),
        (["frobnicate"], 2, b"invalid choice"),
        (["keys", "show"], 2, b"--network-secret-file"),
        (["send-file", "files", "missing"], 1, b"missing"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_status(
    shell: Shell, words: list[str], status: int, says: bytes
) -> None:
    done = shell.run(*words)
    assert done.returncode == status, done.stderr
    assert says in done.stderr


def test_keys_and_doctor(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    secret = str(shell.directory / "network.secret")
    assert main(["keys", "rotate", "--network-secret-file", secret]) == 0
    assert main(["keys", "show", "--network-secret-file", secret, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["generation"] for row in rows] == ["new", "old"]
    assert main(["keys", "drop-old", "--network-secret-file", secret]) == 0
    done = shell.run("doctor", "--json")
    checks = {row["check"]: row["ok"] for row in json.loads(done.stdout)}
    assert checks["keys"]
    assert checks["port"]
    (shell.directory / "network.secret").chmod(0o644)
    done = shell.run("doctor")
    assert done.returncode == 1
    assert b"chmod 600" in done.stdout
