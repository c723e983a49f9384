"""Waiting while the process is out of descriptors or memory: that is no failure of the disk, and it may pass."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from ..errors import StoreFailed, cause_of
from .disk import SCARCE

logger = logging.getLogger("durable.log")
T = TypeVar("T")

SCARCE_S_MAX = 60.0
"""Seconds to wait. After so long nobody will give any back, and only a restart helps."""


class Scarcity:
    """The scarcity of one log: however many calls wait, it is logged once."""

    def __init__(self, what: str, retry_s: float) -> None:
        """
        Args:
            what: who waits, for the log line.
            retry_s: time from one attempt to the next.
        """
        self._what, self._retry_s = what, retry_s
        self._waiting = 0

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return what `call` returns; while it finds too little it is called again, for up to SCARCE_S_MAX.

        Raises:
            OSError, StoreFailed: the call still found too little after that time; any other error is raised at once.
        """
        try:
            return await call()
        except (OSError, StoreFailed) as error:
            if cause_of(error).errno not in SCARCE:
                raise
            self._begin(cause_of(error))
        try:
            found = await self._retry_until_enough(call)
        finally:
            self._waiting -= 1
        if not self._waiting:
            logger.warning("%s continues", self._what)
        return found

    def _begin(self, error: OSError) -> None:
        if not self._waiting:
            logger.warning(
                "%s waits for up to %.0f s: %s; are there too many connections for `ulimit -n`?",
                self._what, SCARCE_S_MAX, error,
            )  # fmt: skip
        self._waiting += 1

    async def _retry_until_enough(self, call: Callable[[], Awaitable[T]]) -> T:
        until_s = trio.current_time() + SCARCE_S_MAX
        while True:
            await trio.sleep(self._retry_s)
            try:
                return await call()
            except (OSError, StoreFailed) as error:
                if cause_of(error).errno not in SCARCE or trio.current_time() >= until_s:
                    raise
