"""Runs a core: carries its instructions to the transport and back, keeps its clock, feeds it finds.

    user task ──verb──> core ──┬─ alone ──> settle: flush, send             at once
                               └─ in company ──> pump's turn ──> settle     batched
    reader task ──frames──> core ──> due ──> settle

No linger timer: the pump runs when every task that is ready has had its turn, so a batch is what
gathered meanwhile. All protocol is in the core; there is no decision about it in here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import TypeVar
from weakref import WeakSet

import trio
from trio.lowlevel import enable_ki_protection

from discovery.endpoint import parse_endpoint
from discovery.errors import AnnouncementTooLarge
from discovery.finder import Finder, Found
from security.announcement import Endpoint
from security.errors import CannotAnnounce

from .errors import ConfigError, NodeClosed, WrongThread
from .forking import FORKED, end_child, end_where_it_waits, inherit
from .nursery import open_nursery
from .pace import Pace
from .protocol.carrying import carry_out
from .protocol.core import Core
from .protocol.instructions import Probed
from .protocol.lane import Conn
from .protocol.membership import Change
from .protocol.timers import Timer
from .protocol.topics import TopicStream
from .protocol.tunnel import TunnelEnd
from .transport import Transport
from .waker import Bell, Waker
from .watching import Watch

logger = logging.getLogger("mesh")
C = TypeVar("C", bound=Collection[object])
LOOKS, HARDLY_S = 3, 0.1
"""So often at most time is taken anew, where it was past before all was read: timers must not wait for ever."""
GOODBYE_S, WITHDRAW_S = 0.5, 1.0
"""Longest that peers and finders hold up a node that leaves: frozen ones do not get longer."""


class Driver:
    """Implements the core's Shell and the transport's Receiver."""

    def __init__(self, transport: Transport) -> None:
        self._transport, self._thread = transport, get_ident()
        self.finders: Sequence[Finder] = ()
        self._pump, self._pace = Waker(), Pace()
        self._ready = False
        """Whether the pump has anything to carry: it is woken for the pace alone, too."""
        self._due: dict[Callable[[], object], None] = {}
        self._sleep: trio.CancelScope | None = None
        self._nursery: trio.Nursery | None = None
        self.core: Core
        """Set once, right after the core was made with this driver as its shell."""
        self.topics_freed: dict[TopicStream, Bell] = {}
        """Rung when the stream may go on: a bell each, for there may be thousands that wait."""
        self.grown = Bell()
        """Rung when there may be more members to ask, or more subscriptions of theirs."""
        self.tunnel_opened: Callable[[TunnelEnd, str, str], object]
        self.handling: set[object] = set()
        """Tunnels whose handlers run and that will end by themselves."""
        self.watches: WeakSet[Watch] = WeakSet()
        self.endpoints: tuple[Endpoint, ...] = ()
        self._announcement = b""
        self._announce_due = Waker()
        self.running = self.forked = False
        inherit(self)

    # Tasks

    @enable_ki_protection
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Join the network, then keep going until cancelled."""
        async with open_nursery() as nursery:
            self._nursery, self.running = nursery, True
            self.core.timers.sooner = self._sooner
            endpoints = await nursery.start(self._transport.run, self)
            self.endpoints = tuple(endpoints)
            try:
                self.core.announce(self.endpoints, trio.current_time())
            except CannotAnnounce as error:
                raise ConfigError(f"clusters and addresses, all together: {error}") from error
            nursery.start_soon(self._keep_time)
            nursery.start_soon(self._run_pump)
            for finder in self.finders:
                nursery.start_soon(finder.run, self._found)
            nursery.start_soon(self._keep_announced)
            self.settle()
            task_status.started()

    def run_beside(self, task: Callable[[], Awaitable[object]]) -> None:
        """Until this driver is cancelled."""
        assert self._nursery is not None, "the driver runs"
        self._nursery.start_soon(task)

    @enable_ki_protection
    async def _run_pump(self) -> None:
        publisher, before = self.core.patterns.publisher, 0
        while True:
            await self._pump.wait()
            ready, self._ready = self._ready, False
            if ready:
                self.settle()
            self._pace.turn(publisher.published - before)  # Whoever made them leave, and with what.
            before = publisher.published
            if ready:
                while self._transport.receive():
                    self.settle()
                    await trio.lowlevel.checkpoint()
                self.settle()

    @enable_ki_protection
    async def _keep_time(self) -> None:
        timers = self.core.timers
        while True:
            with trio.CancelScope(deadline=timers.due_s()) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None
            self.core.tick(await self._read_until())
            self.settle()

    async def _read_until(self) -> float:
        """A time, hardly past, by which all that has come has been read, although our loop may be late."""
        for _ in range(LOOKS):
            now_s = trio.current_time()
            await trio.lowlevel.checkpoint()  # In the next turn it is found,
            await trio.lowlevel.checkpoint()  # and after that turn it has been read.
            if trio.current_time() - now_s < HARDLY_S:
                break  # Else what is begun at that time would soon be over.
        return now_s

    def _sooner(self) -> None:
        if self._sleep is not None:
            self._sleep.deadline = self.core.timers.due_s()

    def _found(self, found: Found) -> None:
        self.core.found(found.endpoint, found.announcement, trio.current_time())
        self.settle()

    def problems(self) -> dict[str, str]:
        """Of finders, by name. Which seeds are silent the dialler knows."""
        told = ((finder.source, finder.problem()) for finder in self.finders)
        found = {source: problem for source, problem in told if problem is not None}
        seeds = self.core.config.seeds
        if silent := [one for one in self.core.peering.dialler.seeds.silent() if one in seeds]:
            found["seeds"] = f"no answer from {', '.join(silent)}: `mesh doctor` may say why"
        return found

    @enable_ki_protection
    async def _keep_announced(self) -> None:
        if not self.endpoints:
            return  # Whoever found this node could not dial it.
        _, port = parse_endpoint(self.endpoints[0].uri)
        too_large: set[str] = set()
        while True:
            await self._announce_due.wait()
            for finder in self.finders:
                try:
                    await finder.announce(self._announcement, port)
                except AnnouncementTooLarge as error:
                    if finder.source not in too_large:
                        too_large.add(finder.source)
                        logger.warning("not announced by %s, use seeds: %s", finder.source, error)

    async def leave(self) -> None:
        """Finish what runs, within `drain_s`, then say goodbye."""
        core = self.core
        core.drain()
        with trio.move_on_after(core.config.drain_s):
            self.settle()
            while core.busy() or self.handling:  # noqa: ASYNC110 (an event for a moment that comes once in a life)
                await trio.sleep(0.01)
        core.leave(trio.current_time())
        self.settle()
        with trio.move_on_after(GOODBYE_S):
            while not core.goodbye_heard():  # noqa: ASYNC110
                await trio.sleep(0.002)
        with trio.move_on_after(WITHDRAW_S):
            for finder in self.finders:
                await finder.withdraw()

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """`call` then, unless the timer is cancelled or the node has left by then; see `Timers.patiently`. It must not
        raise."""
        return self.core.timers.patiently(trio.current_time(), seconds, lambda _now_s: call())

    @contextmanager
    def within(self, seconds: float) -> Iterator[trio.CancelScope]:
        """As `trio.move_on_after`, but see `Timers.patiently`. Raises WrongThread."""
        self.check_thread()
        scope = trio.CancelScope()
        timer = self.after(seconds, scope.cancel)
        try:
            with scope:
                yield scope
        finally:
            timer.cancel()

    def close(self) -> None:
        """Nothing moves any more: tell whoever still waits. Again: nothing."""
        if not self.running:
            return
        self.running = False
        self.core.close()
        for watch in list(self.watches):
            watch.close()
        self.freed(list(self.topics_freed))
        self.grown.wake()

    def let_go(self) -> None:
        """This process is a forked child: nothing moves here, and verbs say so."""
        here = self.running and get_ident() == self._thread
        self.forked, self.running, self._thread = True, False, 0
        self.core.let_go(FORKED)
        if here:
            end_where_it_waits()

    def check_thread(self) -> None:
        """Raises WrongThread: not all that a verb does would, and some of it only when it is done.
        In a forked child, NodeClosed."""
        if get_ident() != self._thread:
            raise NodeClosed(FORKED) if self.forked else WrongThread

    def end_if_forked(self) -> None:
        """A block is left: a forked child ends here, for the rest would wait."""
        if self.forked:
            end_child()

    def now(self) -> tuple[float, float]:
        """When the caller's scope ends, and what time it is. Raises WrongThread."""
        self.check_thread()
        return trio.current_effective_deadline(), trio.current_time()

    async def checkpoint_if_cancelled(self) -> None:
        """Raises WrongThread."""
        self.check_thread()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def until(self, count: int, look: Callable[[], C]) -> C:
        """What `look` finds of members, once that is as many. Raises NodeClosed, TypeError."""
        if type(count) is not int:
            raise TypeError(f"count: want int, got {type(count).__name__}")
        while len(found := look()) < count:
            self.core.check_open()
            await self.grown.wait()
        return found

    # Carrying out

    def wake_pump(self) -> None:
        """Something is ready to leave: in the pump's turn."""
        self._ready = True
        self._pump.wake()

    def begin(self, stream: TopicStream, payload: bytes, size_bytes: int) -> None:
        """A topic has its first message since the last flush, and so much then. Raises WrongThread."""
        self.check_thread()
        stream.payloads.append(payload)
        stream.size_bytes = size_bytes
        self.core.patterns.publisher.begin(stream)
        self.gathers()

    def gathers(self) -> None:
        """A topic has a first message to leave: at once if they come one by one, else with others."""
        if self._pace.leaves_now():
            self.settle()
            self._pump.wake()  # For the pace alone: what else comes before its turn is company.
        else:
            self.wake_pump()

    def soon(self, call: Callable[[], object]) -> None:
        """Call it, once, when all the frames at hand have been taken in and before anything leaves.

        It may call the core, and must not raise. Once the node has left: now.
        """
        if self.running:
            self._due[call] = None
        else:
            call()

    def answered(self, *, alone: bool) -> None:
        """A handler answered; `alone`: no other runs, so nothing to travel with is coming."""
        if alone:
            self.settle()
        else:
            self.wake_pump()

    @enable_ki_protection
    def settle(self) -> None:
        """Flush the core and carry out everything it wants done, what follows from it included."""
        if not self.running:
            return
        while self._due:
            due, self._due = self._due, {}
            for call in due:
                call()
        transport = self._transport
        if carry_out(self.core, transport, trio.current_time) and transport.poke():
            self.wake_pump()

    # Receiver

    def received(self, conn: Conn, user: str | None, data: bytes | memoryview) -> None:
        self.core.received(conn, user, data, trio.current_time())

    def lost(self, conn: Conn, *, denied: bool = False) -> None:
        self.core.lost(conn, trio.current_time(), denied=denied)

    def inbound_lost(self, conns: Sequence[Conn]) -> None:
        self.core.inbound_lost(conns, trio.current_time())

    def cut_off(self, conns: Sequence[Conn], what: str, who: str) -> None:
        self.core.cut_off(conns, what, who, trio.current_time())

    def probed(self, node: bytes, endpoint: str, found: Probed) -> None:
        self.core.probed(node, endpoint, found, trio.current_time())

    def refused(self, what: str, who: str = "", *, quiet: bool = False) -> None:
        by = f" from {who}" if who else ""
        text = "" if quiet else f"refused {what}{by}; further ones are counted"
        self.core.refusals.count(what, text)

    # Shell

    def opened(self, end: TunnelEnd, cluster: str, endpoint: str) -> None:
        self.tunnel_opened(end, cluster, endpoint)

    def changed(self, change: Change) -> None:
        why = f", {change.reason}" if change.reason not in ("", change.kind) else ""
        logger.info("%r: %s%s", change.member, change.kind, why)
        for watch in list(self.watches):
            watch.changed(change)

    def announced(self, raw: bytes) -> None:
        self._announcement = raw
        if not self.core.closing:
            self._announce_due.wake()

    def freed(self, streams: Sequence[TopicStream]) -> None:
        for stream in streams:
            if (bell := self.topics_freed.pop(stream, None)) is not None:
                bell.wake()

    def grew(self) -> None:
        self.grown.wake()

    def log(self, text: str) -> None:
        logger.warning("%s", text)
