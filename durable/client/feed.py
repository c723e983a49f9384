"""Receives what a broker sends through a tunnel, batch by batch; if the tunnel breaks, goes on through a new one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Self

import trio

from mesh.entering import AsyncBlock
from mesh.errors import MeshError, NodeClosed
from mesh.tunnel import Tunnel

from ..errors import BrokerLost, ConsumerCancelled, DurableError, copy_error
from ..protocol.parts import ENDED, decode_ended
from .channel import Channel
from .delivery import Delivery, DeliveryBatch

WINDOW_BYTES = 4 << 20


class _Attempt:
    """An attempt to open the next tunnel, in a task of its own."""

    def __init__(self) -> None:
        self.scope, self.ended = trio.CancelScope(), trio.Event()
        self.error: Exception | None = None


class _SoleReceiver:
    """Held while receiving. Raises RuntimeError if another task is: each would miss what the other receives."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        if self._held:
            raise RuntimeError(
                "two tasks receive at once: give each task its own `async with` block"
            )
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


class Feed(AsyncBlock, ABC):
    """Receives for one consumer or reader. Only one task at a time may iterate; another gets a RuntimeError."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self.within = channel, channel.within
        """`within`: the node's method, for callers of this class."""
        self._stack = AsyncExitStack()
        self._entered, self._sole_receiver = False, _SoleReceiver()
        self._tunnel: Tunnel | None = None
        """None outside the block, and after a break until another one is open."""
        self._ended: DurableError | None = None
        """Why the broker ended the latest tunnel, if it did."""
        self._attempt: _Attempt | None = None
        """The one in progress."""
        self._batches: deque[DeliveryBatch] = deque()
        self._messages: Iterator[Delivery] = iter(())
        self._last: Delivery | DeliveryBatch | None = None
        """What was handed out last."""

    async def __aenter__(self) -> Self:
        if self._entered:  # The first tunnel would stay open, and hold its unsettled messages.
            raise RuntimeError(f"entered twice at a time: for another one, use `{self.used_as}`")
        self._entered = True
        try:
            await self._channel.retry_open(self._open)
        except BaseException:
            self._entered = False
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._channel.end_if_forked()
        try:
            await self._drain(error)
        finally:
            self._entered = False
            await self._close()

    @abstractmethod
    async def _drain(self, error: BaseException | None) -> None:
        """Tell the broker what remains to be told, and wait for its answer, before the tunnel is closed."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            if not self._is_stale:
                for delivery in self._messages:
                    self._last = delivery
                    return delivery
            self._messages = iter(await self._next_batch())

    async def take(self) -> DeliveryBatch:
        """Return the next batch.

        Raises:
            RuntimeError: some messages of the previous batch were taken one by one, and others remain.
            ConsumerCancelled: the broker ended this consumer.
            BrokerLost: the connection broke and no other was opened within the timeout. The next call
                tries again.
        """
        if not self._is_stale and (left := next(self._messages, None)) is not None:
            self._messages = chain((left,), self._messages)
            raise RuntimeError("messages of the previous batch are left: take them first")
        self._last = batch = await self._next_batch()
        return batch

    async def _next_batch(self) -> DeliveryBatch:
        while self._is_stale or not self._batches:
            with self._sole_receiver:
                await self._reopen_and_receive()
        return self._batches.popleft()

    async def _reopen_and_receive(self) -> None:
        """Receive one part, through a new tunnel if there is none. A tunnel that breaks is closed."""
        self._channel.check_thread()
        try:
            if self._tunnel is None and self._entered:
                await self._reopen()
            await self._receive()
        except (NodeClosed, DurableError):
            raise
        except MeshError:
            await self._close()

    async def _reopen(self) -> None:
        """Wait until another task has opened the next tunnel. If this call is cancelled, that task goes on and the
        next call waits for it: a caller that polls with less time than opening takes would otherwise start anew
        each time and never get a tunnel. Raises as `retry_open`."""
        if self._attempt is None:
            attempt = _Attempt()
            self._channel.run_beside(partial(self._run_attempt, attempt))
            self._attempt = attempt
        attempt = self._attempt
        await attempt.ended.wait()
        if attempt.error is not None:
            raise attempt.error
        if self._tunnel is None and self._entered:
            raise BrokerLost(self._channel.cluster, "this node has left the mesh")

    async def _run_attempt(self, attempt: _Attempt) -> None:
        try:
            with attempt.scope:
                await self._channel.retry_open(self._open)
        except Exception as error:  # For whoever waits; if nobody does, the next call tries again.
            attempt.error = error
        finally:
            self._attempt = None
            attempt.ended.set()

    def batches(self) -> Batches:
        """Iterate over whole batches, which is several times faster: `.payloads`, `await batch.ack()`."""
        return Batches(self)

    @property
    def _is_stale(self) -> bool:
        """Whether what was received but not handed out will come again through another connection."""
        return False

    @abstractmethod
    async def _open(self) -> None:
        """Open a tunnel and set `_tunnel`, and `_stack` to what closes it."""

    @abstractmethod
    async def _receive(self) -> None:
        """Receive one part from the tunnel."""

    async def _next_part(self, tunnel: Tunnel, source: str) -> bytes:
        """Return the next part from the tunnel.

        Args:
            source: the name of the queue or stream.
        Raises:
            DurableError: why the broker ended the tunnel, at this call or an earlier one.
        """
        try:
            part = await anext(tunnel)
        except StopAsyncIteration:
            if self._ended is None:
                self._ended = ConsumerCancelled(source, "the broker ended the tunnel")
            raise copy_error(self._ended) from None
        if part[:1] == ENDED:
            self._ended = decode_ended(part)
            raise copy_error(self._ended)
        return part

    def _run_until_closed(
        self, stack: AsyncExitStack, task: Callable[[], Awaitable[None]]
    ) -> None:  # fmt: skip
        """Run `task`, which sends through the tunnel, until `stack` is closed, even while it waits for room."""
        scope = trio.CancelScope()
        stack.callback(scope.cancel)

        async def run() -> None:
            with scope:
                await task()

        self._channel.run_beside(run)

    async def _close(self) -> None:
        if self._attempt is not None:
            self._attempt.scope.cancel()
            # The cancelled task ends at once; if it has opened a tunnel by then, that is closed below.
            with trio.CancelScope(shield=True):
                await self._attempt.ended.wait()
        stack, self._stack = self._stack, AsyncExitStack()
        self._batches.clear()
        self._messages = iter(())
        self._tunnel = None
        await stack.aclose()


class Batches:
    """Iterator over whole batches. Made by `Feed.batches`."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> DeliveryBatch:
        return await self._feed.take()
