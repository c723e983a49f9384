"""A stream reader's session: sends records, receives cursors. The tunnel's window is the flow control."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import trio

from mesh.nursery import open_nursery
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..definition_checks import check_reference
from ..errors import ConsumerCancelled, Malformed, StoreFull, TooManyCursors
from ..log.log import Log
from ..protocol.calls import Answer, Hello, encode_answer
from ..protocol.parts import (
    CURSOR,
    SETTLED,
    Gap,
    decode_number,
    encode_ended,
    encode_gap,
    encode_number,
)  # fmt: skip
from ..queues.lane import Lane
from ..routing.permissions import for_read
from ..tunnels import ends_with_tunnel
from ..vhost import changes
from ..vhost.changes import Change
from ..vhost.gaps import StreamGap
from ..vhost.groups import part_of
from ..vhost.stream import Stream
from .capture import FULL_PAUSE_S
from .peer import Peer
from .running_vhost import RunningVhost
from .slices import Slices

CURSORS_MAX = 10_000
"""Maximum number of cursors of one stream. Each is in every snapshot until it or its stream is deleted."""


async def serve_reader(tunnel: Tunnel, hello: Hello, running: RunningVhost, peer: Peer) -> None:
    """Serve one reader until the client ends the session.

    Raises:
        DurableError: why it was refused, or ended.
    """
    name = hello.field("stream", str)
    needs = [*for_read("stream", name)]
    peer.check(needs)
    stream = running.vhost.registry.stream(name)
    life = _life(running, stream)
    if hello.field("life", bytes, life) != life:
        raise ConsumerCancelled(
            name, "the stream was deleted, and another one of the same name exists"
        )
    cursor = hello.field("cursor", str, "")
    _check_cursor(stream, cursor)
    offset = await _start_offset(running, stream, hello, cursor)
    await tunnel.send(encode_answer(Answer(0, {"offset": offset, "life": life})))
    writer = _CursorWriter(tunnel, running, stream, cursor)
    async with open_nursery() as nursery:
        nursery.start_soon(
            _send_records,
            tunnel,
            running,
            stream,
            offset,
            _reported_missing(running, stream, cursor, offset),
        )
        nursery.start_soon(running.watch_permissions, peer, needs)
        nursery.start_soon(writer.run)
        async for part in tunnel:
            if part[:1] != CURSOR or not cursor:
                raise Malformed("a part that is not a cursor, or a cursor of a reader without one")
            writer.update(decode_number(part))
        nursery.cancel_scope.cancel()
    # A client that left by an error has not waited for this, but has sent how far it was.
    with suppress(StoreFull):
        await writer.write()


def _life(running: RunningVhost, stream: Stream) -> bytes:
    """Return an id that no other stream has: a reader that comes back names the stream that its offset
    belongs to."""
    return running.log.report.store_id + stream.lane.id.to_bytes(8, "little")


class _CursorWriter:
    """How far a reader says that it is. Only the latest offset counts: one sync of the disk serves all that
    came."""

    def __init__(self, tunnel: Tunnel, running: RunningVhost, stream: Stream, name: str) -> None:
        self._tunnel, self._running, self._stream, self._name = tunnel, running, stream, name
        self._updates = running.change_writer.cursor_updates(stream, name)
        self._unwritten: tuple[int, int] | None = None
        """The number and offset of the latest update by the reader that is not written yet."""
        self._work = Waker()

    def update(self, offset: int) -> None:
        self._updates.received += 1
        self._unwritten = (self._updates.received, offset)
        self._work.wake()

    @ends_with_tunnel
    async def run(self) -> None:
        """Write updates when there is room, and tell the reader what is on disk, until cancelled."""
        while True:
            try:
                await self.write()
            except StoreFull:  # Reading goes on meanwhile.
                await trio.sleep(FULL_PAUSE_S)
            else:
                await self._work.wait()

    async def write(self) -> None:
        """Write the update that is not written yet. Raises StoreFull if there is no room. When cancelled, it
        is written the next time."""
        while self._unwritten is not None:
            update, self._unwritten = self._unwritten, None
            number, offset = update
            change = partial(_cursor_changes, self._running, self._stream, self._name, offset)
            try:
                await self._running.change_writer.write_cursor(change, self._updates, number)
            except BaseException:
                self._unwritten = self._unwritten or update
                raise
            await self._tunnel.send(encode_number(SETTLED, offset))


def _cursor_changes(
    running: RunningVhost, stream: Stream, cursor: str, offset: int
) -> list[Change]:
    """Return the changes that set the cursor; none if the stream has been deleted, even if there is another
    one of its name."""
    if running.vhost.registry.streams.get(stream.name) is not stream:
        return []
    _check_cursor(stream, cursor)  # Other cursors may have been added since this reader came.
    known = _reported_missing(running, stream, cursor, offset)
    return changes.cursor(stream.name, cursor, offset, known)


def _reported_missing(running: RunningVhost, stream: Stream, cursor: str, offset: int) -> int:
    """Return how many missing messages were reported to a reader at this offset. Its cursor may know more, if
    gaps before and behind the offset have been merged."""
    known = running.vhost.registry.gaps.missing_before(stream.lane.id, offset)
    if offset < stream.cursors.get(cursor, 0):
        return known
    return max(known, stream.reported_missing.get(cursor, 0))


def _check_cursor(stream: Stream, cursor: str) -> None:
    """Check a new cursor's name. Existing cursors are accepted, because earlier releases allowed any text.
    Raises InvalidDefinition, TooManyCursors."""
    if not cursor or cursor in stream.cursors:
        return
    check_reference("reader", "cursor", cursor)
    if len(stream.cursors) >= CURSORS_MAX:
        raise TooManyCursors(stream.name, CURSORS_MAX)


async def _start_offset(running: RunningVhost, stream: Stream, hello: Hello, cursor: str) -> int:
    """Return the first offset to send: the stored cursor, unless the client says that it has read on since;
    else what the client asks for."""
    if cursor in stream.cursors and not hello.field("again", bool, False):
        return max(stream.cursors[cursor], stream.start)
    start = hello.fields.get("start", "next")
    if start == "first":
        return stream.start
    if start == "last":
        return max(stream.end - 1, stream.start)
    if start == "next":
        return stream.end
    if type(start) is int and start >= 0:
        return max(start, stream.start)
    time_us = hello.fields.get("time_us")
    if type(time_us) is int:
        return await _offset_at(running, stream.lane, time_us)
    raise Malformed(f"invalid start {start!r}")


async def _offset_at(running: RunningVhost, lane: Lane, time_us: int) -> int:
    """Return the first offset whose record was received at this time or later. A record that cannot be read is taken
    as one that did."""
    low, high = lane.first_later(time_us - 1)
    while low < high:
        middle = (low + high) // 2
        run = next(lane.index.runs(middle, high), None)
        if run is None:
            high = middle
            continue
        received_us = await _received_us(running.log, run.position)
        if received_us is not None and received_us < time_us:
            low = run.first + run.count
        else:
            high = max(low, min(middle, run.first))
    return low


async def _received_us(log: Log, position: int) -> int | None:
    """Return when the record at this log position was received, in us; None if it is damaged or gone."""
    records = await log.read(position, 1)
    return next((one.header.time_us for one in records if one.position == position), None)


@ends_with_tunnel
async def _send_records(
    tunnel: Tunnel, running: RunningVhost, stream: Stream, offset: int, missing: int
) -> None:  # fmt: skip
    """Send records and gaps from `offset` on, until the stream is deleted.

    Args:
        missing: how many missing messages were reported to this reader.
    """
    slices = Slices(stream.name, tunnel.part_bytes_max)
    # Gaps before this offset have been reported, or do not concern this reader.
    gaps_start = offset
    registry = running.vhost.registry
    while True:
        if registry.streams.get(stream.name) is not stream:
            gone = ConsumerCancelled(stream.name, "the stream was deleted")
            await tunnel.send(encode_ended(gone))
            await tunnel.send_eof()
            return
        offset = max(offset, stream.start)
        while offset < stream.end and not slices.full and not stream.lane.retired:
            gaps = registry.gaps.between(stream.lane.id, gaps_start, offset + 1, missing)
            if gaps:
                await _send_gaps(tunnel, slices, gaps)
                missing = gaps[-1].total
            gaps_start = offset + 1
            found = await running.batch_reader.read(stream.lane, offset, stream.end)
            if found is None:
                offset = _next_readable(stream, offset)
                continue
            for batch, first in found:
                rest = part_of(batch, first, offset, first + batch.count)
                slices.add(offset, 0, rest)
                offset += rest.count
                stream.counts.delivered += rest.count
        ready = slices.take()
        for part in ready:
            await tunnel.send(part.data)
        if not ready and not stream.lane.retired:
            await running.messages_durable.wait()


async def _send_gaps(tunnel: Tunnel, slices: Slices, gaps: Iterable[StreamGap]) -> None:
    """Send gaps, behind all messages before them."""
    for part in slices.take():
        await tunnel.send(part.data)
    for gap in gaps:
        await tunnel.send(encode_gap(Gap(gap.offset, *gap.missed)))


def _next_readable(stream: Stream, offset: int) -> int:
    """Return the first offset behind a record that cannot be read, or behind a hole."""
    run = stream.lane.index.find(offset)
    if run is not None:
        return run.first + run.count
    following = next(stream.lane.index.runs(offset, stream.end), None)
    return stream.end if following is None else following.first
