"""A broker: a service on the mesh over the vhosts of one directory.

async with durable.serve("/var/lib/mesh") as broker:
    await trio.sleep_forever()
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from mesh.joining import join
from mesh.node import Node
from mesh.service import Service

from ..config import BrokerConfig
from .directory import check_ours
from .hosted import Hosted
from .hosting import Hosting
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
        self._hosting = Hosting(self._data, self._config)
        self.node: Node | None = None
        """Of `serve`."""
        self.service = Service(cluster, concurrency=100_000)
        self.service.tunnel(ENDPOINT)(Sessions(cluster, self._hosting).serve)

    async def __aenter__(self) -> Broker:
        check_ours(self._data)
        await self._hosting.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        return await self._hosting.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def on_mesh(self, **settings: Any) -> AsyncGenerator[Node]:
        """Join, and serve whoever calls, for as long as the block lasts. Raises as `mesh.join`."""
        settings.setdefault("tunnel_window_bytes", self._config.tunnel_window_bytes)
        async with join(self.service, **settings) as node:
            self._hosting.joined(node)
            self.node = node
            yield node

    def all_hosted(self) -> list[Hosted]:
        return self._hosting.all()

    def hosted(self, name: str) -> Hosted:
        """Raises UnknownVhost."""
        return self._hosting.get(name)
