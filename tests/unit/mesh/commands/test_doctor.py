"""What the doctor says of addresses: just those are wrong that `join` cannot bind, or cannot tell."""

from __future__ import annotations

import socket

import pytest

from mesh.commands import doctor
from mesh.config import MeshConfig
from security.keyring import NetworkKeyring


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
        ("tcp://[::]:0", False, "nobody can dial tcp://[::]:"),
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
