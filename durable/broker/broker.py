"""A broker: a service on the mesh over the vhosts of one directory.

async with durable.serve("/var/lib/mesh") as broker:
    await trio.sleep_forever()
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import trio

from mesh.binding import check_free
from mesh.config import KEY_SOURCES, MeshConfig
from mesh.entering import SingleUseBlock
from mesh.errors import CannotBind
from mesh.joining import check_in_trio, check_settings, join
from mesh.listening import binds_of
from mesh.node import Node
from mesh.service import Service
from mesh.watching import Watch
from security.keyring import Keyring

from ..config import BrokerConfig
from ..log.encryption import Encryption
from .collecting import Collector
from .directory import check_unused, check_usable
from .running_vhost import RunningVhost
from .sessions import Sessions
from .vhosts import Vhosts

logger = logging.getLogger("durable")
ENDPOINT = "durable"
NOT_SETTINGS = ("choose", "transport")
"""Keyword arguments of `mesh.join` that are not settings."""


class Serving(SingleUseBlock["Broker"]):
    """What `serve` returns: a broker's life as a context manager."""

    used_as = "async with durable.serve(...) as broker"


def serve(
    data: str | Path, *, cluster: str = "broker", config: BrokerConfig | None = None,
    keyring: Keyring | None = None, **settings: Any,
) -> Serving:  # fmt: skip
    """Open a directory and serve it on the mesh, for as long as the block lasts.

    Args:
        data: the directory; made if it is not there.
        cluster: the name under which clients find the broker.
        keyring: used instead of the settings about keys.
        settings: as for `mesh.join`.
    Raises:
        RuntimeError: not called from a trio task.
        StoreInUse, ForeignStore, NewerFormat, StoreFailed: the directory cannot be opened.
        StoreKeyMissing, StoreKeyWrong: it is encrypted, and not for the keys that are held.
        What `mesh.join` raises.
    """
    return Serving(_life(data, cluster, config, keyring, settings))


@asynccontextmanager
async def _life(
    data: str | Path, cluster: str, config: BrokerConfig | None, keyring: Keyring | None,
    settings: Mapping[str, Any],
) -> AsyncGenerator[Broker]:  # fmt: skip
    check_in_trio()
    node_settings = {name: value for name, value in settings.items() if name not in NOT_SETTINGS}
    _, keyring = check_start(data, cluster, keyring, node_settings)
    async with (
        Broker(data, cluster=cluster, config=config, keyring=keyring) as broker,
        broker.on_mesh(**settings),
    ):
        yield broker


def check_start(
    data: str | Path, cluster: str, keyring: Keyring | None, settings: Mapping[str, Any]
) -> tuple[MeshConfig, Keyring]:
    """Check the settings before the directory is opened: if the mesh will refuse them, no directory is made,
    and an existing one is left as it is.

    Raises:
        StoreInUse: another broker has the directory open, which is most likely why an address is not free.
        What `mesh.join` raises.
    """
    config, keyring = check_settings(cluster, keyring, settings)
    try:
        check_free(binds_of(config, keyring))
    except CannotBind:
        check_unused(Path(data))
        raise
    return config, keyring


class Broker:
    """Everything under one directory, open for as long as the `async with` block.

    Raises on entering:
        StoreInUse: another broker has the directory open.
        ForeignStore, NewerFormat, StoreFailed: it cannot be opened.
        StoreKeyMissing, StoreKeyWrong: it is encrypted, or to be encrypted, and not for the keys that are held.

    Args:
        keyring: keys to join with, and for encryption at rest. None: `on_mesh` takes them from its
            settings, and nothing can be encrypted.
        collector: None if other code shares the process, so the garbage collector is left alone.
    """

    def __init__(
        self, data: str | Path, *, cluster: str = "broker", config: BrokerConfig | None = None,
        keyring: Keyring | None = None, collector: Collector | None = None,
    ) -> None:  # fmt: skip
        self._data, self._config = Path(data), config or BrokerConfig()
        self._keyring = keyring
        encryption = Encryption(keyring, cluster, self._config.encrypt)
        self._vhosts = Vhosts(self._data, self._config, encryption, collector or Collector())
        self.node: Node | None = None
        """The node; None until `on_mesh` has joined."""
        self.service = Service(cluster, concurrency=100_000)
        self._sessions = Sessions(cluster, self._vhosts)
        self.service.tunnel(ENDPOINT)(self._sessions.serve)

    async def __aenter__(self) -> Broker:
        await trio.to_thread.run_sync(check_usable, self._data, abandon_on_cancel=True)
        await self._vhosts.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        return await self._vhosts.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def on_mesh(self, **settings: Any) -> AsyncGenerator[Node]:
        """Join the mesh and serve clients, for as long as the block lasts. Raises what `mesh.join` raises."""
        settings.setdefault("tunnel_window_bytes", self._config.tunnel_window_bytes)
        if self._keyring is not None:  # The settings that the keyring was made from are left out.
            others = {name: one for name, one in settings.items() if name not in KEY_SOURCES}
            settings = {**others, "keyring": self._keyring}
        async with join(self.service, **settings) as node:
            self._vhosts.start_capture(node)
            self.node = node
            node.run_beside(partial(self._warn_of_others, node.watch(self.service.cluster)))
            try:
                yield node
            finally:
                self._vhosts.mark_leaving()

    async def _warn_of_others(self, members: Watch) -> None:
        """Log when there is a second broker of this cluster: otherwise nothing here would look wrong."""
        async for change in members:
            if change.kind == "joined":
                logger.warning(
                    "another broker serves cluster %s at %s: clients reach either of them, and each has its own "
                    "queues; stop one of them, or give it another cluster",
                    self.service.cluster, " ".join(change.member.endpoints),
                )  # fmt: skip

    def all_hosted(self) -> list[RunningVhost]:
        return self._vhosts.all()

    def hosted(self, name: str) -> RunningVhost:
        """Return an open vhost. Raises UnknownVhost, VhostUnavailable."""
        return self._vhosts.get(name)
