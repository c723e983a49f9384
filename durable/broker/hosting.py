"""The vhosts of one directory, each in a task of its own: made and deleted while the others run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import trio

from mesh.errors import NodeClosed
from mesh.node import Node
from mesh.nursery import open_nursery, run_within

from ..config import BrokerConfig
from ..definition_checks import check_name
from ..definitions import StreamDefinition
from ..errors import (
    ForeignStore,
    InUse,
    NewerFormat,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreKeyMissing,
    StoreKeyWrong,
    TooManyPatterns,
    UnknownVhost,
    VhostUnavailable,
)
from ..log.disk import NO_SPACE
from ..log.encryption import Encryption
from ..log.log import Log
from ..log.real_disk import RealDirectory, free_bytes
from ..log.scarcity import Scarcity
from .capture import Capture
from .clock import SteadyClock
from .collecting import Collector
from .directory import (
    DEFAULT_VHOST,
    finish_removals,
    is_vhost,
    make_vhost,
    remove_vhost,
    vhost_path,
    vhosts,
)
from .ending import CLOSE_S
from .hosted import Hosted
from .opening import open_vhost

logger = logging.getLogger("durable")
T = TypeVar("T")

UNAVAILABLE = (StoreKeyMissing, StoreKeyWrong, ForeignStore, NewerFormat)
"""One vhost is not for us to open, and nothing in it was touched. A disk that fails is everybody's."""


