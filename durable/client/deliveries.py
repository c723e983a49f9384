"""Consuming: an iterator over a queue's messages; settlements are sent back through the same tunnel.

When the connection breaks it is opened again. Messages that were unsettled then are delivered again, so those
that had come but were not handed to the program are dropped. Settling messages of the old connection does
nothing, because the broker has forgotten that delivery; `synced` reports such settlements as lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

import trio

from mesh.errors import MeshError
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..errors import BrokerLost, ConsumerCancelled, DurableError, Malformed, copy_error
from ..protocol.calls import CONSUME
from ..protocol.parts import (
    DELIVER,
    HURRY,
    LEAVING,
    REQUEUE,
    SETTLED,
    Settlement,
    decode_number,
    decode_slices,
    encode_settlements,
)  # fmt: skip
from .channel import Channel
from .delivery import DeliveryBatch
from .feed import WINDOW_BYTES, Feed

ENDED_UNSETTLED = "it ended before everything was settled"
OUTCOME_UNKNOWN = "unknown whether all settlements are stored"
RANGES_MAX = 1000
"""Ranges per settle part: few enough for the window and the segment size of any broker."""


class _Session:
    """The settlements of one tunnel. Those made after its end are not sent.

    Args:
        on_lost: called with how many messages' settlements may not have reached the broker's disk.
    """

    def __init__(self, tunnel: Tunnel, on_lost: Callable[[int], None]) -> None:
        self._tunnel, self._on_lost = tunnel, on_lost
        self._gathered: list[Settlement] = []
        self._sending: list[Settlement] = []
        """Settlements in a part that waits for its turn, or for room in the tunnel."""
        self._work = Waker()
        self._hurried = False
        self._in_flight: deque[int] = deque()
        """For each part that was sent and is not on the broker's disk yet, how many messages it settles."""
        self._durable_parts = 0
        """How many parts are on the broker's disk."""
        self._settled_end = 0
        """All tags before this one have been given to `settle`."""
        self.unsettled = 0
        """How many messages were given to `settle` and are not on the broker's disk yet."""
        self._ended = False

    def settle(self, outcome: int, start: int, end: int) -> None:
        start = max(start, self._settled_end)
        if start >= end:
            return
        if start == self._settled_end:
            self._settled_end = end
        if self._ended:
            self._on_lost(end - start)
            return
        self.unsettled += end - start
        gathered = self._gathered
        if gathered and gathered[-1].outcome == outcome and gathered[-1].end == start:
            gathered[-1] = Settlement(outcome, gathered[-1].start, end)
        else:
            gathered.append(Settlement(outcome, start, end))
        self._work.wake()

    async def run(self) -> None:
        """Send what gathers, until cancelled or until the tunnel breaks."""
        try:
            while True:
                if self._gathered:
                    self._sending = self._gathered[:RANGES_MAX]
                    del self._gathered[:RANGES_MAX]
                    self._in_flight.append(sum(one.end - one.start for one in self._sending))
                    await self._tunnel.send(encode_settlements(self._sending))
                    self._sending = []
                elif self._hurried:
                    self._hurried = False
                    await self._tunnel.send(HURRY)
                else:
                    await self._work.wait()
        except MeshError:
            self.end()

    def leave(self, taken_end: int) -> None:
        """Requeue all messages before tag `taken_end` that the user received and has not settled. They count as
        returned, unlike later ones, which the broker then finds unsettled.

        Does not wait, because the caller may be cancelled. If there is no room in the tunnel, none counts.
        """
        if not self.is_open:
            return
        gathered = self._sending + self._gathered
        self.end()
        if taken_end:
            gathered.append(Settlement(REQUEUE, 0, taken_end))
        with suppress(MeshError, trio.WouldBlock):
            self._tunnel.send_nowait(LEAVING)
            for at in range(0, len(gathered), RANGES_MAX):
                self._tunnel.send_nowait(encode_settlements(gathered[at : at + RANGES_MAX]))

    def hurry(self) -> None:
        """Tell the broker that a task waits until all of it is on disk."""
        self._hurried = True
        self._work.wake()

    def mark_durable(self, parts: int) -> None:
        """Note that the first `parts` of all parts sent are on the broker's disk."""
        while self._in_flight and self._durable_parts < parts:
            self._durable_parts += 1
            self.unsettled -= self._in_flight.popleft()

    def end(self) -> None:
        """End: count as lost whatever is not on the broker's disk by now."""
        lost, self.unsettled, self._ended = self.unsettled, 0, True
        self._gathered.clear()
        self._in_flight.clear()
        if lost:
            self._on_lost(lost)

    @property
    def is_open(self) -> bool:
        """Whether messages that came through this tunnel can still be settled."""
        return not self._ended and not self._tunnel.broken


