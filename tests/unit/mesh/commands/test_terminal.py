"""What is printed loses nothing, is valid JSON, and cannot steer a terminal."""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgpack
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import mesh
from mesh.commands.program import make_parser, run_program
from mesh.commands.terminal import (
    jsonable,
    payload,
    payload_fields,
    print_stderr,
    stdin_lines,
    until_signal,
    until_stdout_closed,
    write_stdout,
    write_stdout_line,
)
from mesh.entry import Stdout

BOTH = {signal.SIGTERM: 0, signal.SIGINT: 130}
TIMESTAMP = b"\x81\xa1t\xd6\xff\x00\x00\x00\x01"
"""{"t": one second after 1970}, as msgpack."""


@given(st.binary())
def test_no_payload_is_lossy(data: bytes) -> None:
    row = json.loads(json.dumps(payload_fields(data)))
    assert len(row) == 1
    if "payload" in row:
        assert row["payload"].encode() == data
    else:
        assert base64.b64decode(row["payload_base64"]) == data


def test_any_headers_a_peer_may_send_are_json() -> None:
    sent = {"a": b"\xff", b"k": [1, None, True, 0.5], "n": math.nan}
    headers = msgpack.unpackb(msgpack.packb(sent)) | msgpack.unpackb(TIMESTAMP)
    text = json.dumps(jsonable(headers), allow_nan=False)
    assert json.loads(text)["a"] == {"base64": "/w=="}
    assert json.loads(text)["b'k'"] == [1, None, True, 0.5]
    assert json.loads(text)["n"] == "nan"
    assert json.loads(text)["t"].startswith("Timestamp")


def test_headers_nested_deeper_than_python_recurses_are_cut() -> None:
    value: list[object] = []
    for _ in range(2000):
        value = [value]
    assert json.dumps(jsonable({"a": value})).count("[") < 40


def test_words_are_one_line_that_cannot_steer(capsys: pytest.CaptureFixture[str]) -> None:
    print_stderr("a\x1b[2J\nb é")
    assert capsys.readouterr().err == "mesh: a\\x1b[2J\\nb é\n"


@pytest.mark.parametrize(
    ("how", "shown"),
    [
        (("ascii", "strict"), b"gr\\xf6\\xdfe \\udcff"),
        (("ascii", "surrogateescape"), b"gr\\xf6\\xdfe \\udcff"),
        (("utf-8", "strict"), "größe \\udcff".encode()),
        (("utf-8", "surrogateescape"), "größe ".encode() + b"\xff"),
    ],
)
def test_a_name_that_stdout_cannot_show_is_escaped(
    monkeypatch: pytest.MonkeyPatch, how: tuple[str, str], shown: bytes
) -> None:
    """Found: a stack trace of `mesh-broker status`, where a queue had such a name."""
    written = io.BytesIO()
    stdout = io.TextIOWrapper(written, *how)

    def run(_: argparse.Namespace) -> int:
        sys.stdout.write("größe \udcff")
        return 0

    monkeypatch.setattr(sys, "stdout", stdout)
    parser = make_parser("mesh", "", "")
    parser.set_defaults(run=run)
    assert run_program(parser, []) == 0
    stdout.flush()
    assert written.getvalue() == shown


