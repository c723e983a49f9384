"""How the mesh's clients join: encrypted, on loopback, the first one as everybody's seed.

A connection is a node. Those that make requests link to the one that answers and to nobody else:
25 nodes in one process that also watch each other would be 600 links, which no peer has.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

import mesh

from .system import HOST, Place

CLIENT = "caller"


def join(
    place: Place, who: str | mesh.Service = CLIENT, *, first: bool = False, **more: Any
) -> AbstractAsyncContextManager[mesh.Node]:
    """The first one listens where the others look for it. `more`: further settings."""
    if not first:
        more["peers_max"] = 1
    return mesh.join(
        who,
        listen=f"tcp://{HOST}:{place.ports[0] if first else 0}",
        seeds=[] if first else [f"tcp://{HOST}:{place.ports[0]}"],
        zeroconf=False,
        network_secret=place.secret,
        **more,
    )


class Beside:
    """A node that lives in a task of its own, with a nursery for what is done with it.

    Not around the task of the load: a request asks for the deadline of each cancel scope that it is
    in, and within 25 nodes nested in each other those would be 50 that no program has.
    """

    node: mesh.Node
    nursery: trio.Nursery

    def __init__(self) -> None:
        self._end, self._ended = trio.Event(), trio.Event()
        self._error: Exception | None = None

    async def open(
        self, place: Place, who: str | mesh.Service = CLIENT, *, first: bool = False, **more: Any
    ) -> None:
        """Raises what `mesh.join` raises."""
        opened = trio.Event()
        trio.lowlevel.spawn_system_task(self._live, join(place, who, first=first, **more), opened)
        await opened.wait()
        if self._error is not None:
            raise self._error

    async def _live(
        self, joining: AbstractAsyncContextManager[mesh.Node], opened: trio.Event
    ) -> None:
        try:
            async with joining as self.node, trio.open_nursery() as self.nursery:
                opened.set()
                await self._end.wait()
                self.nursery.cancel_scope.cancel()
        except Exception as error:
            self._error = error  # For whoever opens it, or closes it.
        finally:
            opened.set()
            self._ended.set()

    async def close(self) -> None:
        """Raises what has ended the node before."""
        self._end.set()
        await self._ended.wait()
        if self._error is not None:
            raise self._error