class Deliveries(Feed):
    """Iterator over a queue's messages. Made by `Connection.consume`."""

    used_as = "async with broker.consume(...) as deliveries"

    def __init__(self, channel: Channel, queue: str, settings: Mapping[str, Any]) -> None:
        super().__init__(channel)
        self.queue, self._settings = queue, settings
        self._session: _Session | None = None
        self._lost_settlements = 0
        """How many messages' settlements were lost with a connection and not reported yet."""

    async def _drain(self, error: BaseException | None) -> None:
        session, tunnel = self._session, self._tunnel
        was_open = session is not None and session.is_open
        try:
            if error is None:
                await self.synced()
        finally:
            self._requeue_taken()
        if error is None and was_open and tunnel is not None:
            await self._wait_released(tunnel)

    def _requeue_taken(self) -> None:
        if self._session is not None:
            last = None if self._settings["peek"] else self._last
            self._session.leave(last.end_tag if last is not None else 0)

    async def _wait_released(self, tunnel: Tunnel) -> None:
        """Return when the broker has released this consumer: its unsettled messages are ready again."""
        with suppress(MeshError), self._channel.within(self._channel.timeout_s):
            await tunnel.send_eof()
            async for _ in tunnel:
                pass  # A delivery that was on its way; the broker gives it to somebody else.

    async def synced(self) -> None:
        """Return when everything settled so far is on the broker's disk: acked messages will not come again.
        Rejected ones then move to the dead letter exchange, if there is one.

        Only for the task that iterates. Deliveries that come meanwhile are kept for it: up to `prefetch_bytes`
        or, if that is 0, as many as come while the broker's disk is busy.

        Raises:
            BrokerLost: settlements made since the last call were lost with a connection, or the broker
                is silent for as long as one answer may take. Up to `unsettled` messages may come again. A
                loss is reported once.
            ConsumerCancelled, AccessRefused: the broker ended this consumer meanwhile, or before: then again, if
                settlements were lost by that, or made since.
        """
        session, timeout_s = self._session, self._channel.timeout_s
        if session is not None and session.unsettled:
            session.hurry()
        while session is not None and session.unsettled and not self._lost_settlements:
            try:
                received = await self._receive_within(timeout_s)
            except DurableError:
                if session.is_open or not self._lost_settlements:
                    raise
                break  # The broker has ended this consumer: the error below tells how many that concerns.
            except MeshError:
                session.end()
                break
            if not received:
                why = f"{OUTCOME_UNKNOWN}, {self._channel.timeout_reason(timeout_s)}"
                raise BrokerLost(self._channel.cluster, why, session.unsettled)
        if self._lost_settlements:
            lost, self._lost_settlements = self._lost_settlements, 0
            if self._ended is None:
                raise BrokerLost(self._channel.cluster, ENDED_UNSETTLED, lost)
            ended = copy_error(self._ended)
            _add_lost(ended, lost)
            raise ended

    async def _receive_within(self, timeout_s: float) -> bool:
        """Receive one part; return whether one came in time."""
        with self._sole_receiver, self._channel.within(timeout_s):
            await self._receive()
            return True
        return False

    def _count_lost(self, messages: int) -> None:
        self._lost_settlements += messages

    @property
    def _is_stale(self) -> bool:
        # With no_ack, messages are settled as they are sent, and do not come again.
        return (
            self._session is not None and not self._session.is_open and not self._settings["no_ack"]
        )

    async def _receive(self) -> None:
        tunnel, session = self._tunnel, self._session
        if tunnel is None or session is None:
            raise RuntimeError("deliveries used outside of their `async with` block")
        try:
            part = await self._next_part(tunnel, self.queue)
        except DurableError as error:
            session.end()
            _add_lost(error, self._lost_settlements)  # `synced` tells of them, too.
            raise
        kind = part[:1]
        if kind == DELIVER:
            self._batches += [DeliveryBatch(one, session) for one in decode_slices(part)]
        elif kind == SETTLED:
            session.mark_durable(decode_number(part))
        else:
            raise Malformed(f"a part of unknown kind {kind!r}")

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            tunnel, _ = await stack.enter_async_context(
                self._channel.open(
                    CONSUME, window_bytes=WINDOW_BYTES, queue=self.queue, **self._settings
                )
            )
            session = _Session(tunnel, self._count_lost)
            self._run_until_closed(stack, session.run)
            stack.callback(session.end)
            self._last = None  # Its tag is of the old tunnel; tags start anew with each.
            self._ended = None
            self._tunnel, self._session, self._stack = tunnel, session, stack.pop_all()


def _add_lost(error: DurableError, lost: int) -> None:
    """Add to the error of a consumer that the broker has ended how many settled messages may come again."""
    if isinstance(error, ConsumerCancelled):
        error.unsettled = lost
    elif lost:
        error.add_note(f"{lost} messages that were settled may come again")
