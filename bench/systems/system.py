"""What the bench asks of a message system: a server to start, if it has one, and four kinds of client.

Requester  one connection of an open load: requests out, replies in
Responder  answers every request, in a process of its own; none where the reply is a confirm
Producer   publishes as fast as it may
Consumer   takes what was published

Each system is in a file of its own. Clients are made in processes of their own and never shared.
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
"""Gets payloads in the order they came. Never suspends when called by a `Requester` or `Consumer`."""

Promise = Literal["memory", "page cache", "batched fsync", "fsync each"]
"""Where a message is when its publisher is told that it was taken. Only equal ones are compared."""
LoopName = Literal["asyncio", "blocking", "trio"]

UNREAD_BYTES_MAX = 1 << 30
"""Of what an open load stores and nobody reads: the oldest goes then, or 1 MB a message would fill the disk."""


@dataclass(frozen=True, slots=True)
class Command:
    """A process of a server. The first of a server's is started first."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one run happens."""

    ports: Sequence[int]
    """On loopback: the first one is the server's, where there is a server."""
    secret: str
    """The network secret, for the systems that encrypt."""
    size_bytes: int
    """Of every payload."""
    directory: str
    """For what the server writes; empty before it starts."""
    connections: int = 1
    """How many requesters there are. Request k is sent by number k % connections."""


class Requester(Protocol):
    async def setup(self) -> None:
        """Connected, and whatever answers is there."""

    async def request(self, payload: bytes) -> None:
        """Send it, do not wait for its reply."""

    async def teardown(self) -> None: ...


class Responder(Protocol):
    async def setup(self) -> None:
        """From now on requests are answered, with their own payload."""

    async def teardown(self) -> None: ...


class Producer(Protocol):
    async def setup(self) -> None: ...

    async def publish(self, payloads: Sequence[bytes]) -> None:
        """In order, at once; returns when there is room for more."""

    async def flush(self) -> None:
        """Everything has left this process or, where the system promises more, is confirmed."""

    async def teardown(self) -> None: ...


class Consumer(Protocol):
    async def setup(self) -> None:
        """Nothing published from now on is missed."""

    async def settle(self) -> None:
        """What was received is acked, and the server has worked that off; nothing where nobody acks."""

    async def teardown(self) -> None: ...


class System(ABC):
    """What it says of itself, where that differs from most, and its four clients."""

    name: str
    client: str
    """Which client, in which mode."""
    loop: LoopName
    """What its clients run in."""
    promise: Promise = "memory"
    floor = False
    """Its clients are protocol bytes over a socket: what a library of that protocol comes down to."""
    replies = True
    """A responder answers requests; if not, the reply is the server's confirm."""
    throughput = True
    """It is measured at full throttle."""
    latency = True
    """It is measured under an open load; not a mode that only differs at full throttle."""
    warm_s = 0.0
    """Before what counts, at least: some servers are compiled while they run."""
    probe_count = 2000
    """Messages that it sends in a few seconds at most, however slow it is."""

    def missing(self) -> str | None:
        """What has to be installed before it can be measured; None: nothing."""
        return None

    def versions(self) -> Mapping[str, str]:
        """Of programs that may come from more than one place: which one is used. By package."""
        return {}

    def ports(self, connections: int) -> int:
        """How many it needs."""
        return 1

    @property
    def has_server(self) -> bool:
        return type(self).commands is not System.commands

    def commands(self, place: Place) -> list[Command]:
        """How its server is started, on loopback and in `place.directory`; none: it has none."""
        return []

    @abstractmethod
    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Requester:
        """The one of that number, of `place.connections`."""

    def responder(self, place: Place, loop: Loop) -> Responder:
        """Asked for only where it `replies`."""
        raise NotImplementedError(f"{self.name}: the server answers")

    def producer(self, place: Place, loop: Loop) -> Producer:
        """Asked for only where it is measured at full throttle; the consumer, too."""
        raise NotImplementedError(f"{self.name}: no stream of messages")

    def consumer(self, place: Place, loop: Loop, received: Received) -> Consumer:
        raise NotImplementedError(f"{self.name}: no stream of messages")


def send_at_once(connection: socket.socket) -> None:
    """Else the kernel keeps what is small until what was sent before is acknowledged: up to 40 ms."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def not_installed(
    *, program: str = "", package: str = "", modules: Sequence[str] = ()
) -> str | None:
    """What of a server and its client is not there."""
    reasons = []
    if program and shutil.which(program) is None and not Path(program).exists():
        reasons.append(f"no {Path(program).name}: apt-get install {package}")
    if absent := [name for name in modules if find_spec(name.partition(".")[0]) is None]:
        reasons.append(
            f"no Python module {', '.join(absent)}: pip install -r requirements-bench.txt"
        )
    return "; ".join(reasons) or None
