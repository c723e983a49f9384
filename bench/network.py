"""Settings of mesh nodes that find each other on loopback, and ports for them.

Every node is encrypted, listens on 127.0.0.1 and is given its seeds; zeroconf is off unless asked for.
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
"""First ports of blocks of ten, each claimed as a whole. Below Linux's range of ephemeral ports (32768 and up)."""


class Network:
    """The network secret of all nodes of a measurement, and the ports that it holds until `close`."""

    def __init__(self) -> None:
        self.secret = format_network_secret(secrets.token_bytes(SECRET_BYTES))
        self._starts = random.sample(PORTS, len(PORTS))
        self._claims: list[int] = []

    def close(self) -> None:
        """Release the ports to other measurements."""
        while self._claims:
            os.close(self._claims.pop())

    def node(self, cluster: str, *, seeds: list[str], **more: Any) -> dict[str, Any]:
        """Return the settings of a role that joins `cluster`; the role reports its `endpoint` when it is ready."""
        return {
            "cluster": cluster,
            "listen": f"tcp://{LOOPBACK}:0",
            "seeds": seeds,
            "network_secret": self.secret,
            **more,
        }

    def free_ports(self, count: int) -> Ports:
        """Return `count` adjacent ports that were free a moment ago.

        Each is given out once, and the kernel gives none of them to a process that binds to port 0.
        """
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
    """`count` adjacent ports, for a node that must be told its ports."""

    first: int
    count: int

    @property
    def endpoint(self) -> str:
        """The first port as an endpoint, for use as a seed."""
        return f"tcp://{LOOPBACK}:{self.first}"

    @property
    def places(self) -> str:
        """All ports as one range of endpoints, for `listen` and `advertise`."""
        return f"{self.endpoint}-{self.first + self.count - 1}"

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.count))


def claim(port: int) -> int | None:
    """Claim `port` among all measurements on this machine; None if another measurement has claimed it.

    The claim is an abstract socket name, held until the returned descriptor is closed: two measurements that only
    probed a port could both find it free.
    """
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
