"""The mesh side of a measurement: settings of nodes that find each other on loopback.

Every node is encrypted, listens on 127.0.0.1 and knows its seeds; none uses zeroconf unless told.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from security.files import format_network_secret
from security.keys import SECRET_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000, 10)
"""First ports of rows of ten, each claimed as a whole. Below Linux' range for ports that nobody chose
(32768 and up)."""


class Network:
    """One network secret for all nodes of a measurement, and the ports it holds until `close`."""

    def __init__(self) -> None:
        self.secret = format_network_secret(secrets.token_bytes(SECRET_BYTES))
        self._starts = random.sample(PORTS, len(PORTS))
        self._claims: list[int] = []

    def close(self) -> None:
        """Other measurements may have its ports."""
        while self._claims:
            os.close(self._claims.pop())

    def node(self, cluster: str, *, seeds: list[str], **more: Any) -> dict[str, Any]:
        """Settings of a role that joins. It says its `endpoint` when it is ready."""
        return {
            "cluster": cluster,
            "listen": f"tcp://{LOOPBACK}:0",
            "seeds": seeds,
            "network_secret": self.secret,
            **more,
        }

    def free_ports(self, count: int) -> Ports:
        """Ports that were free a moment ago; given once, and to nobody who asks for any port."""
        while True:
            ports = Ports(self._starts.pop(), count)
            if self._claim(ports) and all(map(is_free, ports)):
                return ports

    def _claim(self, ports: Ports) -> bool:
        for start in range(ports.first, ports.first + ports.count, PORTS.step):
            held = claim(start)
            if held is None:
                return False
            self._claims.append(held)
        return True


@dataclass(frozen=True, slots=True)
class Ports:
    """`count` ports in a row, for a node that must be told where to be."""

    first: int
    count: int

    @property
    def endpoint(self) -> str:
        """The first one, as a seed."""
        return f"tcp://{LOOPBACK}:{self.first}"

    @property
    def places(self) -> str:
        """All of them, as `listen` and `advertise` take them."""
        return f"{self.endpoint}-{self.first + self.count - 1}"

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.count))


def claim(port: int) -> int | None:
    """Take it, unless another measurement has it. By a name of the kernel's, which stands until the
    descriptor is closed: a port that is only looked at may be found free by two of them."""
    with socket.socket(socket.AF_UNIX) as held:
        try:
            held.bind(f"\0mesh-bench-port-{port}")
        except OSError:
            return None
        return held.detach()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
