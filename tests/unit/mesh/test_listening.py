"""Which ports are bound, and which addresses others are told."""

from __future__ import annotations

import errno

import pytest

from mesh import listening
from mesh.errors import CannotBind, ConfigError
from mesh.listening import Bind, bind_plan
from security.announcement import ENDPOINTS_MAX
from security.keys import ClusterKeys, derive

KEYS = [derive(bytes(32), name) for name in ("a", "b", "c")]


def plan(listen: str, advertise: str | None = None, keys: list[ClusterKeys] = KEYS) -> list[Bind]:
    return bind_plan(listen, advertise, keys)


def test_a_range_is_taken_in_order() -> None:
    uris = [bind.uri for bind in plan("tcp://127.0.0.1:5600-5602")]
    assert uris == [f"tcp://127.0.0.1:{port}" for port in (5600, 5601, 5602)]


def test_one_port_is_the_first_and_the_others_are_any() -> None:
    uris = [bind.uri for bind in plan("tcp://127.0.0.1:5600")]
    assert uris == ["tcp://127.0.0.1:5600", "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"]
    assert {bind.uri for bind in plan("tcp://0.0.0.0:0")} == {"tcp://0.0.0.0:*"}


@pytest.mark.parametrize(
    "listen",
    ["", "5600", "tcp://h", "tcp://h:x", "tcp://h:2-1", "tcp://h:65536", "udp://h:1",
     "tcp://h\udcff:1", "tcp://h\0:1", f"tcp://h:{'9' * 5000}"],
)  # fmt: skip
def test_what_is_no_address_is_named(listen: str) -> None:
    with pytest.raises(ConfigError, match="listen: want"):
        plan(listen)


def test_a_port_over_the_largest_says_so() -> None:
    with pytest.raises(ConfigError, match="ports of at most 65535"):
        plan("tcp://127.0.0.1:99999")


def test_too_few_ports_are_counted() -> None:
    counted = "listen: 5600 to 5601 are 2 ports, but this node binds 3: one for each generation"
    with pytest.raises(ConfigError, match=counted):
        plan("tcp://h:5600-5601")
    with pytest.raises(ConfigError, match="advertise: 2 ports for 3 keys"):
        plan("tcp://h:0", "tcp://h:6600-6601")


def test_others_are_told_what_to_dial_instead() -> None:
    told = [
        bind.announced_uris("tcp://0.0.0.0:1") for bind in plan("tcp://h:0", "tcp://p:6600-6602")
    ]
    assert told == [["tcp://p:6600"], ["tcp://p:6601"], ["tcp://p:6602"]]


@pytest.mark.parametrize(
    "advertise",
    ["tcp://*:6600-6602", "tcp://h h:1-3", "tcp://h:0-2", "tcp://my..host:1-3", "tcp://0.0.0.0:1-3",
     "tcp://10.0.0.256:1-3", "tcp://[::]:1-3", "tcp://[fe80::1%eth0]:1-3"],
)  # fmt: skip
def test_what_nobody_could_dial_is_not_told(advertise: str) -> None:
    """It used to crash the node when the announcement was signed."""
    with pytest.raises(ConfigError, match=r"advertise: other (nodes|machines) cannot dial"):
        plan("tcp://h:0", advertise)


def test_a_host_of_many_addresses_tells_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"10.0.0.{n}" for n in range(100)]
    monkeypatch.setattr(listening, "addresses", lambda: [*many, "127.0.0.1"])
    told = [
        uri for bind in plan("tcp://0.0.0.0:0") for uri in bind.announced_uris("tcp://0.0.0.0:7")
    ]
    assert len(told) <= ENDPOINTS_MAX
    assert told[:2] == ["tcp://10.0.0.0:7", "tcp://10.0.0.1:7"]
    assert told.count("tcp://127.0.0.1:7") == len(KEYS)


@pytest.mark.parametrize("bound", ["tcp://[::]:7", "tcp://[fe80::1%eth0]:7"])
def test_what_was_bound_and_nobody_could_dial_is_not_told(bound: str) -> None:
    """It used to crash the node: IPv6's wildcard was told as an address."""
    (bind,) = plan("tcp://[::]:0", keys=KEYS[:1])
    with pytest.raises(ConfigError, match=r"listen: other (nodes|machines) cannot dial"):
        bind.announced_uris(bound)
    (bind,) = plan("tcp://[::]:0", "tcp://p:1", keys=KEYS[:1])
    assert bind.announced_uris(bound) == ["tcp://p:1"]


def test_a_host_without_addresses_cannot_tell_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found with loopback down: the node crashed on the empty list."""
    (bind,) = plan("tcp://0.0.0.0:0", keys=KEYS[:1])
    monkeypatch.setattr(listening, "addresses", list)
    with pytest.raises(CannotBind, match="no IPv4 address"):
        bind.announced_uris("tcp://0.0.0.0:7")

    def fail() -> list[str]:
        raise OSError(errno.EAFNOSUPPORT, "not supported")

    monkeypatch.setattr(listening, "addresses", fail)
    with pytest.raises(CannotBind, match="not supported"):
        bind.announced_uris("tcp://0.0.0.0:7")
