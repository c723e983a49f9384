"""Looks names up in a few threads of its own, so that slow look-ups do not use up trio's."""

from __future__ import annotations

from socket import AF_INET, SOCK_STREAM, getaddrinfo

import trio

from discovery.endpoint import is_address

RESOLVERS_MAX = 8
"""Threads for look-ups. A thread whose dial was given up still waits for its answer, however long that takes."""


class Resolver:
    """The look-ups of one node."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(RESOLVERS_MAX)

    async def look_up(self, host: str, port: int) -> str | None:
        """Return `host` if it is an address, else the first IPv4 address of the name; None if it has none."""
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
