"""How the mesh's clients join: encrypted, on loopback, with the first node as the seed of all others.

A connection is a node. Nodes that send requests link only to the node that answers: 25 nodes in one process that also
linked to each other would hold 600 ends of links, which no client of another system has to.
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
    """Join. The first node listens at the address that is the others' seed. `more`: further settings."""
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
    """A node that is entered in a task of its own, with a nursery for tasks that use it.

    The task of the load is not inside the node's block: a request reads the deadline of each cancel scope around
    it, and 25 nested nodes would add 50 scopes, which no real program has.
    """

    node: mesh.Node
    nursery: trio.Nursery

    def __init__(self) -> None:
        self._end, self._ended = trio.Event(), trio.Event()
        self._error: Exception | None = None

    async def open(
        self, place: Place, who: str | mesh.Service = CLIENT, *, first: bool = False, **more: Any
    ) -> None:
        """Enter the node. Raises what `mesh.join` raises."""
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
            self._error = error  # Raised again by `open` or `close`.
        finally:
            opened.set()
            self._ended.set()

    async def close(self) -> None:
        """Leave. Raises the error that has ended the node before, if any."""
        self._end.set()
        await self._ended.wait()
        if self._error is not None:
            raise self._error
