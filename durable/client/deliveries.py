"""Consuming: an iterator over what the broker delivers; settlements go back in the other direction.

When the connection breaks it is opened again. What was unsettled then is delivered again, and
settling the old delivery of it does nothing: the broker has forgotten that it gave it to us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any

import trio

from mesh.errors import MeshError
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..errors import BrokerLost, ConsumerCancelled, DurableError, Malformed
from ..protocol.calls import CONSUME
from ..protocol.failures import put_together
from ..protocol.parts import (
    DELIVER,
    ENDED,
    HURRY,
    REQUEUE,
    SETTLED,
    Settlement,
    decode_ended,
    decode_number,
    decode_slices,
    encode_settlements,
)  # fmt: skip
from .channel import Channel
from .delivery import DeliveryBatch
from .feed import WINDOW_BYTES, Feed

UNSETTLED = "it broke before all was settled"
UNKNOWN = "unknown whether all that was settled is stored"
RANGES_MAX = 1000
"""Settled with one part: any broker's window and segments take that."""


class _Session:
    """One tunnel's worth of settlements. Those that come after its end go nowhere.

    Args:
        lost: called when some of them may not have reached the broker's disk.
    """

    def __init__(self, tunnel: Tunnel, lost: Callable[[], None]) -> None:
        self._tunnel, self._lost = tunnel, lost
        self._gathered: list[Settlement] = []
        self._work = Waker()
        self._hurried = False
        self._sent = self._durable = 0
        self.open, self._told = True, False

    def settle(self, outcome: int, start: int, end: int) -> None:
        if not self.open:
            if not self._told:
                self._lost()
            return
        gathered = self._gathered
        if gathered and gathered[-1].outcome == outcome and gathered[-1].end == start:
            gathered[-1] = Settlement(outcome, gathered[-1].start, end)
        else:
            gathered.append(Settlement(outcome, start, end))
        self._work.wake()

    async def run(self) -> None:
        """Send what gathers, until cancelled, or the tunnel breaks."""
        try:
            while True:
                if self._gathered:
                    await self._tunnel.send(self._next_part())
                elif self._hurried:
                    self._hurried = False
                    await self._tunnel.send(HURRY)
                else:
                    await self._work.wait()
        except MeshError:
            self.close()

    def _next_part(self) -> bytes:
        part = encode_settlements(self._gathered[:RANGES_MAX])
        del self._gathered[:RANGES_MAX]
        self._sent += 1
        return part

    def leave(self, handed_end: int) -> None:
        """Give back what the user had, before this tag, and has not settled: that counts as a return,
        unlike what the broker finds unsettled behind it.

        Without waiting: who leaves may be cancelled. Where there is no room, nothing counts.
        """
        if not self.open:
            return
        if not self.settled:
            self._lost()
        self.end()
        if handed_end:
            self._gathered.append(Settlement(REQUEUE, 0, handed_end))
        with suppress(MeshError, trio.WouldBlock):
            while self._gathered:
                self._tunnel.send_nowait(self._next_part())

    def hurry(self) -> None:
        """Somebody waits until all of it is on the broker's disk."""
        self._hurried = True
        self._work.wake()

    def durable(self, parts: int) -> None:
        self._durable = parts

    def end(self) -> None:
        """It is over, and whoever iterates is told why."""
        self.open, self._told = False, True

    def close(self) -> None:
        self.open = False
        if not self._told and not self.settled:
            self._lost()

    @property
    def settled(self) -> bool:
        """Whether everything given to `settle` is on the broker's disk."""
        return not self._gathered and self._durable >= self._sent


class Deliveries(Feed):
    """Made by `Connection.consume`."""

    used_as = "async with broker.consume(...) as deliveries"

    def __init__(
        self, channel: Channel, queue: str, settings: Mapping[str, Any], *, peek: bool
    ) -> None:
        super().__init__(channel)
        self.queue, self._settings, self._peek = queue, settings, peek
        self._session: _Session | None = None
        self._lost = False

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        session = self._session
        living = session is not None and session.open
        try:
            try:
                if error is None and (self._lost or living):
                    await self.synced()
            finally:
                self._give_back()
            if error is None and living and self._tunnel is not None:
                await self._leave(self._tunnel)
        finally:
            await super().__aexit__(kind, error, trace)

    def _give_back(self) -> None:
        if self._session is not None:
            last = None if self._peek else self._last
            self._session.leave(last.end_tag if last is not None else 0)

    async def _leave(self, tunnel: Tunnel) -> None:
        """Return when the broker has let go of this consumer: what it left unsettled is ready again."""
        with suppress(MeshError), trio.move_on_after(self._channel.timeout_s):
            await tunnel.send_eof()
            async for _ in tunnel:
                pass  # It was on its way, and goes to somebody else.

    async def synced(self) -> None:
        """Return when everything settled so far is on the broker's disk: what was acked will not come
        again. What was rejected where there is a dead letter exchange moves there right behind.

        To be called by the task that iterates. What is delivered meanwhile is kept for it: up to
        `prefetch_bytes`, or, where that is 0, whatever comes while the broker's disk is busy.

        Raises:
            BrokerLost: a connection broke before, which is said once, or the broker says nothing for as
                long as one answer may take; some of it may come again.
        """
        session, timeout_s = self._session, self._channel.timeout_s
        if session is not None and not session.settled:
            session.hurry()
        while self._lost or (session is not None and not session.settled):
            if self._lost or session is None or not session.open:
                # With this connection, or one before it, behind the iteration's back.
                self._lost = False
                raise BrokerLost(self._channel.cluster, UNSETTLED)
            try:
                with trio.move_on_after(timeout_s) as scope:
                    await self._receive()
            except DurableError:
                raise
            except MeshError as error:
                session.end()
                raise BrokerLost(self._channel.cluster, str(error)) from error
            if scope.cancelled_caught:
                why = f"{UNKNOWN}, {self._channel.silence(timeout_s)}"
                raise BrokerLost(self._channel.cluster, why)

    def _lose(self) -> None:
        self._lost = True

    async def _receive(self) -> None:
        tunnel, session = self._tunnel, self._session
        if tunnel is None or session is None:
            raise RuntimeError("deliveries used outside of their `async with` block")
        try:
            part = await anext(tunnel)
        except StopAsyncIteration:
            raise ConsumerCancelled(self.queue, "the broker ended the tunnel") from None
        kind = part[:1]
        if kind == DELIVER:
            self._batches += [DeliveryBatch(one, session) for one in decode_slices(part)]
        elif kind == SETTLED:
            session.durable(decode_number(part))
        elif kind == ENDED:
            session.end()
            raise put_together(*decode_ended(part))
        else:
            raise Malformed(f"a part of kind {kind!r}")

    async def _open(self) -> None:
        stack = AsyncExitStack()
        async with stack:
            tunnel, _ = await stack.enter_async_context(
                self._channel.open(
                    CONSUME, window_bytes=WINDOW_BYTES, queue=self.queue, **self._settings
                )
            )
            session = _Session(tunnel, self._lose)
            self._run_until_closed(stack, session.run)
            stack.callback(session.close)
            self._last = None  # Tags begin anew.
            self._tunnel, self._session, self._stack = tunnel, session, stack.pop_all()
