"""Name lookups in a few threads of their own, so that slow ones do not take trio's from others."""

from __future__ import annotations

from socket import AF_INET, SOCK_STREAM, getaddrinfo

import trio

from discovery.endpoint import is_address

RESOLVERS_MAX = 8
"""Threads that wait for names at a time: one whose dial was given up waits on, for as long as it takes."""


class Resolver:
    """Those of one node."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(RESOLVERS_MAX)

    async def look_up(self, host: str, port: int) -> str | None:
        """The host itself, if it is an address; the first one that a name has; None: it has none."""
        if is_address(host):
            return host
        try:
            answers = await trio.to_thread.run_sync(
                getaddrinfo, host, port, AF_INET, SOCK_STREAM, abandon_on_cancel=True,
                limiter=self._threads,
            )  # fmt: skip
        except (OSError, UnicodeError):
            return None
        return str(answers[0][4][0])
