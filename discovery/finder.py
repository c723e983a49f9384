"""The Protocol `Finder`, which every way of finding other nodes implements.

    finder --> sink(Found(endpoint=...))        "a node may listen there": seeds, DNS, file
           --> sink(Found(announcement=...))    signed bytes of a node: zeroconf

A finder only finds. What it reports is an unverified claim: checking signatures and membership, and dialling,
are left to the caller. Claims are repeated and never taken back, because heartbeats decide who is alive:
zeroconf would keep a killed node for 1125 s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio


@dataclass(frozen=True, slots=True)
class Found:
    """One claim. Exactly one of `endpoint` and `announcement` is set."""

    endpoint: str = ""
    """`tcp://host:port`, if nothing else is known."""
    announcement: bytes = b""
    """The bytes that a node gave to its own `Finder.announce`, unchecked."""

    def __post_init__(self) -> None:
        assert bool(self.endpoint) != bool(self.announcement), "one of endpoint and announcement"


Sink = Callable[[Found], None]
"""Called with each claim in trio's thread; must return at once."""


class Finder(Protocol):
    """One way of finding nodes: `SeedFinder`, `DnsFinder`, `FileFinder` or `MdnsFinder`."""

    source: str
    """Name of this kind of finder, shown to people."""
    place: str
    """Where it looks, as people wrote it: a DNS name, the path of a file; else empty."""
    endpoints: Sequence[str]
    """Those it found last; empty if it finds announcements. Whoever dials them knows at which of them a node answers."""
    each_answers: bool
    """Whether a node should answer at each of `endpoints`; else some may be old, and one that answers is enough."""

    async def run(
        self, sink: Sink, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Report to `sink` until cancelled; call `started()` after the first attempt to look.

        Never raises for a fault outside this process: `problem()` reports that, and the finder tries again.
        """
        ...

    async def announce(self, announcement: bytes, port: int) -> None:
        """Publish `announcement` from now on, replacing the previous one.

        Returns before it is on the network. May be called before `run`, and stays in effect when `run` retries.
        """
        ...

    async def withdraw(self) -> None:
        """Publish nothing any more, and say goodbye. Returns when others have been told, or after a short limit."""
        ...

    def problem(self) -> str | None:
        """Return what is wrong at present, in words for `mesh doctor`; None if nothing is."""
        ...


class PassiveFinder:
    """Base of finders that only look, because nothing can be announced there."""

    place = ""
    endpoints: Sequence[str] = ()
    each_answers = False

    async def announce(self, announcement: bytes, port: int) -> None:
        """Nothing to do."""

    async def withdraw(self) -> None:
        """Nothing to do."""