def test_words_name_the_program_that_runs_and_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Found: what ran after `mesh-broker` in the same process spoke as it did."""

    def run(_: argparse.Namespace) -> int:
        print_stderr("begun")
        return 0

    parser = make_parser("mesh-broker", "", "")
    parser.set_defaults(run=run)
    assert run_program(parser, []) == 0
    print_stderr("after it")
    assert capsys.readouterr().err == "mesh-broker: begun\nmesh: after it\n"


@pytest.mark.parametrize("failing", [False, True])
def test_where_no_words_go_the_status_is_that_of_what_was_done(
    monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    """Found: `publish ... 2>/dev/full` ended with 1, and its message was stored; what had failed, with a
    stack trace that nobody saw."""

    def run(_: argparse.Namespace) -> int:
        print_stderr("on disk: 1")
        if failing:
            raise mesh.MeshError("refused")
        return 0

    parser = make_parser("mesh-broker", "", "")
    parser.set_defaults(run=run)
    reader, writer = os.pipe()
    os.close(reader)
    for descriptor in (os.open("/dev/full", os.O_WRONLY), writer):
        stderr = os.fdopen(descriptor, "w", buffering=1)
        monkeypatch.setattr(sys, "stderr", stderr)
        assert run_program(parser, []) == failing
        monkeypatch.undo()
        with suppress(OSError):  # What it holds is tried again.
            stderr.close()


def test_an_argument_is_taken_as_its_bytes() -> None:
    assert payload("\udcff") == b"\xff"


@pytest.fixture
def unheard() -> Iterator[list[int]]:
    """Signals that came to whoever was there before: a process that runs tests must not end by them."""
    came = list[int]()
    before = {
        number: signal.signal(number, lambda number, _: came.append(number)) for number in BOTH
    }
    yield came
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_says_how_it_ends_and_others_change_nothing(
    unheard: list[int], first: signal.Signals
) -> None:
    with until_signal(BOTH) as stop:
        with stop.scope:
            signal.raise_signal(first)
            await trio.testing.wait_all_tasks_blocked()
            raise AssertionError("it goes on")
        for number in BOTH:
            signal.raise_signal(number)
        await trio.testing.wait_all_tasks_blocked()
        for number in BOTH:  # Found: what nobody had taken by the end came again, and cut it short.
            signal.raise_signal(number)
    assert (stop.status, unheard) == (BOTH[first], [])


async def test_whoever_is_told_before_the_wait_does_not_begin_it(unheard: list[int]) -> None:
    with until_signal() as stop:
        signal.raise_signal(signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        with stop.scope:
            await trio.lowlevel.checkpoint()
            raise AssertionError("it begins")
    assert (stop.status, unheard) == (0, [])


async def test_signals_mean_afterwards_what_they_meant_before(unheard: list[int]) -> None:
    """Found: SIGTERM stayed ignored, in the processes that were started then, too."""
    with until_signal(BOTH) as stop:
        pass
    assert stop.status is None
    for number in BOTH:
        signal.raise_signal(number)
    assert unheard == list(BOTH)


async def test_ctrl_c_is_an_interrupt_for_who_leaves_it_out(unheard: list[int]) -> None:
    with until_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        await trio.testing.wait_all_tasks_blocked()
    assert (stop.status, unheard) == (None, [signal.SIGINT])


async def first_line() -> None:
    async for _ in stdin_lines():
        return


@pytest.mark.parametrize("lines", [False, True])
def test_what_fails_at_stdin_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: bool
) -> None:
    """Found: "Bad file descriptor", and not whose."""
    descriptor = os.open(tmp_path / "closed", os.O_WRONLY | os.O_CREAT)
    with os.fdopen(descriptor, "r") as unreadable:
        monkeypatch.setattr(sys, "stdin", unreadable)
        with pytest.raises(OSError, match="Bad file descriptor: 'stdin'"):
            trio.run(first_line) if lines else payload("-")


async def all_lines() -> list[bytes]:
    return [line async for line in stdin_lines()]


@pytest.mark.parametrize("lines", [False, True])
def test_who_is_to_type_is_told_how_that_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: bool
) -> None:
    """Found: `mesh publish orders.eu` waited for a payload without a word."""
    ours, theirs = os.openpty()
    os.write(ours, b"a\n\x04")
    with os.fdopen(ours, "wb"), os.fdopen(theirs) as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        assert (trio.run(all_lines) == [b"a"]) if lines else (payload("-") == b"a\n")
    assert "reading from the terminal; end with Ctrl-D" in capsys.readouterr().err


def test_what_has_no_descriptor_keeps_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: "[Errno None] None: 'stdin'", where a program calls `main` with a stdin of its own."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x")))
    with pytest.raises(OSError, match="fileno"):
        trio.run(first_line)


@pytest.mark.parametrize("lines", [False, True])
def test_what_fails_at_stdout_says_so(monkeypatch: pytest.MonkeyPatch, lines: bool) -> None:
    """Found: a full disk, and it might have been the broker's."""
    with io.TextIOWrapper(Stdout("/dev/full", "wb")) as full, monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left on device: 'stdout'"):
            trio.run(write_stdout_line, b"x") if lines else write_stdout(b"x")


def test_a_node_that_crashed_says_of_what(capsys: pytest.CaptureFixture[str]) -> None:
    """Found: it was to be reported, and nobody was told what."""

    def crash(args: argparse.Namespace) -> int:
        both = ExceptionGroup("", [OSError(24, "Too many open files"), ValueError("five")])
        raise mesh.NodeCrashed("a background task of the node failed") from both

    parser = make_parser("mesh", "", "")
    parser.set_defaults(run=crash)
    assert run_program(parser, []) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("failed: OSError: [Errno 24] Too many open files; ValueError: five")


@pytest.mark.parametrize("writes", [False, True])
async def test_who_prints_ends_when_nobody_reads_on(
    monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """Found: `consume ... | head -1` went on until there was another message, which nobody saw."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with trio.fail_after(5):
            async with until_stdout_closed():
                await write_stdout_line(b"seen")
                os.close(reader)
                if writes:
                    await write_stdout_line(b"not seen")
                await trio.sleep_forever()


@pytest.mark.parametrize("name", ["file", "/dev/null"])
async def test_who_prints_to_a_file_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    autojump_clock: trio.testing.MockClock,
) -> None:
    with (tmp_path / name).open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with trio.move_on_after(60) as waited:
            async with until_stdout_closed():
                await trio.sleep_forever()
    assert waited.cancelled_caught
