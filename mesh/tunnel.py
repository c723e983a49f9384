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

BYTES_PER_TURN, PART_COST_BYTES = 256 * 1024, 256
"""`send` lets other tasks run after so many bytes; a part counts for PART_COST_BYTES more, since it costs time."""
TWO_READERS = "two tasks read a tunnel at once: while `each` reads, no other task can"


class Tunnel:
    """One end of a tunnel. Made by `Node.open_tunnel`, or given to a `@service.tunnel` handler.

    Parts arrive in order and complete while both ends live; `send` waits while the reader is a window behind.
    Leaving the block, or the handler, ends this end: by an exception both ends are broken; otherwise the
    other end can still read all that was sent.
    """

    def __init__(self, driver: Driver, end: TunnelEnd) -> None:
        self._driver, self._end = driver, end
        self._tunnels = driver.core.patterns.tunnels
        self._bell = Bell()
        self._turn_bytes = 0
        self._iterating = 0
        """Number of tasks that wait in an iteration."""
        end.wake = self._bell.wake
        self.within = driver.within
        """As `Node.within`: for packages built on the mesh."""

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
        """`cluster/endpoint` that it was opened to."""
        return self._end.target

    @property
    def window_bytes(self) -> int:
        """Bytes that may be on their way to the other end or unread there."""
        return self._end.peer_window_bytes

    @property
    def part_bytes_max(self) -> int:
        """Largest part that may be sent: the window, or the other end's largest payload if that is less."""
        return self._end.part_bytes_max

    def lasts(self) -> None:
        """Mark this tunnel as one that the other end ends, so that a leaving node does not wait for its handler."""
        self._driver.handled_tunnels.discard(self)

    async def deserted(self) -> None:
        """Wait until further sending is useless: the other end has stopped reading, or either end is gone."""
        while not self._end.peer_stopped and self._end.state not in (BROKEN, CLOSED):
            await self._bell.wait()

    @property
    def broken(self) -> bool:
        """Whether either end or the link has broken it, so that nothing is sent or received any more."""
        return self._end.state == BROKEN

    async def send(self, part: bytes) -> None:
        """Send one part; wait while the window is full. If cancelled, nothing was sent.

        While there is room this is a checkpoint only once in 256 KiB, so that parts share frames.

        Raises:
            TooLarge: the part is larger than the window, or than the other end's largest payload.
            TunnelBroken: the other end is gone, or has stopped reading.
        """
        # Before sending: if cancelled here, nothing was sent.
        if self._turn_bytes >= BYTES_PER_TURN:
            await trio.lowlevel.checkpoint()
            self._turn_bytes = 0
        while not self._may_send(part):
            self._tunnels.report_blocked(self._end, len(part))
            if self._driver.core.needs_flush:
                self._driver.wake_pump()
            await self._bell.wait()
        self._tunnels.send(self._end, part)
        self._driver.wake_pump()
        self._turn_bytes += len(part) + PART_COST_BYTES

    def send_nowait(self, part: bytes) -> None:
        """Send one part at once, as is best if none follows soon.

        Raises as `send` does, and trio.WouldBlock, with nothing sent, where `send` would wait.
        """
        if not self._may_send(part):
            raise trio.WouldBlock
        self._tunnels.send(self._end, part)
        self._driver.flush()

    def _may_send(self, part: bytes) -> bool:
        """Return whether the window has room. Raises what `send` raises."""
        end = self._end
        if not isinstance(part, bytes):
            raise TypeError(f"part: want bytes, got {type(part).__name__}")
        if len(part) > end.part_bytes_max and end.state != BROKEN:
            limit = end.part_bytes_max
            by_window = limit == end.peer_window_bytes
            window = "the other end's window, by default tunnel_window_bytes"
            source = window if by_window else TooLarge.LESSER
            raise TooLarge("part", len(part), limit, source, "send it as several parts")
        if end.sent_eof:
            raise TunnelBroken("this end was closed for sending", **self._counts())
        if end.state == BROKEN:
            raise TunnelBroken(end.reason, **self._counts())
        if end.peer_stopped:
            raise TunnelBroken("the other end stopped reading", **self._counts())
        return end.may_send(len(part))

    async def send_eof(self) -> None:
        """Send no more: the other end's iteration ends. This end can still read."""
        self._tunnels.send_eof(self._end)
        self._driver.flush()
        await trio.lowlevel.checkpoint()

    def __aiter__(self) -> Tunnel:
        return self

    async def __anext__(self) -> bytes:
        end = self._end
        while not end.readable:
            if self._at_end():
                raise StopAsyncIteration
            if end.on_part is not None:
                raise RuntimeError(TWO_READERS)
            self._iterating += 1
            try:
                await self._bell.wait()  # A checkpoint once per burst, with no part taken yet.
            finally:
                self._iterating -= 1
        part = self._tunnels.read(end)
        if self._driver.core.needs_flush:  # There is credit to return.
            self._driver.wake_pump()
        return part

    def _at_end(self) -> bool:
        """Return whether everything sent has been read. Raises TunnelBroken if the rest will never come."""
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
        """Hand every part to `take` in the same turn of the loop in which it arrives, before this task would run.

        Args:
            take: must be quick, since the whole node waits. Returns False if it takes neither this part nor another.
            then: called once when everything that has come, in other tunnels too, is handed over. It
                must not raise.
        Returns:
            The part that was not taken; None once the other end has sent everything.
        Raises:
            What `take` raises; TunnelBroken; RuntimeError: another task reads, and nothing was taken.
        """
        end, driver = self._end, self._driver
        if end.on_part is not None or self._iterating:
            raise RuntimeError(TWO_READERS)
        untaken: bytes | None = None
        error: Exception | None = None

        def hand_over() -> None:
            nonlocal untaken, error
            if not end.readable or untaken is not None or error is not None:
                return
            read = self._tunnels.read
            try:
                while end.readable and untaken is None:
                    part = read(end)
                    if not take(part):
                        untaken = part
            # It must reach this reader, not the task that handles frames.
            except Exception as raised:
                error = raised
            if then is not None:
                driver.call_soon(then)
            if untaken is not None or error is not None:
                self._bell.wake()

        end.on_part = lambda: driver.call_soon(hand_over)
        try:
            hand_over()
            driver.flush()
            while untaken is None and error is None and not self._at_end():
                await self._bell.wait()
        finally:
            end.on_part = None
        if error is not None:
            raise error
        await trio.lowlevel.cancel_shielded_checkpoint()
        return untaken

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
        """End cleanly: the other end can still read everything that was sent."""
        self._tunnels.send_eof(self._end)
        self._tunnels.stop_reading(self._end)
        self._driver.flush()
        await trio.lowlevel.checkpoint()

    def abort(self, reason: str) -> None:
        """Break both ends; their users get `reason` in TunnelBroken. Raises TypeError if it is not text."""
        if not isinstance(reason, str):
            raise TypeError(f"reason: want text, got {type(reason).__name__}")
        self._tunnels.reset(self._end, "aborted", reason)
        self._driver.flush()

    def _counts(self) -> dict[str, int]:
        return {
            "sent_bytes": self._end.sent_bytes, "received_bytes": self._end.received_bytes
        }  # fmt: skip

    def statistics(self) -> TunnelStatistics:
        return self._end.statistics()
