"""A subscription: a bounded async iterator over the messages of one pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from types import TracebackType

import trio

from .driver import Driver
from .entering import AsyncBlock
from .errors import NodeClosed
from .message import Message, messages
from .protocol.inbox import Delivery, Inbox, SubscriptionStatistics
from .protocol.interest import BLOCK
from .protocol.sharing import Sharing
from .waker import Waker

IN_A_ROW_MAX = 64
"""Messages that a task may take before other tasks have their turn, however small the batches: with many publishers
most batches have one message, and a turn of the loop costs more than that."""


class Subscription(AsyncBlock):
    """Made by `Node.subscribe`; receives from entering its `async with` block until leaving it.

    Iterate over it for messages, or over `batches()` for whole batches, which is several times faster. Only
    one task at a time may iterate.
    """

    used_as = "async with node.subscribe(...) as subscription"

    def __init__(self, driver: Driver, pattern: str, when_full: str, limit_bytes: int) -> None:
        self._driver, self.pattern = driver, pattern
        self._subscriptions = driver.core.patterns.subscriptions
        self._when_full, self._limit_bytes = when_full, limit_bytes
        self._inbox: Inbox | None = None
        self._waker = Waker()
        self._in_a_row = 0
        """Messages taken since other tasks last had their turn."""
        self._messages: Iterator[Message] = iter(())
        self._closed = False
        self._sharing: Sharing | None = None
        self._predecessors: Sequence[Subscription] = ()

    def share(self, sharing: Sharing, after: Sequence[Subscription] = ()) -> None:
        """Share messages with subscriptions of the same `sharing`: a message goes to the first entered that matches.

        Call it before entering; not possible with `block`. For packages built on the mesh, such as the durable tier.

        Args:
            after: subscriptions that were closed before, in this order. Messages of a stream that are missing between
                theirs and the first one here are counted as `lost` of that first one.
        """
        if self._inbox is not None:
            raise RuntimeError("a subscription shares from its begin or not at all")
        if self._when_full == BLOCK:
            raise ValueError("when_full: a subscription with block cannot share")
        self._sharing, self._predecessors = sharing, after

    async def __aenter__(self) -> Subscription:
        if self._inbox is not None:
            raise RuntimeError(
                "a subscription can be entered only once; call subscribe again for another"
            )
        self._driver.check_thread()
        # Before subscribing: if cancelled here, no subscription stays behind.
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise RuntimeError("a subscription was closed before it was entered")
        after = [one._inbox for one in self._predecessors if one._inbox is not None]
        self._predecessors = ()
        self._inbox = self._driver.core.subscribe(
            self.pattern, self._when_full, self._limit_bytes, self._waker.wake
        )
        if self._sharing is not None:
            self._subscriptions.share(self._inbox, self._sharing, after)
        self._driver.flush()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._driver.end_if_forked()
        self._unsubscribe()

    def close(self) -> None:
        """Stop receiving at once. Waiting messages can still be taken; then `take` raises NodeClosed."""
        if not self._closed:
            self._unsubscribe()
            if self._inbox is not None:
                self._subscriptions.hand_over(self._inbox)

    def _unsubscribe(self) -> None:
        self._closed = True
        if self._inbox is not None:
            self._driver.core.unsubscribe(self._inbox)
            self._driver.flush()
        self._waker.wake()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        for message in self._messages:
            return message
        while True:
            self._messages = messages(await self.take())
            for message in self._messages:
                return message

    def batches(self) -> Batches:
        """Return an iterator over batches as they arrived: `.topic`, `.payloads`, `.sender`, `.lost`."""
        return Batches(self)

    async def take(self) -> Delivery:
        """Take waiting messages as one batch; wait if there are none. If cancelled, nothing was taken.

        Raises:
            RuntimeError: some messages of the previous batch, which are read one by one, are left.
            NodeClosed: this subscription has ended.
        """
        if (unread := next(self._messages, None)) is not None:
            self._messages = chain((unread,), self._messages)
            raise RuntimeError("messages of the previous batch are left: take them first")
        inbox = self._inbox
        if inbox is None:
            raise RuntimeError("subscription used outside of its `async with` block")
        must_wait = not inbox
        # Before anything is taken. Under load this is the only place where the task can be cancelled.
        if not must_wait:
            await trio.lowlevel.checkpoint_if_cancelled()
        while not inbox:
            if self._closed or not self._driver.running:
                raise NodeClosed(f"the subscription to {self.pattern!r} is closed")
            await self._waker.wait()
        delivery = self._subscriptions.take(inbox, trio.current_time())
        # There is credit to return, or a publisher of this node has room now.
        if self._driver.core.needs_flush:
            self._driver.wake_pump()
        if must_wait:  # Other tasks have had their turn.
            self._in_a_row = 0
        self._in_a_row += len(delivery.payloads)
        if not must_wait and self._in_a_row >= IN_A_ROW_MAX:
            self._in_a_row = 0
            await trio.lowlevel.cancel_shielded_checkpoint()
        return delivery

    def statistics(self) -> SubscriptionStatistics:
        if self._inbox is None:
            raise RuntimeError("subscription used outside of its `async with` block")
        return self._inbox.statistics()


class Batches:
    """An async iterator over batches, made by `Subscription.batches`."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> Delivery:
        return await self._subscription.take()
