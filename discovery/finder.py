"""What every way of finding other nodes has in common: the Protocol `Finder`.

    finder --> sink(Found(endpoint=...))        "someone may listen there": seeds, DNS, file
           --> sink(Found(announcement=...))    signed bytes of a node: zeroconf

A finder only finds. What it reports is an unverified claim: checking signatures, membership and
dialling are the caller's. Reports repeat, and nothing is ever taken back: who is alive is decided
by heartbeats, because zeroconf keeps a killed node for 1125 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio


@dataclass(frozen=True, slots=True)
class Found:
    """One claim. Exactly one of `endpoint` and `announcement` is set."""

    endpoint: str = ""
    """`tcp://host:port`, when nothing else is known."""
    announcement: bytes = b""
    """The bytes some node gave to its own `Finder.announce`, unchecked."""

    def __post_init__(self) -> None:
        assert bool(self.endpoint) != bool(self.announcement), "one of endpoint and announcement"


Sink = Callable[[Found], None]
"""Takes one claim, in trio's thread, and returns at once."""


class Finder(Protocol):
    """Implemented by `SeedFinder`, `DnsFinder`, `FileFinder` and `MdnsFinder`."""

    source: str
    """What it is called, for people."""

    async def run(
        self, sink: Sink, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Report to `sink` until cancelled; `started()` after the first attempt to look.

        A fault outside this process never raises: it is told by `problem()`, and tried again.
        """
        ...

    async def announce(self, announcement: bytes, port: int) -> None:
        """Publish `announcement` from now on, in place of the one before.

        Returns before it is on the network. May be called before `run`, and outlives its retries.
        """
        ...

    async def withdraw(self) -> None:
        """Say goodbye: publish nothing any more. Returns when others were told, or soon after."""
        ...

    def problem(self) -> str | None:
        """What is wrong at present, in words for `mesh doctor`; None when all is well."""
        ...


class LookingOnly:
    """Base of the finders that look somewhere where nothing can be announced."""

    async def announce(self, announcement: bytes, port: int) -> None:
        """Nothing to do."""

    async def withdraw(self) -> None:
        """Nothing to do."""
