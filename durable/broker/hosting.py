"""The vhosts of one directory, each in a task of its own: made and deleted while the others run."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import trio

from mesh.errors import NodeClosed
from mesh.node import Node
from mesh.nursery import open_nursery

from ..config import BrokerConfig
from ..definition_checks import check_name
from ..errors import InUse, UnknownVhost
from .capture import Capture
from .clock import SteadyClock
from .directory import DEFAULT_VHOST, make_vhost, remove_vhost, vhosts
from .hosted import Hosted
from .opening import open_vhost


class Hosting:
    """Of one broker, for as long as the `async with` block. Raises on entering as `open_vhost`."""

    def __init__(self, data: Path, config: BrokerConfig) -> None:
        self._data, self._config = data, config
        self._clock = SteadyClock()
        self._hosted: dict[str, Hosted] = {}
        self._endings: dict[str, trio.Event] = {}
        self._ended: dict[str, trio.Event] = {}
        self._opening = open_nursery()
        self._nursery: trio.Nursery
        self._node: Node | None = None
        self._joined = trio.Event()
        self._turn = trio.Lock()

    async def __aenter__(self) -> Hosting:
        make_vhost(self._data, DEFAULT_VHOST)
        self._nursery = await self._opening.__aenter__()
        try:
            for name in vhosts(self._data):
                await self._nursery.start(self._host, name)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        for ending in self._endings.values():
            ending.set()
        return await self._opening.__aexit__(kind, error, trace)

    def joined(self, node: Node) -> None:
        """Streams can capture what is published on this node's mesh from now on."""
        self._node = node
        self._joined.set()

    @property
    def names(self) -> list[str]:
        return sorted(self._hosted)

    def all(self) -> list[Hosted]:
        return list(self._hosted.values())

    def get(self, name: str) -> Hosted:
        """Raises UnknownVhost."""
        hosted = self._hosted.get(name)
        if hosted is None:
            raise UnknownVhost(name, self.names)
        return hosted

    async def create(self, name: str) -> None:
        """Nothing happens when it is there. Raises InvalidDefinition, and as `open_vhost`."""
        check_name("vhost", "name", name)
        async with self._turn:
            if name not in self._hosted:
                await trio.to_thread.run_sync(make_vhost, self._data, name)
                await self._nursery.start(self._host, name)

    async def delete(self, name: str) -> None:
        """With everything in it; nobody may be using it. Nothing happens when it is not there.

        Raises:
            InUse: it is the one that is always there.
        """
        if name == DEFAULT_VHOST:
            raise InUse("vhost", name, "it is always there")
        async with self._turn:
            if name in self._hosted:
                self._endings[name].set()
                await self._ended[name].wait()
                await trio.to_thread.run_sync(remove_vhost, self._data, name)

    async def _host(
        self, name: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        ending, ended = trio.Event(), trio.Event()
        self._endings[name], self._ended[name] = ending, ended
        try:
            async with (
                open_vhost(self._data, name, self._config, self._clock) as hosted,
                open_nursery() as nursery,
            ):
                self._hosted[name] = hosted
                nursery.start_soon(self._capture, hosted)
                task_status.started()
                await ending.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._hosted.pop(name, None)
            ended.set()

    async def _capture(self, hosted: Hosted) -> None:
        await self._joined.wait()
        assert self._node is not None, "joined"
        try:
            await Capture(hosted, self._node, self._config.capture_bytes).run()
        except* NodeClosed:
            pass  # It leaves; what is published from now on is not for us.
