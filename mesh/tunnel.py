"""A tunnel: an ordered stream of parts to one member, throttled by its reader."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import trio
from trio.lowlevel import enable_ki_protection

from .driver import Driver
from .errors import TooLarge, TunnelBroken
from .protocol.tunnel import BROKEN, CLOSED, TunnelEnd, TunnelStatistics
from .waker import Bell

GATHER_BYTES, PART_COST_BYTES = 256 * 1024, 256
"""Sent before other tasks have their turn; a part costs time beside its bytes."""
TWO_READ = "two tasks read a tunnel at once: while `each` takes what comes, no other gets any"


class Tunnel:
    """One end. Made by `Node.open_tunnel`, or given to a `@service.tunnel` handler.

    What is sent arrives in order, part by part, complete while both ends live; `send` waits while
    the reader lags by a window. Leaving the block, or the handler, says that this end is done:
    after an exception both ends are broken, otherwise the other end reads all that was sent.
    """

    def __init__(self, driver: Driver, end: TunnelEnd) -> None:
        self._driver, self._end = driver, end
        self._tunnels = driver.core.patterns.tunnels
        self._bell = Bell()
        self._gathered_bytes = 0
        self._iterating = 0
        """Tasks that iterate it and wait."""
        end.wake = self._bell.wake
        self.within = driver.within
        """As a node's: for what is built on top of it."""

    @property
    def caller(self) -> str:
        """The cluster whose key the node at the other end showed."""
        return self._end.link.cluster

    @property
    def node(self) -> bytes:
        """Id of the node at the other end."""
        return self._end.link.peer

    @property
    def target(self) -> str:
        """`cluster/endpoint` it was opened to."""
        return self._end.target

    @property
    def window_bytes(self) -> int:
        """What may be on its way to the other end, unread."""
        return self._end.peer_window_bytes

    @property
    def part_bytes_max(self) -> int:
        """Largest part: the window, or what the other end takes as a payload, if that is less."""
        return self._end.part_bytes_max

    def lasts(self) -> None:
        """It ends when the other end likes: a node that leaves is not to wait for this handler."""
        self._driver.handling.discard(self)

    async def deserted(self) -> None:
        """Wait until nobody at the other end hears what else is sent: it reads no more, or either end is gone."""
        while not self._end.peer_stopped and self._end.state not in (BROKEN, CLOSED):
            await self._bell.wait()

    @property
    def broken(self) -> bool:
        """Whether either end, or the link, has broken it: nothing comes or goes any more."""
        return self._end.state == BROKEN

    async def send(self, part: bytes) -> None:
        """Send one part; waits while the window is full. Cancelled: nothing was sent.

        Where there is room it is no checkpoint, but for one after 256 KiB: so parts share frames.

        Raises:
            TooLarge: the part is larger than the window, or than the other end's payloads may be.
            TunnelBroken: the other end is gone, or has stopped reading.
        """
        if self._gathered_bytes >= GATHER_BYTES:  # Before this part: cancelled, it was not sent.
            await trio.lowlevel.checkpoint()
            self._gathered_bytes = 0
        while not self._may_send(part):
            self._tunnels.wait_credit(self._end, len(part))
            if self._driver.core.touched:
                self._driver.wake_pump()
            await self._bell.wait()
        self._tunnels.send(self._end, part)
        self._driver.wake_pump()
        self._gathered_bytes += len(part) + PART_COST_BYTES

    def send_nowait(self, part: bytes) -> None:
        """Like `send`, and the part leaves at once: for one that nothing follows soon.

        Raises trio.WouldBlock, with nothing sent, where `send` would wait.
        """
        if not self._may_send(part):
            raise trio.WouldBlock
        self._tunnels.send(self._end, part)
        self._driver.settle()

    def _may_send(self, part: bytes) -> bool:
        """Whether the window has room. Raises what `send` raises."""
        end = self._end
        if not isinstance(part, bytes):
            raise TypeError(f"part: want bytes, got {type(part).__name__}")
        if len(part) > end.part_bytes_max and end.state != BROKEN:
            raise TooLarge("part", len(part), end.part_bytes_max)
        if end.sent_eof:
            raise TunnelBroken("this end was closed for sending", **self._counts())
        if end.state == BROKEN:
            raise TunnelBroken(end.reason, **self._counts())
        if end.peer_stopped:
            raise TunnelBroken("the other end stopped reading", **self._counts())
        return end.may_send(len(part))

    async def send_eof(self) -> None:
        """This end sends no more; the other end's iteration ends. Reading goes on."""
        self._tunnels.send_eof(self._end)
        self._driver.settle()
        await trio.lowlevel.checkpoint()

    def __aiter__(self) -> Tunnel:
        return self

    async def __anext__(self) -> bytes:
        end = self._end
        while not end.readable:
            if self._at_end():
                raise StopAsyncIteration
            if end.arrived is not None:
                raise RuntimeError(TWO_READ)
            self._iterating += 1
            try:
                await self._bell.wait()  # Once per burst: others run, and nothing is in our hands.
            finally:
                self._iterating -= 1
        part = self._tunnels.read(end)
        if self._driver.core.touched:  # Credit to return.
            self._driver.wake_pump()
        return part

    def _at_end(self) -> bool:
        """Whether all that was sent has been read. Raises TunnelBroken: the rest never comes."""
        end = self._end
        if end.received_eof:
            return True
        if end.state == BROKEN:
            raise TunnelBroken(end.reason, **self._counts())
        if end.stopped:
            raise TunnelBroken("this end was closed for reading", **self._counts())
        return False

    @enable_ki_protection
    async def each(
        self, take: Callable[[bytes], bool], then: Callable[[], object] | None = None
    ) -> bytes | None:
        """Hand every part to `take` in the very turn in which it comes, before this task has one.

        Args:
            take: quick, for the whole node waits; False: it does not take this part, nor another.
            then: what to call, once, when all that has come is handed over, in other tunnels as
                well. It must not raise.
        Returns:
            the part that was not taken; None: the other end has sent all.
        Raises:
            What `take` raises; TunnelBroken; RuntimeError: another task reads, nothing was taken.
        """
        end, driver = self._end, self._driver
        if end.arrived is not None or self._iterating:
            raise RuntimeError(TWO_READ)
        refused: bytes | None = None
        error: Exception | None = None

        def hand_over() -> None:
            nonlocal refused, error
            if not end.readable or refused is not None or error is not None:
                return
            read = self._tunnels.read
            try:
                while end.readable and refused is None:
                    part = read(end)
                    if not take(part):
                        refused = part
            except Exception as raised:  # Of whoever reads this tunnel, and of nobody else.
                error = raised
            if then is not None:
                driver.soon(then)
            if refused is not None or error is not None:
                self._bell.wake()

        end.arrived = lambda: driver.soon(hand_over)
        try:
            hand_over()
            driver.settle()
            while refused is None and error is None and not self._at_end():
                await self._bell.wait()
        finally:
            end.arrived = None
        if error is not None:
            raise error
        await trio.lowlevel.cancel_shielded_checkpoint()
        return refused

    async def __aenter__(self) -> Tunnel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._driver.end_if_forked()
        if error is None:
            await self.aclose()
        else:
            self.abort(type(error).__name__)

    async def aclose(self) -> None:
        """End cleanly: the other end can still read all that was sent."""
        self._tunnels.send_eof(self._end)
        self._tunnels.stop_reading(self._end)
        self._driver.settle()
        await trio.lowlevel.checkpoint()

    def abort(self, reason: str) -> None:
        """Break both ends; `reason` is told to whoever uses them. Raises TypeError: it is no text."""
        if not isinstance(reason, str):
            raise TypeError(f"reason: want text, got {type(reason).__name__}")
        self._tunnels.reset(self._end, "aborted", reason)
        self._driver.settle()

    def _counts(self) -> dict[str, int]:
        return {
            "sent_bytes": self._end.sent_bytes, "received_bytes": self._end.received_bytes
        }  # fmt: skip

    def statistics(self) -> TunnelStatistics:
        return self._end.statistics()
