"""`mesh send-file` and `receive-file`, between real processes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "in").mkdir()
    return Shell(tmp_path)


def names(shell: Shell) -> list[str]:
    return sorted(one.name for one in (shell.directory / "in").iterdir())


def test_a_file_arrives_whole(shell: Shell) -> None:
    content = os.urandom(5 << 20)
    (shell.directory / "report.bin").write_bytes(content)
    with shell.running("receive-file", "in", "--cluster", "files", "--count", "1", "--listen", shell.seed) as taker:  # fmt: skip
        done = shell.run("send-file", "files", "report.bin")
        assert done.returncode == 0, done.stderr
        assert hashlib.sha256(content).hexdigest().encode() in done.stderr
        assert taker.wait(10) == 0
    assert (shell.directory / "in/report.bin").read_bytes() == content
    assert names(shell) == ["report.bin"]


def test_a_receiver_with_a_small_window_takes_small_parts(shell: Shell) -> None:
    """Found: parts were of 128 KiB, whatever the other end takes, and the sender gave up."""
    content = os.urandom(300_000)
    (shell.directory / "report.bin").write_bytes(content)
    shell.environment["MESH_TUNNEL_WINDOW_BYTES"] = "64KiB"
    with shell.running("receive-file", "in", "--cluster", "files", "--count", "1", "--listen", shell.seed) as taker:  # fmt: skip
        done = shell.run("send-file", "files", "report.bin")
        assert done.returncode == 0, done.stderr
        assert taker.wait(10) == 0
    assert (shell.directory / "in/report.bin").read_bytes() == content


def test_nothing_is_overwritten_and_one_name_can_come_twice_at_once(shell: Shell) -> None:
    long = "n" * 250
    for place in ("a", "b"):
        (shell.directory / place).mkdir()
        (shell.directory / place / long).write_bytes(place.encode() * (3 << 20))
    (shell.directory / "in" / long).write_text("was here before")
    with shell.running("receive-file", "in", "--cluster", "files", "--listen", shell.seed) as taker:
        senders = [shell.start("send-file", "files", f"{place}/{long}") for place in ("a", "b")]
        for sender in senders:
            _, said = sender.communicate(timeout=30)
            assert sender.returncode == 0, said
        taker.send_signal(signal.SIGTERM)
        assert taker.wait(10) == 0
    assert names(shell) == [long, f"{long}.1", f"{long}.2"]
    assert (shell.directory / "in" / long).read_text() == "was here before"
    contents = {(shell.directory / "in" / f"{long}.{n}").read_bytes() for n in (1, 2)}
    assert contents == {b"a" * (3 << 20), b"b" * (3 << 20)}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["send-file", "files", "missing"], b"missing: No such file"),
        (["send-file", "files", "in"], b"not a regular file"),
        (["send-file", "files", "pipe"], b"not a regular file"),
        (["send-file", "files", ".hidden"], b"refused, it starts with a dot"),
        (["receive-file", "nowhere"], b"nowhere: no such directory"),
        (["receive-file", "pipe"], b"no such directory"),
    ],
)
def test_what_cannot_be_done_is_said_before_joining(
    shell: Shell, words: list[str], says: bytes
) -> None:
    os.mkfifo(shell.directory / "pipe")
    (shell.directory / ".hidden").write_text("x")
    done: subprocess.CompletedProcess[bytes] = shell.run(*words)
    assert (done.returncode, done.stdout) == (1, b"")
    assert says in done.stderr
    assert done.stderr.count(b"\n") == 1, "and nothing about members or seeds"


def test_a_stdout_that_nobody_reads_is_not_the_senders_fault(shell: Shell) -> None:
    """Found: the file was stored, and its sender told that it was not: a broken pipe over there."""
    (shell.directory / "report.bin").write_bytes(b"content")
    with shell.running("receive-file", "in", "--cluster", "files", "--listen", shell.seed) as taker:
        assert taker.stdout is not None
        taker.stdout.close()
        done = shell.run("send-file", "files", "report.bin")
        assert done.returncode == 0, done.stderr
        taker.wait(10)
    assert names(shell) == ["report.bin"]
