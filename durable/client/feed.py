"""What a broker sends down a tunnel, batch by batch; opened again where it was when it breaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Self

import trio

from mesh.entering import AsyncBlock
from mesh.errors import MeshError, NodeClosed
from mesh.tunnel import Tunnel

from ..errors import BrokerLost, DurableError
from .channel import Channel
from .delivery import Delivery, DeliveryBatch

WINDOW_BYTES = 4 << 20


class _Attempt:
    """To open the next tunnel, in a task of its own."""

    def __init__(self) -> None:
        self.scope, self.ended = trio.CancelScope(), trio.Event()
        self.error: Exception | None = None


class Feed(AsyncBlock, ABC):
    """Of one consumer or reader. One task at a time may iterate; another gets a RuntimeError."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self.within = channel, channel.within
        """`within`: as a node's, for what is built on top of it."""
        self._stack = AsyncExitStack()
        self._entered = self._receiving = False
        self._tunnel: Tunnel | None = None
        """None also between two connections, for as long as the next one could not be opened."""
        self._attempt: _Attempt | None = None
        """The one under way."""
        self._batches: deque[DeliveryBatch] = deque()
        self._messages: Iterator[Delivery] = iter(())
        self._last: Delivery | DeliveryBatch | None = None
        """What was given last."""

    async def __aenter__(self) -> Self:
        if self._entered:  # The tunnel of before would stay open, and keep what came by it.
            raise RuntimeError(f"entered twice at a time: for another one, `{self.used_as}`")
        self._entered = True
        try:
            await self._channel.until_open(self._open)
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
            await self._leave(error)
        finally:
            self._entered = False
            await self._close()

    @abstractmethod
    async def _leave(self, error: BaseException | None) -> None:
        """What there is to say to the broker, or to hear from it, before the tunnel is closed."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            if not self._stale:
                for delivery in self._messages:
                    self._last = delivery
                    return delivery
            self._messages = iter(await self._next_batch())

    async def take(self) -> DeliveryBatch:
        """The next batch.

        Raises:
            RuntimeError: of the one before only some messages have been taken, one by one.
            ConsumerCancelled: the broker ended this consumer.
            BrokerLost: the connection broke and there was no other within the timeout. The next call
                tries again.
        """
        if not self._stale and (left := next(self._messages, None)) is not None:
            self._messages = chain((left,), self._messages)
            raise RuntimeError("messages of the batch before are left: take them first")
        self._last = batch = await self._next_batch()
        return batch

    async def _next_batch(self) -> DeliveryBatch:
        while self._stale or not self._batches:
            with self._alone():
                await self._receive_anew()
        return self._batches.popleft()

    async def _receive_anew(self) -> None:
        """Take in one part, by a new tunnel where there is none; one that breaks is closed."""
        self._channel.check_thread()
        try:
            if self._tunnel is None and self._entered:
                await self._open_again()
            await self._receive()
        except (NodeClosed, DurableError):
            raise
        except MeshError:
            await self._close()

    async def _open_again(self) -> None:
        """Cancelled, it goes on, and the next call waits for it: begun anew each time it would never come to an end,
        where whoever polls gives it less time than it takes. Raises as `until_open`, of what fails meanwhile."""
        if self._attempt is None:
            attempt = _Attempt()
            self._channel.run_beside(partial(self._try, attempt))
            self._attempt = attempt
        attempt = self._attempt
        await attempt.ended.wait()
        if attempt.error is not None:
            raise attempt.error
        if self._tunnel is None and self._entered:
            raise BrokerLost(self._channel.cluster, "this node has left the mesh")

    async def _try(self, attempt: _Attempt) -> None:
        try:
            with attempt.scope:
                await self._channel.until_open(self._open)
        except Exception as error:  # Of whoever waits for it; else the next call tries again.
            attempt.error = error
        finally:
            self._attempt = None
            attempt.ended.set()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Around receiving. Raises RuntimeError: another task does, and one would miss what the other takes in."""
        if self._receiving:
            raise RuntimeError("two tasks receive at once: give each a block of its own")
        self._receiving = True
        try:
            yield
        finally:
            self._receiving = False

    def batches(self) -> Batches:
        """Iterate over batches, which is several times faster: `.payloads`, `await batch.ack()`."""
        return Batches(self)

    @property
    def _stale(self) -> bool:
        """Whether what has come and was not handed over will come again, by another connection."""
        return False

    @abstractmethod
    async def _open(self) -> None:
        """Set `_tunnel`, and what ends it in `_stack`."""

    @abstractmethod
    async def _receive(self) -> None:
        """Take one part of the tunnel in."""

    def _run_until_closed(
        self, stack: AsyncExitStack, task: Callable[[], Awaitable[None]]
    ) -> None:  # fmt: skip
        """What sends up the tunnel that `stack` ends, however long there is no room in it."""
        scope = trio.CancelScope()
        stack.callback(scope.cancel)

        async def run() -> None:
            with scope:
                await task()

        self._channel.run_beside(run)

    async def _close(self) -> None:
        if self._attempt is not None:
            self._attempt.scope.cancel()
            # It ends at once; what it has opened by then is closed here.
            with trio.CancelScope(shield=True):
                await self._attempt.ended.wait()
        stack, self._stack = self._stack, AsyncExitStack()
        self._batches.clear()
        self._messages = iter(())
        self._tunnel = None
        await stack.aclose()


class Batches:
    """Made by `Feed.batches`."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> DeliveryBatch:
        return await self._feed.take()
