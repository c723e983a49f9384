"""The vhosts of one directory, each in a task of its own; vhosts can be made and deleted while others run."""

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
    cause_of,
)
from ..log.disk import NO_SPACE
from ..log.encryption import Encryption
from ..log.log import Log
from ..log.real_disk import RealDirectory, free_bytes
from ..log.scarcity import Scarcity
from .auto_deletion import CLOSE_S
from .capture import Capture
from .clock import SteadyClock
from .collecting import Collector
from .directory import (
    DEFAULT_VHOST,
    finish_removals,
    is_vhost,
    make_folders,
    make_vhost,
    remove_vhost,
    vhost_names,
    vhost_path,
    write_vhost_name,
)
from .opening import open_vhost
from .running_vhost import RunningVhost
from .stream_check import StreamCheck

logger = logging.getLogger("durable")
T = TypeVar("T")

UNAVAILABLE = (StoreKeyMissing, StoreKeyWrong, ForeignStore, NewerFormat)
"""Errors of one vhost that we cannot open, with nothing in it touched; others are served. A disk that fails
stops all."""


@dataclass(slots=True, eq=False)
class _VhostTask:
    """The task of a vhost, from before it is opened until it is closed."""

    running: RunningVhost | None = None
    """None if it is not open yet, or not accessible any more."""
    ending: trio.Event = field(default_factory=trio.Event)
    deleted: bool = False
    """Whether its files are to be removed when it has ended."""
    removal_scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around their removal; cancelled if the broker closes while its disk hangs."""
    ended: trio.Event = field(default_factory=trio.Event)
    removal_failure: StoreFailed | None = None
    """Why its files are still there, if they could not be removed."""

    async def wait_removed(self) -> None:
        """Return when its files are removed. Raises StoreFailed if the vhost still exists."""
        await self.ended.wait()
        if self.removal_failure is not None:
            raise self.removal_failure


class Vhosts:
    """All vhosts of one broker, open for as long as the `async with` block.

    Entering raises what `open_vhost` raises, except UNAVAILABLE errors of vhosts other than `/`: these are
    told to their clients, and the other vhosts are served.
    """

    def __init__(
        self, data: Path, config: BrokerConfig, encryption: Encryption, collector: Collector
    ) -> None:
        self._data, self._config, self._encryption = data, config, encryption
        self.collector = collector
        self._scarcity = Scarcity(f"creating or deleting a vhost in {data}", config.log.retry_s)
        self._clock = SteadyClock()
        self._tasks: dict[str, _VhostTask] = {}
        self._default_log: Log
        """The log of `/`, whose lock is that of the whole directory."""
        self._unavailable: set[str] = set()
        """Names of vhosts that cannot be opened until the next start."""
        self._nursery_manager = open_nursery()
        self._nursery: trio.Nursery
        self._node: Node | None = None
        self._joined = trio.Event()
        self._creating = trio.Lock()
        self.import_limiter = trio.CapacityLimiter(1)
        """One import at a time: unpacked, definitions take more than ten times their memory."""

    async def __aenter__(self) -> Vhosts:
        self._nursery = await self._nursery_manager.__aenter__()
        try:
            with self.collector.growing() as freeze:
                await trio.to_thread.run_sync(
                    make_folders, self._data, DEFAULT_VHOST, abandon_on_cancel=True
                )
                # This locks the directory: before it, nothing is written or removed, which may be another broker's.
                await self._start(DEFAULT_VHOST)
                self._default_log = self.get(DEFAULT_VHOST).log
                await self._call_locked(write_vhost_name, RealDirectory(self._data), DEFAULT_VHOST)
                await self._call_locked(finish_removals, RealDirectory(self._data))
                for name in await self._call_locked(vhost_names, self._data):
                    if name != DEFAULT_VHOST:
                        await self._call_locked(make_vhost, self._data, name)
                        await self._start(name)
                freeze(sum(map(_member_count, self.all())))
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _start(self, name: str) -> None:
        try:
            await self._nursery.start(self._host, name)
        except UNAVAILABLE as error:
            if name == DEFAULT_VHOST:
                raise
            self._unavailable.add(name)
            logger.error("vhost %s cannot be opened, only the others are served: %s", name, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        for task in self._tasks.values():
            task.ending.set()
        self._nursery.start_soon(self._cancel_late_removals)
        return await self._nursery_manager.__aexit__(kind, error, trace)

    async def _cancel_late_removals(self) -> None:
        """Give up removing deleted vhosts when the broker closes and that takes too long."""
        await run_within(CLOSE_S, self._wait_all_ended)
        for task in self._tasks.values():
            task.removal_scope.cancel()

    async def _wait_all_ended(self) -> None:
        for task in list(self._tasks.values()):
            await task.ended.wait()

    def start_capture(self, node: Node) -> None:
        """Streams can capture what is published on this node's mesh from now on."""
        self._node = node
        self._joined.set()

    def mark_leaving(self) -> None:
        """The broker is about to end its clients' tunnels: the clients have not left by themselves."""
        for running in self.all():
            running.leaving = True

    @property
    def names(self) -> list[str]:
        return sorted(name for name, one in self._tasks.items() if one.running is not None)

    def all(self) -> list[RunningVhost]:
        return [one.running for one in self._tasks.values() if one.running is not None]

    def names_for(self, cluster: str) -> list[str]:
        """Names of the vhosts in which this cluster has any permission."""
        vhosts = (one.vhost for one in self.all())
        return sorted(one.name for one in vhosts if one.registry.permissions.admits(cluster))

    def get(self, name: str, cluster: str | None = None) -> RunningVhost:
        """Return a vhost that is open.

        Args:
            cluster: the caller, which is told only of vhosts in which it has any permission; None: all.
        Raises:
            UnknownVhost: there is none of this name, or it is not open.
            VhostUnavailable: it could not be opened.
        """
        self.check_available(name)
        task = self._tasks.get(name)
        if task is None or task.running is None:
            raise UnknownVhost(name, self.names if cluster is None else self.names_for(cluster))
        return task.running

    async def create(self, name: str) -> None:
        """Make a vhost and open it; nothing happens if it exists.

        Raises:
            InvalidDefinition: the name is invalid.
            VhostUnavailable: it exists and could not be opened.
            StoreFull: there is no space for it; nothing is left of a new one.
            StoreError: it could not be opened; nothing is left of a new one.
        """
        check_name("vhost", "name", name)
        self.check_available(name)
        async with self._creating:
            previous = self._tasks.get(name)
            if previous is not None and previous.deleted:
                await previous.ended.wait()
            if name not in self._tasks:
                await self._create(name)

    async def _create(self, name: str) -> None:
        new = False  # Assume so until it is known: files that exist are not removed.
        try:
            new = not await self._call_locked(is_vhost, vhost_path(self._data, name))
            await self._call_locked(make_vhost, self._data, name)
            await self._scarcity.retry(partial(self._nursery.start, self._host, name))
        except (StoreError, OSError) as error:
            refusal = self._refusal(name, error)
            if new:  # Otherwise the next start would take it for a vhost, and fail to open it.
                await self._remove_unfinished(name).ended.wait()
            if refusal is error:
                raise
            raise refusal from error
        except BaseException:  # The caller is gone, and has not learnt that there is one.
            if new and name not in self._tasks:
                self._remove_unfinished(name)
            raise

    def _remove_unfinished(self, name: str) -> _VhostTask:
        """Remove a vhost that could not be made, or whose making was cut off, whatever becomes of the caller. Otherwise
        a deletion would find none, and the next start would."""
        task = self._tasks[name] = _VhostTask()
        task.deleted = True

        async def remove() -> None:
            try:
                with self._default_log.calls.held():
                    await self._delete(name, task)
            finally:
                del self._tasks[name]
                task.ended.set()

        self._nursery.start_soon(remove)
        return task

    def _refusal(self, name: str, error: StoreError | OSError) -> StoreError:
        """Return the error to raise for a vhost that cannot be made."""
        if cause_of(error).errno in NO_SPACE:
            log = self._config.log
            with suppress(OSError):  # A disk that does not tell its free space has failed.
                return log.full_error(log.segment_bytes, free_bytes(self._data))
        if isinstance(error, OSError | StoreFailed):
            why = error.reason if isinstance(error, StoreFailed) else error
            return StoreFailed(f"vhost {name!r} cannot be created: {why}", store_continues=True)
        return error

    def check_available(self, name: str) -> None:
        """Raises VhostUnavailable if the vhost exists and could not be opened."""
        if name in self._unavailable:
            raise VhostUnavailable(name)

    def stream_check(
        self, running: RunningVhost, cluster: str, streams: Iterable[StreamDefinition]
    ) -> StreamCheck:
        """Return the check of streams that are to be declared. `cluster` needs the permission in `/`, too: what reaches
        the node is the broker's, so full rights in one vhost must not give rights to it."""
        vhosts = [one.vhost for one in dict.fromkeys((running, self.get(DEFAULT_VHOST)))]
        return StreamCheck(vhosts, cluster, streams, self._check_room)

    def _check_room(self, new: int) -> None:
        """Raises TooManyPatterns if all vhosts together would have too many with `new` more."""
        if not new or self._node is None:
            return
        counts = (len(one.vhost.registry.patterns) for one in self.all())
        count, limit = sum(counts) + new, self._node.config.subscriptions_max
        if count > limit:
            raise TooManyPatterns(count, limit)

    def delete(self, name: str) -> tuple[RunningVhost, Callable[[], Awaitable[None]]]:
        """Delete a vhost with everything in it. It becomes inaccessible at once, even if the caller is
        cancelled later.

        Returns:
            The vhost, which sessions still use; and a function that returns when its files are gone, or
            raises StoreFailed.
        Raises:
            UnknownVhost: there is none of this name.
            InUse: it is `/`, which always exists.
        """
        if name == DEFAULT_VHOST:
            raise InUse("vhost", name, "it always exists; delete its contents one by one")
        running, task = self.get(name), self._tasks[name]
        task.running, task.deleted = None, True
        task.ending.set()
        return running, task.wait_removed

    async def _host(
        self, name: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        task = self._tasks[name] = _VhostTask()
        try:
            with ExitStack() as locked:
                async with (
                    open_vhost(
                        self._data, name, self._config, self._encryption, self._clock
                    ) as running,
                    open_nursery() as nursery,
                ):
                    task.running = running
                    nursery.start_soon(self._capture, running)
                    task_status.started()
                    await task.ending.wait()
                    if task.deleted:
                        locked.enter_context(self._default_log.calls.held())
                    nursery.cancel_scope.cancel()
                if task.deleted:
                    await self._delete(name, task, running.log)
        finally:
            del self._tasks[name]
            task.ended.set()

    async def _delete(self, name: str, task: _VhostTask, log: Log | None = None) -> None:
        """Remove the files of a vhost when no call of its log, if it has one, is under way; until then its name stays taken.
        A call that hangs could otherwise make or remove files of a new vhost of that name when it returns."""
        with task.removal_scope, suppress(StoreClosed):
            if log is not None:
                await log.calls.wait_idle()
            task.removal_failure = await self._remove(name)
            return
        logger.error(
            "vhost %s is not deleted yet, because the disk hangs: the next start deletes it, or has it unchanged",
            name,
        )  # fmt: skip

    async def _remove(self, name: str) -> StoreFailed | None:
        """Remove the files of a vhost. Return why it still exists, if it does."""
        try:
            await self._call_locked(remove_vhost, RealDirectory(self._data), name)
        except StoreFailed as error:
            logger.error("%s; it exists again after the next start", error)
            return error
        except OSError as error:
            logger.warning(
                "not all files of vhost %s were removed; if its name file is left, it exists again after the next start: %s",
                name, error,
            )  # fmt: skip
        return None

    async def _call_locked(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call in a thread; the directory stays locked until the call returns. One call at a time, even after
        one was abandoned. A call that finds no file descriptors is repeated: a deletion that gives up
        would leave the name file, and with it the vhost."""
        return await self._scarcity.retry(
            partial(self._default_log.in_thread, call, *arguments, kind="vhosts")
        )

    async def _capture(self, running: RunningVhost) -> None:
        await self._joined.wait()
        assert self._node is not None, "joined"
        try:
            await Capture(running, self._node, self._config.capture_bytes).run()
        except* NodeClosed:
            pass  # The node leaves; nothing more is captured.


def _member_count(running: RunningVhost) -> int:
    """Number of queues and streams. Bindings are not counted: they belong to these."""
    registry = running.vhost.registry
    return len(registry.queues) + len(registry.streams)
