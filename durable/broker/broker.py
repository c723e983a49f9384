"""A broker: a service on the mesh over the vhosts of one directory.

async with durable.serve("/var/lib/mesh") as broker:
    await trio.sleep_forever()
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from mesh.joining import join
from mesh.node import Node
from mesh.nursery import open_nursery
from mesh.service import Service
from mesh.tunnel import Tunnel

from ..config import BrokerConfig
from ..errors import UnknownVhost
from .capture import Capture
from .clock import SteadyClock
from .directory import DEFAULT_VHOST, check_ours, make_vhost, vhosts
from .hosted import Hosted
from .opening import open_vhost
from .sessions import Sessions

ENDPOINT = "durable"


@asynccontextmanager
async def serve(
    data: str | Path, *, cluster: str = "broker", config: BrokerConfig | None = None,
    **settings: Any,
) -> AsyncGenerator[Broker]:  # fmt: skip
    """Open a directory and serve it on the mesh, for as long as the block lasts.

    Args:
        settings: as for `mesh.join`.
    Raises:
        StoreInUse, ForeignStore, NewerFormat, StoreFailed: the directory cannot be opened.
        What `mesh.join` raises.
    """
    async with (
        Broker(data, cluster=cluster, config=config) as broker,
        broker.on_mesh(**settings),
    ):
        yield broker


class Broker:
    """Everything under one directory, open for as long as the `async with` block.

    Raises on entering:
        StoreInUse: another broker has the directory open.
        ForeignStore, NewerFormat, StoreFailed: it cannot be opened.
    """

    def __init__(
        self, data: str | Path, *, cluster: str = "broker", config: BrokerConfig | None = None
    ) -> None:
        self._data, self._config = Path(data), config or BrokerConfig()
        self._hosted: dict[str, Hosted] = {}
        self._clock = SteadyClock()
        self._stack = AsyncExitStack()
        self.node: Node | None = None
        """Of `serve`."""
        self._sessions = Sessions(cluster, self.hosted)
        self.service = Service(cluster, concurrency=100_000)
        self.service.tunnel(ENDPOINT)(self._serve)

    async def __aenter__(self) -> Broker:
        check_ours(self._data)
        make_vhost(self._data, DEFAULT_VHOST)
        async with AsyncExitStack() as stack:
            for name in vhosts(self._data):
                self._hosted[name] = await stack.enter_async_context(
                    open_vhost(self._data, name, self._config, self._clock)
                )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        return await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def on_mesh(self, **settings: Any) -> AsyncGenerator[Node]:
        """Join, and serve whoever calls, for as long as the block lasts. Raises as `mesh.join`."""
        settings.setdefault("tunnel_window_bytes", self._config.tunnel_window_bytes)
        async with join(self.service, **settings) as node, open_nursery() as nursery:
            for hosted in self.all_hosted():
                nursery.start_soon(Capture(hosted, node, self._config.capture_bytes).run)
            self.node = node
            yield node
            nursery.cancel_scope.cancel()

    def all_hosted(self) -> list[Hosted]:
        return list(self._hosted.values())

    def hosted(self, name: str) -> Hosted:
        """Raises UnknownVhost."""
        hosted = self._hosted.get(name)
        if hosted is None:
            raise UnknownVhost(name, sorted(self._hosted))
        return hosted

    async def _serve(self, tunnel: Tunnel) -> None:
        await self._sessions.serve(tunnel)
