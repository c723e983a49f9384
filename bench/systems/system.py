"""The interface of a message system in the bench: a server to start, if there is one, and four kinds of client.

Requester  one connection of an open load: sends requests, receives replies
Responder  answers every request, in a process of its own; none where the reply is a confirm
Producer   publishes as fast as it can
Consumer   receives what was published

Each system has a module of its own. Clients run in processes of their own and are never shared.
"""

from __future__ import annotations

import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

from bench.loops import Loop

HOST = "127.0.0.1"

Received = Callable[[Sequence[bytes]], Awaitable[None]]
"""Takes payloads in the order received. It never suspends when a `Requester` or `Consumer` calls it."""

Promise = Literal["memory", "page cache", "batched fsync", "fsync each"]
"""Where a message is when its publisher gets the confirm. Only systems with equal promises are compared."""
LoopName = Literal["asyncio", "blocking", "trio"]

UNREAD_BYTES_MAX = 1 << 30
"""Limit of what an open load stores, as nobody reads it: beyond it the oldest messages are dropped, or the load of 1 MB
messages would fill the disk.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A process of a server; those of one server are started in order."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one run takes place: ports, directory, secret and sizes."""

    ports: Sequence[int]
    """Ports on loopback; the first one is the server's, if there is a server."""
    secret: str
    """The network secret, for the systems that encrypt."""
    size_bytes: int
    """Size of every payload."""
    directory: str
    """Where the server writes; empty before it starts."""
    connections: int = 1
    """Count of requesters. Request k is sent by requester k % connections."""


class Requester(Protocol):
    async def setup(self) -> None:
        """Connect; on return there is somebody to answer."""

    async def request(self, payload: bytes) -> None:
        """Send a request without waiting for its reply."""

    async def teardown(self) -> None: ...


class Responder(Protocol):
    async def setup(self) -> None:
        """Start to answer requests, each with its own payload."""

    async def teardown(self) -> None: ...


class Producer(Protocol):
    async def setup(self) -> None: ...

    async def publish(self, payloads: Sequence[bytes]) -> None:
        """Publish in order; return when there is room for more."""

    async def flush(self) -> None:
        """Wait until everything has left this process or, where the system promises more, is confirmed."""

    async def teardown(self) -> None: ...


class Consumer(Protocol):
    async def setup(self) -> None:
        """Subscribe; nothing published after the return is missed."""

    async def settle(self) -> None:
        """Ack everything received and wait until the server has processed that; no effect in systems without acks."""

    async def teardown(self) -> None: ...


class System(ABC):
    """One system: its properties, with the most common values as defaults, and its four clients."""

    name: str
    client: str
    """Which client library, in which mode, in words."""
    loop: LoopName
    """The event loop that its clients run in."""
    promise: Promise = "memory"
    floor = False
    """Whether its clients are only protocol bytes over a socket: the floor of what a client library can cost."""
    replies = True
    """Whether a responder answers requests; otherwise the reply is the server's confirm."""
    throughput = True
    """Whether it is measured at full throttle."""
    latency = True
    """Whether it is measured under an open load; not for a mode that differs only at full throttle."""
    warm_s = 0.0
    """Shortest warm-up: some servers are compiled just in time."""
    probe_count = 2000
    """Count of messages that it sends within a few seconds, however slow it is."""

    def missing(self) -> str | None:
        """Return what has to be installed before the system can be measured, or None."""
        return None

    def versions(self) -> Mapping[str, str]:
        """Return, by package, the versions of programs that may come from several places."""
        return {}

    def ports(self, connections: int) -> int:
        """Return how many ports it needs."""
        return 1

    @property
    def has_server(self) -> bool:
        return type(self).commands is not System.commands

    def commands(self, place: Place) -> list[Command]:
        """Return the commands that start its server, on loopback and in `place.directory`; empty without a server."""
        return []

    @abstractmethod
    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Requester:
        """Make requester `number` of `place.connections`."""

    def responder(self, place: Place, loop: Loop) -> Responder:
        """Make a responder; called only if `replies`."""
        raise NotImplementedError(f"{self.name}: the server answers")

    def producer(self, place: Place, loop: Loop) -> Producer:
        """Make a producer; this and `consumer` are called only if `throughput`."""
        raise NotImplementedError(f"{self.name}: no stream of messages")

    def consumer(self, place: Place, loop: Loop, received: Received) -> Consumer:
        raise NotImplementedError(f"{self.name}: no stream of messages")


def send_at_once(connection: socket.socket) -> None:
    """Turn off Nagle's algorithm, which delays a small write by up to 40 ms until the one before is acked."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def not_installed(
    *, program: str = "", package: str = "", modules: Sequence[str] = ()
) -> str | None:
    """Return which of a server and a client's modules are not installed and how to install them, or None."""
    reasons = []
    if program and shutil.which(program) is None and not Path(program).exists():
        reasons.append(f"no {Path(program).name}: apt-get install {package}")
    if absent := [name for name in modules if find_spec(name.partition(".")[0]) is None]:
        reasons.append(
            f"no Python module {', '.join(absent)}: pip install -r requirements-bench.txt"
        )
    return "; ".join(reasons) or None
