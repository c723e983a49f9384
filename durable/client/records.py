"""Reading a stream: an iterator that goes on where it was when the connection breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any

import trio

from mesh.errors import MeshError, NodeClosed
from mesh.tunnel import Tunnel

from ..errors import BrokerLost, DurableError, Malformed
from ..protocol.calls import READ
from ..protocol.failures import put_together
from ..protocol.parts import (
    CURSOR,
    DELIVER,
    ENDED,
    decode_ended,
    decode_slices,
    encode_number,
)  # fmt: skip
from .channel import Channel
from .delivery import Delivery, DeliveryBatch

WINDOW_BYTES = 4 << 20


class Records:
    """Made by `Connection.read`. A delivery's `tag` is its offset; there is nothing to settle."""

    def __init__(
        self, channel: Channel, stream: str, start: str | int | datetime, cursor: str
    ) -> None:
        self._channel, self.stream, self._cursor = channel, stream, cursor
        self._start: dict[str, Any] = (
            {"start": "time", "time_us": int(start.timestamp() * 1e6)}
            if isinstance(start, datetime)
            else {"start": start}
        )
        self._stack = AsyncExitStack()
        self._tunnel: Tunnel | None = None
        self._batches: deque[DeliveryBatch] = deque()
        self._messages: Iterator[Delivery] = iter(())
        self.offset: int | None = None
        """Of the next message, once one was taken."""

    async def __aenter__(self) -> Records:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await self._close()

    def __aiter__(self) -> Records:
        return self

    async def __anext__(self) -> Delivery:
        for delivery in self._messages:
            self.offset = delivery.tag + 1
            return delivery
        while True:
            batch = await self._next_batch()
            self._messages = (
                Delivery(batch, index, payload) for index, payload in enumerate(batch.payloads)
            )
            for delivery in self._messages:
                self.offset = delivery.tag + 1
                return delivery

    async def take(self) -> DeliveryBatch:
        """The next batch; `batch.tag` is the offset of its first message."""
        batch = await self._next_batch()
        self.offset = batch.tag + len(batch)
        return batch

    async def store(self) -> None:
        """Have the broker keep, under our cursor, that everything taken so far has been read."""
        if not self._cursor:
            raise ValueError(f"the reader of {self.stream!r} has no cursor: give it a name")
        if self._tunnel is not None and self.offset is not None:
            await self._tunnel.send(encode_number(CURSOR, self.offset))

    def settle(self, outcome: int, start: int, end: int) -> None:
        """Streams are not settled: what was read stays."""

    async def _next_batch(self) -> DeliveryBatch:
        while not self._batches:
            try:
                await self._receive()
            except (NodeClosed, DurableError):
                raise
            except MeshError:
                await self._reopen()
        return self._batches.popleft()

    async def _receive(self) -> None:
        if self._tunnel is None:
            raise RuntimeError("records used outside of their `async with` block")
        try:
            part = await anext(self._tunnel)
        except StopAsyncIteration:
            raise BrokerLost(self._channel.cluster, "the broker ended the tunnel") from None
        if part[:1] == DELIVER:
            self._batches += [DeliveryBatch(one, self) for one in decode_slices(part)]
        elif part[:1] == ENDED:
            raise put_together(*decode_ended(part))
        else:
            raise Malformed(f"a part of kind {part[:1]!r}")

    async def _open(self) -> None:
        start = self._start if self.offset is None else {"start": self.offset}
        async with AsyncExitStack() as stack:
            self._tunnel, _ = await stack.enter_async_context(
                self._channel.open(
                    READ,
                    window_bytes=WINDOW_BYTES,
                    stream=self.stream,
                    cursor=self._cursor,
                    **start,
                )
            )
            self._stack = stack.pop_all()

    async def _reopen(self) -> None:
        await self._close()
        with trio.move_on_after(self._channel.timeout_s):
            while True:
                try:
                    return await self._open()
                except NodeClosed:
                    raise
                except MeshError as error:
                    if isinstance(error, DurableError) and not isinstance(error, BrokerLost):
                        raise
                await trio.sleep(0.1)
        raise BrokerLost(self._channel.cluster, f"no other within {self._channel.timeout_s} s")

    async def _close(self) -> None:
        stack, self._stack = self._stack, AsyncExitStack()
        self._batches.clear()
        self._tunnel = None
        await stack.aclose()
