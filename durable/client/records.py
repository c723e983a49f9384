"""Reading a stream: an iterator that goes on where it was when the connection breaks."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

from ..errors import BrokerLost, Malformed
from ..protocol.calls import READ
from ..protocol.failures import put_together
from ..protocol.parts import (
    CURSOR,
    DELIVER,
    ENDED,
    GAP,
    Gap,
    decode_ended,
    decode_gap,
    decode_slices,
    encode_number,
)  # fmt: skip
from .channel import Channel
from .delivery import DeliveryBatch
from .feed import WINDOW_BYTES, Feed


class Records(Feed):
    """Made by `Connection.read`. A delivery's `tag` is its offset; there is nothing to settle.
    What the stream could not capture shows as `lost` of the message behind it."""

    def __init__(
        self, channel: Channel, stream: str, start: str | int | datetime, cursor: str
    ) -> None:
        super().__init__(channel)
        self.stream, self._cursor = stream, cursor
        self._gaps: list[Gap] = []
        """Told, and not handed out with the batch behind them yet."""
        self._start: dict[str, Any] = (
            {"start": "time", "time_us": int(start.timestamp() * 1e6)}
            if isinstance(start, datetime)
            else {"start": start}
        )

    async def store(self) -> None:
        """Have the broker keep, under our cursor, that everything taken so far has been read."""
        if not self._cursor:
            raise ValueError(f"the reader of {self.stream!r} has no cursor: give it a name")
        if self._tunnel is not None and self.offset is not None:
            await self._tunnel.send(encode_number(CURSOR, self.offset))

    def settle(self, outcome: int, start: int, end: int) -> None:
        """Streams are not settled: what was read stays."""

    @property
    def offset(self) -> int | None:
        """Of the next message, once one was taken."""
        return None if self._last is None else self._last.end_tag

    async def _receive(self) -> None:
        if self._tunnel is None:
            raise RuntimeError("records used outside of their `async with` block")
        try:
            part = await anext(self._tunnel)
        except StopAsyncIteration:
            raise BrokerLost(self._channel.cluster, "the broker ended the tunnel") from None
        if part[:1] == DELIVER:
            for one in decode_slices(part):
                self._batches.append(DeliveryBatch(one, self, tuple(self._gaps)))
                self._gaps = []
        elif part[:1] == GAP:
            self._gaps.append(decode_gap(part))
        elif part[:1] == ENDED:
            raise put_together(*decode_ended(part))
        else:
            raise Malformed(f"a part of kind {part[:1]!r}")

    async def _open(self) -> None:
        start = self._start if self.offset is None else {"start": self.offset}
        self._gaps = []  # They are told again.
        async with AsyncExitStack() as stack:
            self._tunnel, _ = await stack.enter_async_context(
                self._channel.open(
                    READ,
                    # What was captured may be as large as any live message.
                    window_bytes=max(WINDOW_BYTES, self._channel.payload_bytes_max),
                    stream=self.stream,
                    cursor=self._cursor,
                    **start,
                )
            )
            self._stack = stack.pop_all()
