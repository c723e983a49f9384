"""What the bench knows of another broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from bench.systems.system import HOST as HOST
from bench.systems.system import Command as Command

OUTSTANDING = 2000
"""Publishes without a confirm, and deliveries without an ack, that a client may have."""
ACK_COUNT = 500
"""Deliveries acked at once."""
SILENCE_S_MAX = 20.0


class Publisher(Protocol):
    def publish(self, payloads: Sequence[bytes]) -> None:
        """Returns when all are confirmed, OUTSTANDING at a time."""


class Consumer(Protocol):
    def consume(self, count: int, take: Callable[[list[bytes]], None]) -> None:
        """Until `count` were taken and acked, or nothing came for SILENCE_S_MAX."""


class Peer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def promise(self) -> str:
        """What a confirm says."""

    def missing(self) -> str | None:
        """What has to be installed before it can be measured; None: nothing."""

    def commands(self, directory: Path, ports: Sequence[int]) -> list[Command]:
        """How its server is started, on loopback. Clients use the first of the three ports."""

    def publisher(self, port: int, queue: str) -> AbstractContextManager[Publisher]:
        """The queue is made."""

    def consumer(self, port: int, queue: str) -> AbstractContextManager[Consumer]:
        """The queue is there."""
