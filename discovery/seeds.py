"""Finds nodes by seeds, endpoints from the configuration, which are reported again and again.

They are repeated because a seed that starts after us must still be found; the caller skips known ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from .endpoint import parse_endpoint
from .finder import Found, PassiveFinder, Sink

if TYPE_CHECKING:
    from collections.abc import Iterable


class SeedFinder(PassiveFinder):
    """Reports each of `seeds` at once and then every `repeat_s`.

    Raises:
        BadEndpoint: one of `seeds` is not `tcp://host:port`; the text names it.
    """

    source = "seeds"
    each_answers = True

    def __init__(self, seeds: Iterable[str], *, repeat_s: float = 5.0) -> None:
        self.endpoints = tuple(dict.fromkeys(seeds))
        for seed in self.endpoints:
            parse_endpoint(seed)
        self._repeat_s = repeat_s

    def __repr__(self) -> str:
        return f"SeedFinder({', '.join(self.endpoints)})"

    async def run(
        self, sink: Sink, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Finder.run`."""
        task_status.started()
        while True:
            for seed in self.endpoints:
                sink(Found(endpoint=seed))
            await trio.sleep(self._repeat_s)

    def problem(self) -> str | None:
        """Always None: the caller, which dials the seeds, sees which of them do not answer."""
        return None
