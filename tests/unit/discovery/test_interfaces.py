"""This machine's addresses and identity, with a fake machine below."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ifaddr

from discovery.interfaces import address_indexes, addresses, host_id, multicast_addresses

if TYPE_CHECKING:
    import pytest


def test_loopback_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def adapter(*ips: str) -> SimpleNamespace:
        found = [SimpleNamespace(ip=ip, is_IPv4=":" not in ip) for ip in ips]
        return SimpleNamespace(ips=found, index=len(ips))

    machine = [adapter("127.0.0.1", "::1"), adapter("10.0.0.9", "10.0.0.1"), adapter("10.0.0.9")]
    monkeypatch.setattr(ifaddr, "get_adapters", lambda: machine)
    assert addresses() == ["10.0.0.9", "10.0.0.1", "127.0.0.1"]
    assert address_indexes() == {"10.0.0.9": 2, "10.0.0.1": 2, "127.0.0.1": 2}


def test_host_id_is_8_bytes_and_the_same_again() -> None:
    assert host_id() == host_id()
    assert len(host_id()) == 8


def test_host_id_differs_between_network_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    before = host_id()
    monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_ino=7))
    assert host_id() != before


def test_without_proc_the_host_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_stat(path: str) -> Any:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "stat", no_stat)
    monkeypatch.setattr(socket, "gethostname", lambda: "one")
    one = host_id()
    assert one == host_id()
    monkeypatch.setattr(socket, "gethostname", lambda: "two")
    assert host_id() != one


def test_an_address_of_another_machine_is_refused_with_its_reason() -> None:
    usable, reasons = multicast_addresses(["203.0.113.77"])
    assert usable == []
    assert reasons == ["203.0.113.77: Cannot assign requested address"]
