"""Finds nodes by a DNS name, `dns://name:port`, such as that of a Kubernetes headless service.

Every address of the name (A and AAAA) is reported as an endpoint at `port`, and again at every
look-up, because addresses come and go with the nodes behind the name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from .endpoint import format_endpoint, parse_endpoint
from .finder import Found, PassiveFinder, Sink
from .resolver import Resolver

ANSWER_S_MAX = 10.0
"""Longest wait for the resolver; glibc alone could take 5 s times attempts times servers."""
ADDRESSES_MAX = 256
"""Most addresses taken from one answer. One reachable node is enough to learn the network from."""
THREADS_MAX = 2
"""Threads of one finder for look-ups: a second one, because the first may still wait for an answer that was given up."""

LookUp = Callable[[str], Awaitable[list[str]]]
"""`Resolver.look_up`, replaced in tests."""


class DnsFinder(PassiveFinder):
    """Resolves `name` (`dns://name:port`) every `repeat_s`, or `retry_s` after a failure.

    Raises:
        BadEndpoint: `name` is not of this form.
    """

    source = "dns"

    def __init__(
        self, name: str, *, repeat_s: float = 30.0, retry_s: float = 5.0,
        look_up: LookUp | None = None,
    ) -> None:  # fmt: skip
        self._host, self._port = parse_endpoint(name, "dns")
        self.place, self._look_up = name, look_up or Resolver(THREADS_MAX).look_up
        self._repeat_s, self._retry_s = repeat_s, min(retry_s, repeat_s)
        self._problem: str | None = None

    def __repr__(self) -> str:
        return f"DnsFinder({self.place}, problem={self._problem!r})"

    async def run(
        self, sink: Sink, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Finder.run`."""
        self._problem = f"{self.place}: no answer from the resolver yet"
        task_status.started()
        while True:
            self.endpoints = [
                format_endpoint(address, self._port) for address in await self._addresses()
            ]
            for endpoint in self.endpoints:
                sink(Found(endpoint=endpoint))
            await trio.sleep(self._retry_s if self._problem else self._repeat_s)

    def problem(self) -> str | None:
        """Return why the last look-up found no addresses; None if it found some."""
        return self._problem

    async def _addresses(self) -> list[str]:
        found: dict[str, None] = {}
        problem: str | None
        problem = f"{self.place}: no answer from the resolver within {ANSWER_S_MAX:.0f} s"
        with trio.move_on_after(ANSWER_S_MAX):
            try:
                addresses = await self._look_up(self._host)
            except (OSError, UnicodeError) as error:
                problem = f"{self.place}: {error}"
            else:
                # A link-local IPv6 address is useless without its interface.
                found = dict.fromkeys(a for a in addresses if not a.lower().startswith("fe80:"))
                problem = None if found else f"{self.place}: the name has no addresses"
        self._problem = problem
        return list(found)[:ADDRESSES_MAX]
