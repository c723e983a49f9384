"""Runs a core: carries its instructions to the transport, feeds it frames and finds, and keeps its clock.

    user task ──verb──> core ──┬─ alone ──> flush: pack, send               at once
                               └─ in company ──> pump's turn ──> flush      batched
    reader task ──frames──> core ──> deferred calls ──> flush

There is no linger timer: the pump runs when every ready task has had its turn, so a batch is what gathered in
the meantime. All protocol decisions are made in the core.
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

from .coalescing import Coalescer
from .errors import ConfigError, NodeClosed, WrongThread
from .forking import FORKED, end_at_next_wait, end_child, release_on_fork
from .nursery import open_nursery
from .protocol.carrying import carry_out
from .protocol.core import Core
from .protocol.instructions import ProbeResult
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
READS_MAX, READ_S_MAX = 3, 0.1
"""`_caught_up_time` takes a new time if reading took longer than READ_S_MAX, but only READS_MAX times in all, since timers must
not wait for ever."""
SILENT_SHOWN = 10
"""Addresses without an answer that `problems` lists: it is read by people."""
GOODBYE_S, WITHDRAW_S = 0.5, 1.0
"""Longest waits for peers and finders when a node leaves; frozen ones do not get more time."""


class Driver:
    """Runs one core. Implements the core's Shell and the transport's Receiver."""

    def __init__(self, transport: Transport) -> None:
        self._transport, self._thread = transport, get_ident()
        self.finders: Sequence[Finder] = ()
        self._pump, self._coalescer = Waker(), Coalescer()
        self._ready = False
        """Whether the pump has anything to send: it is also woken only to end a turn of the coalescer."""
        self._deferred: dict[Callable[[], object], None] = {}
        self._sleep_scope: trio.CancelScope | None = None
        self._nursery: trio.Nursery | None = None
        self.core: Core
        """Set once, right after the core was made with this driver as its shell."""
        self.room_bells: dict[TopicStream, Bell] = {}
        """Rung when the stream has room again: one bell per stream, since thousands of tasks may wait."""
        self.more_members = Bell()
        """Rung when there may be more members to ask, or more subscriptions of members."""
        self.tunnel_opened: Callable[[TunnelEnd, str, str], object]
        self.handled_tunnels: set[object] = set()
        """Tunnels whose handlers run and will end by themselves, so that a leaving node waits for them."""
        self.watches: WeakSet[Watch] = WeakSet()
        self.endpoints: tuple[Endpoint, ...] = ()
        self._announcement = b""
        self._announce_due = Waker()
        self.running = self.forked = False
        release_on_fork(self)

    # Tasks

    @enable_ki_protection
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Join the network, then run until cancelled."""
        async with open_nursery() as nursery:
            self._nursery, self.running = nursery, True
            self.core.timers.on_earlier = self._wake_earlier
            endpoints = await nursery.start(self._transport.run, self)
            self.endpoints = tuple(endpoints)
            try:
                self.core.announce(self.endpoints, trio.current_time())
            except CannotAnnounce as error:
                raise ConfigError(
                    f"cannot announce the clusters and addresses of this node: {error}"
                ) from error
            nursery.start_soon(self._run_timers)
            nursery.start_soon(self._run_pump)
            for finder in self.finders:
                nursery.start_soon(finder.run, self._found)
            nursery.start_soon(self._run_announcer)
            self.flush()
            task_status.started()

    def run_beside(self, task: Callable[[], Awaitable[object]]) -> None:
        """Run a task until this driver is cancelled."""
        assert self._nursery is not None, "the driver runs"
        self._nursery.start_soon(task)

    @enable_ki_protection
    async def _run_pump(self) -> None:
        publisher, published_before = self.core.patterns.publisher, 0
        while True:
            await self._pump.wait()
            if self._ready:
                self._ready = False
                while self._transport.receive():
                    self.flush()
                    await trio.lowlevel.checkpoint()
                self.flush()
            # However these messages were sent.
            self._coalescer.turn_ended(publisher.published - published_before)
            published_before = publisher.published

    @enable_ki_protection
    async def _run_timers(self) -> None:
        timers = self.core.timers
        while True:
            with trio.CancelScope(deadline=timers.due_s()) as self._sleep_scope:
                await trio.sleep_forever()
            self._sleep_scope = None
            self.core.tick(await self._caught_up_time())
            self.flush()

    async def _caught_up_time(self) -> float:
        """Return a recent time by which everything that had arrived has been read, even if our loop is late."""
        for _ in range(READS_MAX):
            now_s = trio.current_time()
            await trio.lowlevel.checkpoint()  # The loop finds it in the next turn,
            await trio.lowlevel.checkpoint()  # and it has been read after that turn.
            if trio.current_time() - now_s < READ_S_MAX:
                break  # An older time would make a deadline that starts at it expire too early.
        return now_s

    def _wake_earlier(self) -> None:
        if self._sleep_scope is not None:
            self._sleep_scope.deadline = self.core.timers.due_s()

    def _found(self, found: Found) -> None:
        self.core.found(found.endpoint, found.announcement, trio.current_time())
        self.flush()

    def problems(self) -> dict[str, str]:
        """Return the problems of finders by the finders' names; those of several DNS names are one text. A finder has a
        problem as well if it found addresses and nobody answers there, which the dialler knows."""
        problems: dict[str, list[str]] = {}
        seeds = self.core.peering.dialler.seeds
        for finder in self.finders:
            problem = finder.problem()
            if problem is None:
                silent = seeds.silent_among(finder.endpoints, each=finder.each_answers)
                problem = _no_answer(finder.place, silent) if silent else None
            if problem is not None:
                problems.setdefault(finder.source, []).append(problem)
        return {source: "; ".join(texts) for source, texts in problems.items()}

    @enable_ki_protection
    async def _run_announcer(self) -> None:
        if not self.endpoints:
            return  # Nobody could dial this node.
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
                        logger.warning(
                            "cannot announce this node by %s, use seeds instead: %s",
                            finder.source,
                            error,
                        )

    async def leave(self) -> None:
        """Finish running handlers and unsent data within `drain_s`, then say goodbye."""
        core = self.core
        core.drain()
        with trio.move_on_after(core.config.drain_s):
            self.flush()
            while core.is_busy() or self.handled_tunnels:  # noqa: ASYNC110 (an event for a moment that comes once in a life)
                await trio.sleep(0.01)
        core.leave(trio.current_time())
        self.flush()
        with trio.move_on_after(GOODBYE_S):
            while not core.goodbye_acked():  # noqa: ASYNC110
                await trio.sleep(0.002)
        with trio.move_on_after(WITHDRAW_S):
            for finder in self.finders:
                await finder.withdraw()

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call `call` after `seconds`, unless the timer is cancelled or the node has left; see `Timers.call_later`.

        `call` must not raise.
        """
        return self.core.timers.call_later(trio.current_time(), seconds, lambda _now_s: call())

    @contextmanager
    def within(self, seconds: float) -> Iterator[trio.CancelScope]:
        """Like `trio.move_on_after`, with a deadline as of `Timers.call_later`. Raises WrongThread."""
        self.check_thread()
        scope = trio.CancelScope()
        timer = self.after(seconds, scope.cancel)
        try:
            with scope:
                yield scope
        finally:
            timer.cancel()

    def close(self) -> None:
        """Stop, and wake everything that still waits. Does nothing the second time."""
        if not self.running:
            return
        self.running = False
        self.core.close()
        for watch in list(self.watches):
            watch.close()
        self.streams_freed(list(self.room_bells))
        self.more_members.wake()

    def release(self) -> None:
        """Stop, since this process is a forked child; verbs raise NodeClosed that says so."""
        in_own_thread = self.running and get_ident() == self._thread
        self.forked, self.running, self._thread = True, False, 0
        self.core.abandon(FORKED)
        if in_own_thread:
            end_at_next_wait()

    def check_thread(self) -> None:
        """Raise WrongThread in a thread that is not the node's, and NodeClosed in a forked child.

        Without this check not everything that a verb does would raise there, and some of it only when it is done.
        """
        if get_ident() != self._thread:
            raise NodeClosed(FORKED) if self.forked else WrongThread

    def end_if_forked(self) -> None:
        """End the process if it is a forked child that leaves a block: the rest of leaving would wait for ever."""
        if self.forked:
            end_child()

    def deadline_and_now(self) -> tuple[float, float]:
        """Return the deadline of the caller's scope, and the present time. Raises WrongThread."""
        self.check_thread()
        return trio.current_effective_deadline(), trio.current_time()

    async def checkpoint_if_cancelled(self) -> None:
        """Like trio's. Raises WrongThread."""
        self.check_thread()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def wait_count(self, count: int, find: Callable[[], C]) -> C:
        """Wait until `find` finds at least `count`; return what it finds. Raises NodeClosed, WrongThread, TypeError."""
        self.check_thread()  # Before anything waits, which a forked child cannot.
        if type(count) is not int:
            raise TypeError(f"count: want int, got {type(count).__name__}")
        # Also where it need not wait: a loop around it would else keep all other tasks from running.
        await trio.lowlevel.checkpoint()
        while len(found := find()) < count:
            self.core.check_open()
            await self.more_members.wait()
        return found

    # Carrying out

    def wake_pump(self) -> None:
        """Have the pump send, in its turn, what is ready to leave."""
        self._ready = True
        self._pump.wake()

    def append_first(self, stream: TopicStream, payload: bytes, size_bytes: int) -> None:
        """Add a topic's first message since the last flush, which makes it `size_bytes`. Raises WrongThread."""
        self.check_thread()
        stream.payloads.append(payload)
        stream.size_bytes = size_bytes
        self.core.patterns.publisher.mark_dirty(stream)
        self.schedule_flush()

    def schedule_flush(self) -> None:
        """A topic got its first message to send: send at once if messages come one by one, else in the pump's turn."""
        if self._coalescer.sends_at_once():
            self.flush()
            # To end the turn of the coalescer only: messages that come before it count as company.
            self._pump.wake()
        else:
            self.wake_pump()

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call `call` once, when all frames at hand have been handled, and before anything is sent.

        `call` may call the core, and must not raise. Once the node has left, it is called at once.
        """
        if self.running:
            self._deferred[call] = None
        else:
            call()

    def answered(self, *, alone: bool) -> None:
        """A handler answered. `alone`: no other handler runs, so no other reply is coming to share a frame with."""
        if alone:
            self.flush()
        else:
            self.wake_pump()

    @enable_ki_protection
    def flush(self) -> None:
        """Flush the core, and carry out all its instructions and those that follow from them."""
        if not self.running:
            return
        while self._deferred:
            deferred, self._deferred = self._deferred, {}
            for call in deferred:
                call()
        transport = self._transport
        if carry_out(self.core, transport, trio.current_time) and transport.check_arrivals():
            self.wake_pump()

    # Receiver

    def received(self, conn: Conn, user: str | None, data: bytes | memoryview) -> None:
        self.core.received(conn, user, data, trio.current_time())

    def lost(self, conn: Conn, *, denied: bool = False) -> None:
        self.core.lost(conn, trio.current_time(), denied=denied)

    def inbound_lost(self, conns: Sequence[Conn]) -> None:
        self.core.check_inbound(conns, trio.current_time())

    def cut_off(self, conns: Sequence[Conn], what: str, address: str) -> None:
        self.core.cut_off(conns, what, address, trio.current_time())

    def probed(self, node: bytes, endpoint: str, found: ProbeResult) -> None:
        self.core.probed(node, endpoint, found, trio.current_time())

    def refused(self, what: str, address: str = "", *, quiet: bool = False) -> None:
        by = f" from {address}" if address else ""
        text = "" if quiet else f"refused {what}{by}; further ones are counted, but not logged"
        self.core.refusals.count(what, text)

    # Shell

    def opened(self, end: TunnelEnd, cluster: str, endpoint: str) -> None:
        self.tunnel_opened(end, cluster, endpoint)

    def member_changed(self, change: Change) -> None:
        why = f", {change.reason}" if change.reason not in ("", change.kind) else ""
        logger.info("%r: %s%s", change.member, change.kind, why)
        for watch in list(self.watches):
            watch.changed(change)

    def announced(self, raw: bytes) -> None:
        self._announcement = raw
        if not self.core.closing:
            self._announce_due.wake()

    def streams_freed(self, streams: Sequence[TopicStream]) -> None:
        for stream in streams:
            if (bell := self.room_bells.pop(stream, None)) is not None:
                bell.wake()

    def audience_grew(self) -> None:
        self.more_members.wake()

    def log(self, text: str) -> None:
        logger.warning("%s", text)


def _no_answer(place: str, endpoints: Sequence[str]) -> str:
    listed_in = f"{place}: " if place else ""
    more = f" and {len(endpoints) - SILENT_SHOWN} more" if len(endpoints) > SILENT_SHOWN else ""
    shown = ", ".join(endpoints[:SILENT_SHOWN])
    return f"{listed_in}no answer from {shown}{more}: `mesh doctor` may tell why"
