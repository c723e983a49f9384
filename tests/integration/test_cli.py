"""The patterns from a shell: what is printed where, and which status a command ends with."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from security.files import new_network
from tests.shell import Shell

BINARY = b"\xff\x00\n"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_request_members_and_a_clean_end(shell: Shell) -> None:
    with shell.running("serve", "--echo", "--cluster", "echo", "--listen", shell.seed) as server:
        done = shell.run("request", "echo", "hello")
        assert (done.stdout, done.returncode) == (b"hello", 0)
        done = shell.run("request", "echo", "--timeout", "9", "-", stdin=BINARY)
        assert done.stdout == BINARY, "bytes as they are"
        done = shell.run("request", "echo", "-", "--json", stdin=b"from stdin")
        assert json.loads(done.stdout) == {"payload": "from stdin"}
        done = shell.run("request", "--json", "echo", "-", stdin=BINARY)
        assert base64.b64decode(json.loads(done.stdout)["payload_base64"]) == BINARY
        done = shell.run("request", "echo", "--gather", "all", "--json")
        assert json.loads(done.stdout)["payload"] == "all"
        assert b"answered: 1, failed: 0" in done.stderr
        done = shell.run("request", "echo/missing", "x", "--gather")
        assert (done.stdout, done.returncode) == (b"", 1), "errors are words, not data"
        assert b"no_such_endpoint" in done.stderr
        done = shell.run("members", "--json")
        assert json.loads(done.stdout)["clusters"] == ["echo"]
        assert shell.run("members").stdout.split()[1:3] == [b"echo", b"alive"]
        done = shell.run("broadcast", "echo", "flush")
        assert (done.stdout, done.stderr, done.returncode) == (
            b"",
            b"mesh: sent to members: 1\n",
            0,
        )
        done = shell.run("members", "nosuch")
        assert (b"no members of nosuch" in done.stderr, done.returncode) == (True, 1)
        done = shell.run("request", "echo/missing", "x")
        assert done.returncode == 1
        assert b"no_such_endpoint" in done.stderr
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0, "SIGTERM leaves properly"


def test_members_that_are_watched_come_and_go(shell: Shell) -> None:
    with shell.running("serve", "--echo", "--cluster", "echo", "--listen", shell.seed) as server:
        watcher = shell.start("members", "echo", "--watch", "--json")
        try:
            assert watcher.stdout is not None
            assert json.loads(watcher.stdout.readline())["state"] == "joined"
            server.send_signal(signal.SIGTERM)
            assert json.loads(watcher.stdout.readline())["state"] == "left"
            watcher.send_signal(signal.SIGINT)
            assert watcher.wait(10) == 130
        finally:
            watcher.kill()
            watcher.communicate()


def test_publish_and_subscribe(shell: Shell) -> None:
    with shell.running("subscribe", "orders.>", "--count", "3", "--json", "--listen", shell.seed) as subscriber:  # fmt: skip
        done = shell.run("publish", "--wait", "2", "--lines", "orders.eu", stdin=b"one\n\xff")
        assert done.returncode == 0, done.stderr
        assert b"published: 2, without subscribers: 0" in done.stderr
        tagged = ("--header", "n=1", "--header", "who=me", "--header", 'more={"a": [null]}')
        done = shell.run("publish", "orders.eu", "--wait", "2", "two\n", *tagged)
        assert subscriber.stdout is not None
        rows = [json.loads(subscriber.stdout.readline()) for _ in range(3)]
        assert [row.get("payload") for row in rows] == ["one", None, "two\n"]
        assert base64.b64decode(rows[1]["payload_base64"]) == b"\xff"
        assert rows[2]["headers"] == {"n": 1, "who": "me", "more": {"a": [None]}}
        assert subscriber.wait(10) == 0
    with shell.running("subscribe", "orders", "--listen", shell.seed) as subscriber:
        missed = shell.run("publish", "ordrs", "--wait", "2", "x")
        assert missed.returncode == 1
        assert missed.stderr == (
            b"mesh: did you mean orders? It has subscribers\n"
            b"mesh: published: 1, without subscribers: 1\n"
        )
    with shell.running("subscribe", "orders.>") as subscriber:
        assert subscriber.stdout is not None
        subscriber.stdout.close()
        assert subscriber.wait(10) == 0, "nobody reads on"
    done = shell.run("publish", "orders.eu", "three")
    assert done.returncode == 1, "nobody is there any more"
    assert f"seed {shell.seed}: connection refused".encode() in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["request", "nobody", "x", "--settle", "0.2"], 1, b"no members"),
        (["request", "nobody", "x", "--settle", "0"], 1, b"refused, nothing listens there"),
        (["request", "nobody", "--seed", "tcp://no.such.invalid:1", "--settle", "0"], 1, b"resolved"),
        (["request", "UPPER", "x"], 2, b"'U', character 1, is upper case"),
        (["broadcast", "nobody", "--settle", "0.1"], 1, b"sent to members: 0"),
        (["members", "--listen", "tcp://1.2.3.4:1"], 1, b"1.2.3.4:1: Cannot assign requested address\n"),
        (["members", "--listen", "tcp://127.0.0.1:99999"], 2, b"at most 65535"),
        (["members", "--network-secret-file", "gone"], 2, b"mesh keys new-network gone"),
        (["publish", "a b", "x"], 2, b"white space, control characters"),
        (["publish", "a.*", "x"], 2, b"'a.*'"),
        (["subscribe", "a.#"], 2, b"'a.#'"),
        (["serve", "--echo", "--cluster", "Bad"], 2, b"'Bad'"),
        (["keys", "new-cluster", "Bad"], 2, b"'Bad'"),
    ],
)  # fmt: skip
def test_what_is_refused_is_a_line_and_a_status(
    shell: Shell, words: list[str], status: int, says: bytes
) -> None:
    done = shell.run(*words)
    assert done.returncode == status, done.stderr
    assert says in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("environment", "file", "says"),
    [
        ({"MESH_SETTLE_S": "soon"}, "", b"environment variable MESH_SETTLE_S: want a number of"),
        ({}, "settle_s = 'soon'", b"mesh.toml settle_s: want a number of seconds"),
        ({}, "settle_s = -1", b"settle_s: must be at least 0"),
        ({"MESH_SETTEL_S": "2"}, "", b"did you mean MESH_SETTLE_S?"),
        ({"MESH_SEEDS": "nowhere"}, "", b"nowhere"),
        ({"MESH_NETWORK_SECRET_FILE": ""}, "", b"no keys: set network_secret"),
        ({"MESH_NETWORK_SECRET_FILE": "gone"}, "", b"gone: "),
        ({"MESH_NETWORK_SECRET_FILE": "mesh.toml"}, "", b"chmod 600 mesh.toml"),
        ({"MESH_NETWORK_SECRET": "garbage"}, "", b"network_secret"),
    ],
)
def test_a_wrong_setting_is_wrong_usage_wherever_it_was_set(
    shell: Shell, environment: dict[str, str], file: str, says: bytes
) -> None:
    """As `--settle soon` is: what calls a command must not see two statuses for one mistake."""
    (shell.directory / "mesh.toml").write_text(file)
    done = shell.run("members", environment=environment)
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    assert says in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", ["request db x", "publish a x", "members db"])
def test_who_has_the_keys_of_another_network_is_sent_to_the_doctor(
    shell: Shell, words: str
) -> None:
    new_network(shell.directory / "other.secret")
    with shell.running("serve", "--echo", "--cluster", "db", "--listen", shell.seed):
        keys = {"MESH_NETWORK_SECRET_FILE": "other.secret", "MESH_SETTLE_S": "0.3"}
        done = shell.run(*words.split(), environment=keys)
    assert done.returncode == 1
    assert done.stderr.count(b"mesh: no other members found; `mesh doctor` may tell why\n") == 1


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        ("publish a x --wait 0", b"published: 1, without subscribers: 1"),
        ("broadcast db x --settle 0", b"sent to members: 0"),
        ("request db x --gather --settle 0", b"answered: 0, failed: 0"),
    ],
)
def test_why_nobody_is_here_is_said_before_what_came_of_it(
    shell: Shell, words: str, counts: bytes
) -> None:
    done = shell.run(*words.split())
    *why, said = done.stderr.splitlines()
    assert (b"refused, nothing listens there" in b"".join(why), done.returncode) == (True, 1)
    assert said == b"mesh: " + counts


def test_an_interrupt_while_it_loads_is_status_130(shell: Shell) -> None:
    """A `trio` that interrupts itself stands for the third of a second that loading takes."""
    text = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    (shell.directory / "trio.py").write_text(text)
    done = shell.run("members", environment={"PYTHONPATH": str(shell.directory)})
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("words", "closed"), [("keys show", ">&-"), ("request db -", "<&-"), ("--help", ">&-")]
)
def test_what_is_closed_is_no_stack_trace(tmp_path: Path, words: str, closed: str) -> None:
    """Found: with `>&-` or `<&-` Python has no stdout or stdin at all, and commands ended with a trace."""
    new_network(tmp_path / "secret")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m mesh.cli {words} {closed}"], check=False,
        env={**os.environ, "MESH_NETWORK_SECRET_FILE": str(tmp_path / "secret")},
        capture_output=True, text=True, timeout=40,
    )  # fmt: skip
    said = done.stderr.splitlines()
    stream = "stdin" if closed == "<&-" else "stdout"
    assert (done.returncode, said) in ((0, []), (1, [f"mesh: {stream}: Bad file descriptor"]))
    assert words == "--help" or said


@pytest.mark.parametrize("package", ["mesh", "durable"])
def test_the_entry_loads_nothing_heavy(package: str) -> None:
    heavy = ("trio", "zmq", "nacl", "argparse", f"{package}.commands")
    code = f"import sys, {package}.cli; sys.exit(any(one in sys.modules for one in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_interrupt_while_stdin_is_silent_is_status_130(shell: Shell) -> None:
    with shell.running("subscribe", "a", "--listen", shell.seed) as subscriber:
        publisher = shell.start("publish", "a", "--lines", "--wait", "0.5")
        try:
            assert publisher.stdin is not None
            publisher.stdin.write(b"first\n")
            publisher.stdin.flush()
            assert subscriber.stdout is not None
            assert subscriber.stdout.readline() == b"a first\n"
            publisher.send_signal(signal.SIGINT)
            assert publisher.wait(10) == 130
            assert publisher.stderr is not None
            said = publisher.stderr.read()
            assert said == b"mesh: published: 1, without subscribers: 0\n", "and no stack trace"
        finally:
            publisher.kill()
            publisher.communicate()


def test_a_closed_pipe_is_no_error(shell: Shell) -> None:
    with shell.running("serve", "--echo", "--cluster", "echo", "--listen", shell.seed):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as stdout:
            done = subprocess.run(
                [sys.executable, "-m", "mesh.cli", "request", "echo", "x"], stdout=stdout,
                stderr=subprocess.PIPE, env=shell.environment, timeout=40, check=False,
            )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_paged_subscription_ends_when_it_is_told(shell: Shell) -> None:
    """Found: a pager that stopped reading stopped the whole node, SIGTERM included."""
    with shell.running("subscribe", "t", "--listen", shell.seed) as reader:
        lines = b"x" * 1000 + b"\n"
        done = shell.run("publish", "t", "--lines", "--wait", "1", stdin=lines * 500)
        assert done.returncode == 0, done.stderr
        reader.send_signal(signal.SIGTERM)
        assert reader.wait(10) == 0
