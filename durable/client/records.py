"""Reading a stream: an iterator that continues where it was after the connection breaks."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from datetime import MINYEAR, datetime
from functools import partial
from typing import Any

import trio

from mesh.errors import MeshError
from mesh.protocol.batch import NUMBERS_END
from mesh.times import FIRST_US, LAST_US, since_epoch_us
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..errors import BrokerLost, Malformed
from ..protocol.calls import READ, greeting_field
from ..protocol.parts import (
    CURSOR,
    DELIVER,
    GAP,
    SETTLED,
    Gap,
    decode_gap,
    decode_number,
    decode_slices,
    encode_number,
)  # fmt: skip
from .channel import Channel
from .delivery import DeliveryBatch
from .feed import WINDOW_BYTES, Feed

NAMED_STARTS = ("first", "last", "next")
"""Where reading may start, other than at an offset or a time."""
NOT_ENTERED = "records used outside of their `async with` block"


class Records(Feed):
    """Iterator over a stream's messages. Made by `Connection.read`. A delivery's `tag` is its offset, and needs no
    settling. `lost` of a message tells how many before it the stream could not capture."""

    used_as = "async with broker.read(...) as records"

    def __init__(
        self, channel: Channel, stream: str, start: str | int | datetime, cursor: str
    ) -> None:
        super().__init__(channel)
        self.stream, self._cursor = stream, cursor
        self._requested_cursor: int | None = None
        """The cursor as it was last given to `store`; `_durable_cursor`: as the broker has it on disk."""
        self._durable_cursor: int | None = None
        self._sent_cursor: int | None = None
        """The cursor as it was last sent through this connection."""
        self._work = Waker()
        self._start_offset: int | None = None
        """The offset at which the broker began: `start`, such as `next`, may mean another one when asked again."""
        self._life = b""
        """Identifies the stream: the offsets of a later one of the same name are unrelated."""
        self._gaps: list[Gap] = []
        """Received, and waiting for the batch that follows them."""
        self._start: dict[str, Any] = (
            {"start": "time", "time_us": _time_us(start)}
            if isinstance(start, datetime)
            else {"start": start}
        )

    async def _drain(self, error: BaseException | None) -> None:
        if error is None:
            await self._wait_cursor_durable()
        elif self._tunnel is not None and self._requested_cursor is not None:
            with suppress(MeshError, trio.WouldBlock):
                self._tunnel.send_nowait(encode_number(CURSOR, self._requested_cursor))

    async def store(self) -> None:
        """Have the broker store under our cursor that everything taken so far has been read.

        It is on the broker's disk soon after, at the latest when the block has been left. Leaving raises
        BrokerLost if it is unknown whether it is stored, ConsumerCancelled if the broker ended this reader
        before. A reader that was killed begins at the last cursor that was stored.
        """
        if not self._entered:
            raise RuntimeError(NOT_ENTERED)
        if not self._cursor:
            raise ValueError(f"the reader of {self.stream!r} has no cursor: name one in `read`")
        self._requested_cursor = self.offset
        self._work.wake()

    async def _send_cursors(self, tunnel: Tunnel) -> None:
        """Send the latest cursor to the broker, once for all calls of `store` in one turn."""
        self._sent_cursor = self._durable_cursor
        with suppress(MeshError):  # The next connection sends it again.
            while True:
                if (
                    self._requested_cursor is not None
                    and self._sent_cursor != self._requested_cursor
                ):
                    self._sent_cursor = self._requested_cursor
                    await tunnel.send(encode_number(CURSOR, self._sent_cursor))
                else:
                    await self._work.wait()

    async def _wait_cursor_durable(self) -> None:
        timeout_s = self._channel.timeout_s
        with self._channel.within(timeout_s), self._sole_receiver:
            while self._durable_cursor != self._requested_cursor:
                await self._reopen_and_receive()
                self._batches.clear()  # The block is being left: nobody takes them any more.
            return
        unknown = f"unknown whether cursor {self._cursor!r} is stored"
        why = f"{unknown}, {self._channel.timeout_reason(timeout_s)}"
        raise BrokerLost(self._channel.cluster, why)

    def settle(self, outcome: int, start: int, end: int) -> None:
        """Do nothing: streams are not settled, and what was read stays."""

    @property
    def offset(self) -> int | None:
        """The offset of the next message; None until one was taken."""
        return None if self._last is None else self._last.end_tag

    async def _receive(self) -> None:
        if self._tunnel is None:
            raise RuntimeError(NOT_ENTERED)
        part = await self._next_part(self._tunnel, self.stream)
        if part[:1] == DELIVER:
            for one in decode_slices(part):
                self._batches.append(DeliveryBatch(one, self, tuple(self._gaps)))
                self._gaps = []
        elif part[:1] == SETTLED:
            self._durable_cursor = decode_number(part)
        elif part[:1] == GAP:
            self._gaps.append(decode_gap(part))
        else:
            raise Malformed(f"a part of unknown kind {part[:1]!r}")

    async def _open(self) -> None:
        offset = self._start_offset if self.offset is None else self.offset
        start = self._start
        if offset is not None:
            start = {"start": offset, "again": True, "life": self._life}
        self._gaps = []  # The broker sends them again.
        async with AsyncExitStack() as stack:
            tunnel, greeting = await stack.enter_async_context(
                self._channel.open(
                    READ,
                    # A captured message may be as large as any live one.
                    window_bytes=max(WINDOW_BYTES, self._channel.payload_bytes_max),
                    stream=self.stream,
                    cursor=self._cursor,
                    **start,
                )
            )
            if self._start_offset is None:
                self._life = greeting_field(greeting, "life", bytes)
                self._start_offset = greeting_field(greeting, "offset", int)
            self._work, self._ended = Waker(), None
            self._run_until_closed(stack, partial(self._send_cursors, tunnel))
            self._tunnel, self._stack = tunnel, stack.pop_all()


def check_start(start: object) -> None:
    """Raise ValueError if this is nowhere to start reading from."""
    if not (
        isinstance(start, datetime)
        or start in NAMED_STARTS
        or (type(start) is int and start in range(NUMBERS_END))
    ):
        raise ValueError(
            f"start is {start!r}, want first, last, next, an offset of 0 or more, or a datetime"
        )


def _time_us(start: datetime) -> int:
    """Convert to us since 1970. A datetime without a zone is local time; the first and last ones that Python has may
    have no UTC equivalent in that zone, and become FIRST_US or LAST_US."""
    try:
        return since_epoch_us(start if start.tzinfo else start.astimezone())
    except (OverflowError, ValueError):
        return FIRST_US if start.year == MINYEAR else LAST_US
