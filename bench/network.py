"""The mesh side of a measurement: settings of nodes that find each other on loopback.

Every node is encrypted, listens on 127.0.0.1, uses no zeroconf and knows its seeds.
"""

from __future__ import annotations

import secrets
import socket
from typing import Any


class Network:
    """One network secret, and an endpoint for every node that asks."""

    def __init__(self) -> None:
        self._secret = new_network_secret()

    def node(self, cluster: str, *, seeds: list[str], **more: Any) -> dict[str, Any]:
        """Settings of a role that joins; `endpoint` is where others reach it."""
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        return {
            "cluster": cluster,
            "listen": endpoint,
            "endpoint": endpoint,
            "seeds": seeds,
            "network_secret": self._secret,
            **more,
        }


def new_network_secret() -> str:
    """What `mesh keys new-network` prints."""
    return secrets.token_hex(32)


def free_port() -> int:
    """A port that was free a moment ago; a role binds it within milliseconds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])