@dataclass(slots=True, eq=False)
class _Running:
    """The task of a vhost, from before it is opened until it is closed."""

    hosted: Hosted | None = None
    """None: it is not open yet, or nobody gets at it any more."""
    ending: trio.Event = field(default_factory=trio.Event)
    deleted: bool = False
    """Its files go when it has ended."""
    going: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around that: cancelled if the broker closes and its disk hangs."""
    ended: trio.Event = field(default_factory=trio.Event)
    kept: StoreFailed | None = None
    """Why it is there still, though it was to be deleted."""

    async def gone(self) -> None:
        """Return when its files are. Raises StoreFailed: they are not, nor is its name."""
        await self.ended.wait()
        if self.kept is not None:
            raise self.kept


class Hosting:
    """Of one broker, for as long as the `async with` block. Raises on entering as `open_vhost`, but
    what `UNAVAILABLE` says of a vhost other than `/` is told to its clients: the others are served."""

    def __init__(
        self, data: Path, config: BrokerConfig, encryption: Encryption, collector: Collector
    ) -> None:
        self._data, self._config, self._encryption = data, config, encryption
        self.collector = collector
        self._scarcity = Scarcity(f"who makes and removes vhosts in {data}", config.log.retry_s)
        self._clock = SteadyClock()
        self._running: dict[str, _Running] = {}
        self._home: Log
        """Of `/`: its lock is that of the whole directory."""
        self._unavailable: set[str] = set()
        """Until the next start."""
        self._opening = open_nursery()
        self._nursery: trio.Nursery
        self._node: Node | None = None
        self._joined = trio.Event()
        self._creating = trio.Lock()
        self.importing = trio.CapacityLimiter(1)
        """Unpacked, definitions take ten times their memory and more."""

    async def __aenter__(self) -> Hosting:
        self._nursery = await self._opening.__aenter__()
        try:
            with self.collector.growing() as stay:
                await trio.to_thread.run_sync(
                    make_vhost, self._data, DEFAULT_VHOST, abandon_on_cancel=True
                )
                await self._begin(DEFAULT_VHOST)  # Before anything is removed: others may be at it.
                self._home = self.get(DEFAULT_VHOST).log
                await self._at_home(finish_removals, RealDirectory(self._data))
                for name in await self._at_home(vhosts, self._data):
                    if name != DEFAULT_VHOST:
                        await self._at_home(make_vhost, self._data, name)
                        await self._begin(name)
                stay(sum(map(_entries, self.all())))
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _begin(self, name: str) -> None:
        try:
            await self._nursery.start(self._host, name)
        except UNAVAILABLE as error:
            if name == DEFAULT_VHOST:
                raise
            self._unavailable.add(name)
            logger.error("vhost %s cannot be opened, the others are served: %s", name, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        for running in self._running.values():
            running.ending.set()
        self._nursery.start_soon(self._give_up_in_time)
        return await self._opening.__aexit__(kind, error, trace)

    async def _give_up_in_time(self) -> None:
        """What is being deleted when the broker closes."""
        await run_within(CLOSE_S, self._all_ended)
        for running in self._running.values():
            running.going.cancel()

    async def _all_ended(self) -> None:
        for running in list(self._running.values()):
            await running.ended.wait()

    def joined(self, node: Node) -> None:
        """Streams can capture what is published on this node's mesh from now on."""
        self._node = node
        self._joined.set()

    def leaving(self) -> None:
        """The broker is about to end its clients' tunnels: they did not."""
        for hosted in self.all():
            hosted.leaving = True

    @property
    def names(self) -> list[str]:
        return sorted(name for name, one in self._running.items() if one.hosted is not None)

    def all(self) -> list[Hosted]:
        return [one.hosted for one in self._running.values() if one.hosted is not None]

    def names_for(self, cluster: str) -> list[str]:
        """Of those in which it may do anything."""
        vhosts = (one.vhost for one in self.all())
        return sorted(one.name for one in vhosts if one.registry.permissions.admits(cluster))

    def get(self, name: str, cluster: str | None = None) -> Hosted:
        """
        Args:
            cluster: who asks; it is told only of vhosts in which it may do anything.
        Raises:
            UnknownVhost: there is none, or it is not open.
            VhostUnavailable: it could not be opened.
        """
        self.check_available(name)
        running = self._running.get(name)
        if running is None or running.hosted is None:
            raise UnknownVhost(name, self.names if cluster is None else self.names_for(cluster))
        return running.hosted

    async def create(self, name: str) -> None:
        """Nothing happens when it is there.

        Raises:
            InvalidDefinition, VhostUnavailable.
            StoreFull: there is no space for it; nothing is left of one that was not there.
            StoreError: it could not be opened; nothing is left of one that was not there.
        """
        check_name("vhost", "name", name)
        self.check_available(name)
        async with self._creating:
            before = self._running.get(name)
            if before is not None and before.deleted:
                await before.ended.wait()
            if name not in self._running:
                await self._make(name)

    async def _make(self, name: str) -> None:
        new = False  # Until it is known: what may be there is not removed.
        try:
            new = not await self._at_home(is_vhost, vhost_path(self._data, name))
            await self._at_home(make_vhost, self._data, name)
            await self._nursery.start(self._host, name)
        except (StoreError, OSError) as error:
            refusal = self._refusal(name, error)
            if new:  # Else it would be a vhost at the next start, and keep that from being one.
                await self._remove(name)
            if refusal is error:
                raise
            raise refusal from error

    def _refusal(self, name: str, error: StoreError | OSError) -> StoreError:
        """What is told of a vhost that cannot be made."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in NO_SPACE:
            log = self._config.log
            with suppress(OSError):  # A disk that does not say how full it is has failed.
                return log.full(log.segment_bytes, free_bytes(self._data))
        if isinstance(error, OSError):
            return StoreFailed(f"vhost {name!r} cannot be made: {error}")
        return error

    def check_available(self, name: str) -> None:
        """Raises VhostUnavailable."""
        if name in self._unavailable:
            raise VhostUnavailable(name)

    def check_patterns(self, hosted: Hosted, streams: Iterable[StreamDefinition]) -> None:
        """Whether these may be declared in this vhost: what the node cannot subscribe to is not captured.

        Raises:
            TooManyPatterns: in all vhosts together. Not for patterns that are there already.
        """
        there = hosted.vhost.registry.patterns
        asked = {pattern for stream in streams for pattern in stream.patterns}
        more = [pattern for pattern in asked if pattern not in there]
        if not more or self._node is None:
            return
        here = (len(one.vhost.registry.patterns) for one in self.all())
        count, limit = sum(here) + len(more), self._node.config.subscriptions_max
        if count > limit:
            raise TooManyPatterns(count, limit)

    def delete(self, name: str) -> tuple[Hosted, Callable[[], Awaitable[None]]]:
        """With everything in it: at once nobody gets at it any more, whatever becomes of the caller.

        Returns:
            Who is using it still; what returns when its files are gone, or raises StoreFailed.
        Raises:
            UnknownVhost: there is none of this name.
            InUse: it is the one that is always there.
        """
        if name == DEFAULT_VHOST:
            raise InUse("vhost", name, "it is always there; delete what is in it, one by one")
        hosted, running = self.get(name), self._running[name]
        running.hosted, running.deleted = None, True
        running.ending.set()
        return hosted, running.gone

    async def _host(
        self, name: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        running = self._running[name] = _Running()
        try:
            with ExitStack() as locked:
                async with (
                    open_vhost(
                        self._data, name, self._config, self._encryption, self._clock
                    ) as hosted,
                    open_nursery() as nursery,
                ):
                    running.hosted = hosted
                    nursery.start_soon(self._capture, hosted)
                    task_status.started()
                    await running.ending.wait()
                    if running.deleted:
                        locked.enter_context(self._home.calls.held())
                    nursery.cancel_scope.cancel()
                if running.deleted:
                    await self._delete(name, running, hosted.log)
        finally:
            del self._running[name]
            running.ended.set()

    async def _delete(self, name: str, running: _Running, log: Log) -> None:
        """Its files, once nobody is at them. Until then it keeps its name: what a call that hangs makes or
        removes when it is back would be another one's."""
        with running.going, suppress(StoreClosed):
            await log.calls.back()
            running.kept = await self._remove(name)
            return
        logger.error(
            "vhost %s is not deleted yet, the disk hangs: the next start finishes that, or has it as it was",
            name,
        )  # fmt: skip

    async def _remove(self, name: str) -> StoreFailed | None:
        """Why it is there still, if it is."""
        try:
            await self._at_home(remove_vhost, RealDirectory(self._data), name)
        except StoreFailed as error:
            logger.error("%s; the next start has it", error)
            return error
        except OSError as error:
            logger.warning(
                "not all files of vhost %s are removed; with its name among them it is back at the next start: %s",
                name, error,
            )  # fmt: skip
        return None

    async def _at_home(self, call: Callable[..., T], *arguments: Any) -> T:
        """In a thread; the directory stays locked until it is back. One after the other, where one was left. What finds
        no descriptor is done again: of what is deleted the name would be left, and with it all."""
        return await self._scarcity.outlast(
            partial(self._home.in_thread, call, *arguments, kind="vhosts")
        )

    async def _capture(self, hosted: Hosted) -> None:
        await self._joined.wait()
        assert self._node is not None, "joined"
        try:
            await Capture(hosted, self._node, self._config.capture_bytes).run()
        except* NodeClosed:
            pass  # It leaves; what is published from now on is not for us.


def _entries(hosted: Hosted) -> int:
    """Declared ones; what is bound is not counted, for it is bound to these."""
    registry = hosted.vhost.registry
    return len(registry.queues) + len(registry.streams)
