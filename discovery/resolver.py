"""Looks names up in a few threads of its own: look-ups that hang must not use up trio's threads.

A look-up that was given up keeps its thread until the system's resolver answers, which may be never. In trio's own
threads, in which logs are written as well, there would be no room left in the end.
"""

from __future__ import annotations

from functools import partial
from socket import AF_INET, AF_UNSPEC, SOCK_STREAM, getaddrinfo

import trio

from .endpoint import is_address
from .threads import run_in_thread


class Resolver:
    """Looks up addresses of names, in at most `threads_max` threads; further look-ups wait for one."""

    def __init__(self, threads_max: int) -> None:
        self._threads = trio.CapacityLimiter(threads_max)

    async def look_up(self, name: str, family: int = AF_UNSPEC) -> list[str]:
        """Return the addresses of `name` (A and AAAA, or those of one family). May be cancelled.

        Raises:
            OSError, UnicodeError: no answer, no addresses, not a name, or no thread.
        """
        answers = await run_in_thread(
            partial(getaddrinfo, name, None, family, SOCK_STREAM), self._threads
        )
        return [str(answer[4][0]) for answer in answers]

    async def address_to_dial(self, host: str) -> str | None:
        """Return `host` if it is an address, else the first IPv4 address of the name; None if it has none."""
        if is_address(host):
            return host
        try:
            return (await self.look_up(host, AF_INET))[0]
        except (OSError, UnicodeError):
            return None
