"""What the doctor calls wrong where no other test can make it so."""

from __future__ import annotations

import argparse
import json
import socket

import pytest
import zmq

from mesh import joining
from mesh.commands import doctor
from mesh.config import MeshConfig
from security.keyring import NetworkKeyring
from tests.nodes import node
from tests.processes import SECRET


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize(
    ("listen", "ok", "says"),
    [
        ("tcp://127.0.0.1:0", True, "can be bound"),
        ("tcp://*:0", True, "can be bound"),
        ("tcp://[::1]:0", True, "can be bound"),
        ("tcp://[::]:0", False, "other nodes cannot dial tcp://[::]:"),
        (f"tcp://{'a' * 64}.b:0", False, "choose another `listen`"),
    ],
)
async def test_an_address_is_wrong_just_where_join_would_fail(
    listen: str, ok: bool, says: str
) -> None:
    """Found: IPv6 never could be bound, and a name that no resolver takes was a stack trace."""
    if "[" in listen and not has_ipv6():
        pytest.skip("no IPv6 here")
    config = MeshConfig(clusters=("x",), listen=listen)
    name, good, text = await doctor._ports(config, NetworkKeyring([bytes(32)]))
    assert (name, good) == ("ports", ok), text
    assert says in text


def test_no_multicast_is_wrong_where_nothing_else_finds_nodes() -> None:
    assert doctor._multicast(None, alone=True)[1]
    problem = "no multicast on this machine: eth0: no"
    _, ok, text = doctor._multicast(problem, alone=True)
    assert not ok
    assert text.startswith(problem)
    assert "MESH_SEEDS=" in text, "what to do"
    _, ok, text = doctor._multicast(problem, alone=False)
    assert ok
    assert problem in text


def test_a_clock_that_was_never_set_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._clock()[1]
    monkeypatch.setattr(doctor, "EARLIEST_S", 10**12)
    _, ok, text = doctor._clock()
    assert not ok
    assert "never set" in text


async def test_a_clock_that_is_not_that_of_a_seed_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: with the network an hour away it was called right, and asked about under `members`."""
    async with node("databases") as there:
        now_us = joining._wall_us
        monkeypatch.setattr(joining, "_wall_us", lambda: now_us() + 3600 * 10**6)
        parser = argparse.ArgumentParser()
        doctor.add(parser.add_subparsers())
        words = ["doctor", "--seed", there.endpoints[0], "--no-zeroconf", "--settle", "0.5"]
        monkeypatch.setenv("MESH_NETWORK_SECRET", SECRET)
        args = parser.parse_args([*words, "--listen", "tcp://127.0.0.1:0", "--json"])
        assert await doctor.doctor(args) == 1
    rows = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert not rows["clock"]["ok"]
    assert "timedatectl" in rows["clock"]["text"], "what to do"
    assert not rows["members"]["ok"]


async def test_what_is_found_is_said_before_the_next_thing_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: one saw nothing for as long as seeds that do not answer take, and where it stuck never."""
    said: list[list[str]] = []

    async def look(*_: object) -> list[tuple[str, bool, str]]:
        said.append([line.split()[1] for line in capsys.readouterr().out.splitlines()])
        return [("seed", True, "answers")]

    for name in ("_seeds", "_finders", "_members"):
        monkeypatch.setattr(doctor, name, look)
    parser = argparse.ArgumentParser()
    doctor.add(parser.add_subparsers())
    monkeypatch.setenv("MESH_NETWORK_SECRET", SECRET)
    args = parser.parse_args(["doctor", "--no-zeroconf", "--listen", "tcp://127.0.0.1:0"])
    assert await doctor.doctor(args) == 0
    assert said == [["versions", "settings", "keys", "ports"], ["seed"], ["seed"]]
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["seed", "clock"]


def test_a_libzmq_without_encryption_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._versions()[1]
    monkeypatch.setattr(zmq, "has", lambda what: what != "curve")
    _, ok, text = doctor._versions()
    assert not ok
    assert "no CURVE" in text
