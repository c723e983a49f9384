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
"""Messages that a task may take before others have their turn, however small the batches they come in:
with many publishers most are of one message, and a turn of the loop costs more than that."""


class Subscription(AsyncBlock):
    """Made by `Node.subscribe`; receives from entering its `async with` block until leaving it.

    Iterate it for messages, or `batches()` for whole batches, which is several times faster. One
    task at a time may iterate.
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
        self._after: Sequence[Subscription] = ()

    def share(self, sharing: Sharing, after: Sequence[Subscription] = ()) -> None:
        """Before it is entered: of messages that others with this `sharing` match too, only the one
        that was entered first gets any. Not with `block`. It is for what is built on the mesh, as the
        durable tier is.

        Args:
            after: those that were closed, in this order. What is missing between what they had of a
                stream and what comes here is `lost` of the first that comes.
        """
        if self._inbox is not None:
            raise RuntimeError("a subscription shares from its begin or not at all")
        if self._when_full == BLOCK:
            raise ValueError("when_full: one that blocks cannot share")
        self._sharing, self._after = sharing, after

    async def __aenter__(self) -> Subscription:
        if self._inbox is not None:
            raise RuntimeError("a subscription is entered once; subscribe again for another")
        self._driver.check_thread()
        await trio.lowlevel.checkpoint()  # First: cancelled, it leaves no subscription behind.
        if self._closed:
            raise RuntimeError("a subscription was closed before it was entered")
        after = [one._inbox for one in self._after if one._inbox is not None]
        self._after = ()
        self._inbox = self._driver.core.subscribe(
            self.pattern, self._when_full, self._limit_bytes, self._waker.wake
        )
        if self._sharing is not None:
            self._subscriptions.share(self._inbox, self._sharing, after)
        self._driver.settle()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._driver.end_if_forked()
        self._end()

    def close(self) -> None:
        """At once nothing more comes. What waits can still be taken; then `take` raises NodeClosed."""
        if not self._closed:
            self._end()
            if self._inbox is not None:
                self._subscriptions.hand_over(self._inbox)

    def _end(self) -> None:
        self._closed = True
        if self._inbox is not None:
            self._driver.core.unsubscribe(self._inbox)
            self._driver.settle()
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
        """Iterate over what arrived, batch by batch: `.topic`, `.payloads`, `.sender`, `.lost`."""
        return Batches(self)

    async def take(self) -> Delivery:
        """The messages that wait, as one batch; waits for some. Cancelled: nothing was taken.

        Raises:
            RuntimeError: of the one before only some messages have been taken, one by one.
            NodeClosed: this subscription has ended.
        """
        if (left := next(self._messages, None)) is not None:
            self._messages = chain((left,), self._messages)
            raise RuntimeError("messages of the batch before are left: take them first")
        inbox = self._inbox
        if inbox is None:
            raise RuntimeError("subscription used outside of its `async with` block")
        waits = not inbox
        if not waits:  # Before anything is taken: under load the only place to be cancelled.
            await trio.lowlevel.checkpoint_if_cancelled()
        while not inbox:
            if self._closed or not self._driver.running:
                raise NodeClosed(f"the subscription to {self.pattern!r} is closed")
            await self._waker.wait()
        delivery = self._subscriptions.take(inbox, trio.current_time())
        if (
            self._driver.core.touched
        ):  # Credit to return, or a publisher of this node that has room now.
            self._driver.wake_pump()
        if waits:  # Others have had their turn.
            self._in_a_row = 0
        self._in_a_row += len(delivery.payloads)
        if not waits and self._in_a_row >= IN_A_ROW_MAX:
            self._in_a_row = 0
            await trio.lowlevel.cancel_shielded_checkpoint()
        return delivery

    def statistics(self) -> SubscriptionStatistics:
        if self._inbox is None:
            raise RuntimeError("subscription used outside of its `async with` block")
        return self._inbox.statistics()


class Batches:
    """Made by `Subscription.batches`."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> Delivery:
        return await self._subscription.take()
