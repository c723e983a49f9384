"""A task of the sink: sends its batches, one after the other, when they are due.

Spark's iterator ──(thread, two ahead)──> messages ──> sequences, due times ──> target
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import trio

import mesh
from mesh.errors import MeshError

from ..errors import CaptureError
from .errors import SendingFailed, Unreachable
from .joining import worker_node
from .messages import Messages, read_messages
from .noting import TaskProgress, write_progress
from .numbering import Ints, OffsetOrder
from .options import SinkOptions
from .pacing import Lateness, Pacer, Times
from .report import Counts
from .targets import Target, open_target

BATCHES_AHEAD = 2
"""How many batches are read ahead while one is sent."""
CHUNK_BYTES, CHUNK_ROWS = 128 * 1024, 4096
"""Limits of what is sent at a time: less than a frame, so that a large batch does not delay a message that is due."""
PACED_ROWS = 256
PROGRESS_S = 0.5


class Identity(NamedTuple):
    """Identifies a task; the same for every attempt at it."""

    publisher: str
    first: int
    """The sequence of its first row."""
    partition: int


class TaskResult(NamedTuple):
    """The result of a task."""

    counts: Counts
    lateness: Lateness
    lanes: tuple[str, ...]
    """Queues and partitions of its rows, if it numbers them by offset."""
    seconds: float


def publish(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, identity: Identity
) -> TaskResult:
    """Send all rows; blocks until they have arrived.

    Raises:
        Unreachable: nothing was sent.
        SendingFailed: some rows were sent.
        Disordered: rows do not come in order.
    """
    with worker_node(options) as worker:
        try:
            return worker.call(_publish, batches, options, identity)
        except (trio.RunFinishedError, trio.Cancelled):  # The node crashed, or left, meanwhile.
            raise SendingFailed("the mesh node of this process has ended", 0) from None


async def _publish(
    node: mesh.Node, batches: Iterator[pa.RecordBatch], options: SinkOptions, identity: Identity
) -> TaskResult:
    target: Target | None = None
    try:
        async with open_target(node, options, identity.publisher) as target:
            task = Task(options, identity, target)
            if options.rehearse:
                await trio.to_thread.run_sync(next, batches, None)
                return task.result()
            await _run(batches, task)
            await target.finish()
            return task.result()
    except BaseException as error:
        first = _first_error(error)  # Unwraps groups of nurseries: Spark shows only the first line.
        if isinstance(first, CaptureError) or not isinstance(first, MeshError):
            if first is error:
                raise
            raise first from None
        if target is None:
            raise Unreachable("the mesh", str(first)) from first
        # The notes say how many were refused.
        why = "; ".join((str(first), *getattr(first, "__notes__", ())))
        raise SendingFailed(why, target.counts.sent) from first


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(batches: Iterator[pa.RecordBatch], task: Task) -> None:
    """Read batches in a thread while the loop sends the ones before."""
    send_ahead, receive_ahead = trio.open_memory_channel[Messages](BATCHES_AHEAD)

    def read_next() -> Messages | None:
        batch = next(batches, None)
        return None if batch is None else read_messages(batch, task.options)

    async def feed() -> None:
        async with send_ahead:
            while True:
                messages = await trio.to_thread.run_sync(read_next)
                if messages is None:
                    return
                await send_ahead.send(messages)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        async for messages in receive_ahead:
            await task.send(messages)


class Task:
    """The sequences, clock and counts of one task."""

    def __init__(self, options: SinkOptions, identity: Identity, target: Target) -> None:
        self.options, self._identity, self._target = options, identity, target
        self._pacer = Pacer(options.schedule())
        self._lateness = Lateness()
        self._orders: dict[str, OffsetOrder] = {}
        self._next_row = identity.first
        self._skipped = 0
        # Starts from the wall clock, as in all tasks, and follows the monotonic clock from then on.
        self._clock_offset_us = time.time_ns() // 1000 - round(trio.current_time() * 1e6)
        self._started_us = self._progress_at_us = self._now_us()

    def _now_us(self) -> int:
        return round(trio.current_time() * 1e6) + self._clock_offset_us

    async def send(self, messages: Messages) -> None:
        self._skipped += messages.skipped
        count = len(messages.payloads)
        if not count:
            return
        sequences = self._sequences(messages, count)
        if self.options.paced:
            due_us = self._pacer.due(messages.times_us, self._now_us())
            await self._send_paced(messages, sequences, due_us)
        else:
            sizes = np.cumsum(np.fromiter(map(len, messages.payloads), np.int64, count))
            low = 0
            while low < count:
                full = np.searchsorted(sizes, CHUNK_BYTES + (sizes[low - 1] if low else 0), "right")
                high = max(low + 1, min(int(full), low + CHUNK_ROWS))
                await self._target.send(messages, sequences, low, high)
                low = high
                self._write_progress()

    async def _send_paced(self, messages: Messages, sequences: Ints, due_us: Times) -> None:
        low, count = 0, len(due_us)
        while low < count:
            now_us = self._now_us()
            if due_us[low] > now_us:
                await trio.sleep((int(due_us[low]) - now_us) / 1e6)
                now_us = self._now_us()
            delay_us = self._pacer.postpone(now_us - int(due_us[low]))
            high = int(np.searchsorted(due_us, now_us - delay_us, "right"))
            high = min(max(high, low + 1), low + PACED_ROWS)
            due_us[high:] += delay_us
            self._lateness.add(now_us - due_us[low:high])
            await self._target.send(messages, sequences, low, high)
            low = high
            self._write_progress()

    def _sequences(self, messages: Messages, count: int) -> Ints:
        """Return the sequence of each message. Raises Disordered."""
        offsets = messages.offsets
        if offsets is None:
            self._next_row += count
            return np.arange(self._next_row - count, self._next_row, dtype=np.int64)
        lanes: dict[str, list[int]] = {}
        for at, address in enumerate(messages.addresses):
            lanes.setdefault(address.lane, []).append(at)
        for lane, indices in lanes.items():
            rows: Any = slice(None) if len(lanes) == 1 else np.isin(messages.address_index, indices)
            self._orders.setdefault(lane, OffsetOrder(lane)).check(offsets[rows])
        return offsets

    def _write_progress(self) -> None:
        """Write down the progress now and then, for whoever displays it. The directory is on the driver's machine; on
        another one writing fails, which must not end the task."""
        now_us = self._now_us()
        if self.options.progress and now_us - self._progress_at_us > PROGRESS_S * 1e6:
            self._progress_at_us = now_us
            counts = self._target.counts
            done = counts.sent + counts.duplicates + self._skipped
            with suppress(OSError):
                directory = Path(self.options.progress)
                write_progress(directory, self._identity.partition, TaskProgress(done, counts.sent))

    def result(self) -> TaskResult:
        counts = self._target.counts
        counts.skipped = self._skipped
        seconds = (self._now_us() - self._started_us) / 1e6
        return TaskResult(counts, self._lateness, tuple(self._orders), seconds)
