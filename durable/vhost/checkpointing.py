"""Checkpoints: files beside the log, so that the next start need not read all of it.

    enq   [[lane, index, expiries and marks], ...]     of one queue or stream, all of the same moment
    ack   [log position up to which returns are counted, [[lane, settled and returns], ...]]; in `enq` as well
          if something was settled out of order or was returned
    root  [[name, lane, log position], ...]

Files of queues that have not changed since the last round are kept; the root says which files are valid.
One that is newer than the root is valid, too: a crash came between writing the two, and applying records
twice has the same effect as once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgpack

from ..log.checkpoints import Checkpoint
from ..log.record import Buffer
from ..queues.block import Pieces
from ..queues.lane import Lane
from ..queues.lane_bytes import IN_ORDER_BYTES, decode_settled
from .lane_recovery import settle_recorded
from .registry import Registry

ChangeCounts = tuple[int, ...]
"""How often each lane of a queue has changed; differs for any two states of a queue."""

QUEUES_AT_ONCE, BYTES_AT_ONCE = 50, 1 << 20
"""Limits of one call of `encode_some`, queues encoded and bytes: about a millisecond."""


class QueueFiles(NamedTuple):
    """The files of a queue, as the root lists them."""

    name: str
    lane: int
    """The first lane of the queue."""
    position: int
    """The log position that the files are of, or an earlier one."""


class EncodedQueue(NamedTuple):
    """A queue as of one moment, in pieces. They are joined only where they are written, in another thread,
    because joining takes long when very many messages wait."""

    name: str
    position: int
    returns_position: int
    lanes: Sequence[tuple[int, Pieces, bytes]]

    @property
    def has_ack_copy(self) -> bool:
        """Whether `enq` has a copy of `ack`. It needs one if messages were settled out of order or returned.
        What is settled in order is in every snapshot; of the rest a later snapshot may leave out what has
        grown too large by then, however little it is now."""
        return any(len(settled) > IN_ORDER_BYTES for _, _, settled in self.lanes)

    @property
    def size_bytes(self) -> int:
        times = 1 + self.has_ack_copy
        return sum(
            sum(map(len, pieces)) + times * len(settled) for _, pieces, settled in self.lanes
        )

    def checkpoint(self) -> Checkpoint:
        enq = msgpack.packb([(lane, b"".join(pieces)) for lane, pieces, _ in self.lanes])
        ack = msgpack.packb(
            (self.returns_position, [(lane, settled) for lane, _, settled in self.lanes])
        )
        return Checkpoint(self.name, self.lanes[0][0], self.position, enq, ack, self.has_ack_copy)


class Checkpointing:
    """Knows which queues of a vhost have changed since their last checkpoint."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._written: dict[int, tuple[ChangeCounts, int]] = {}
        """By first lane: its change counts at the last checkpoint, and the log position of that."""

    def begin_round(self) -> CheckpointRound:
        """Begin a round of checkpoints, see CheckpointRound."""
        return CheckpointRound(self._written, self._queues_with_messages())

    def note_written(self, round_: CheckpointRound) -> None:
        """All files of the round are on disk."""
        self._written = round_.states

    def _queues_with_messages(self) -> list[tuple[str, tuple[Lane, ...]]]:
        """Queues and streams with messages. For the others, the snapshot says all that there is to say."""
        registry = self._registry
        queues = [
            (queue.name, queue.lanes)
            for queue in registry.queues.values()
            if queue.logged and any(lane.index for lane in queue.lanes)
        ]
        return queues + [
            (stream.name, (stream.lane,))
            for stream in registry.streams.values()
            if stream.lane.index
        ]


class CheckpointRound:
    """One round of checkpoints, encoded a few queues at a time, so that other tasks need not wait for all of
    them.

    Each checkpoint is of the moment in which it is encoded, and holds the log position of that moment. The
    root may hold an earlier one, which does no harm: applying records twice has the same effect as once.
    """

    def __init__(
        self,
        written: Mapping[int, tuple[ChangeCounts, int]],
        remaining: Sequence[tuple[str, tuple[Lane, ...]]],
    ) -> None:
        self._written, self._remaining = written, deque(remaining)
        self.changed: list[EncodedQueue] = []
        self._files: list[QueueFiles] = []
        self.states: dict[int, tuple[ChangeCounts, int]] = {}

    @property
    def has_more(self) -> bool:
        """Whether there is anything left to `encode_some`."""
        return bool(self._remaining)

    @property
    def extra(self) -> bytes:
        """The contents of the root, which is written after the files."""
        packed: bytes = msgpack.packb(self._files)
        return packed

    def encode_some(self, position: int, returns_position: int) -> None:
        """Encode a few queues. Their files may be written once everything appended so far is durable.

        Args:
            position: all records before it have been applied, and no others.
            returns_position: that of the last record of returns. All returns so far are in records up to
                there, and no later ones are.
        """
        size, count = 0, 0
        while self._remaining and count < QUEUES_AT_ONCE and size < BYTES_AT_ONCE:
            name, lanes = self._remaining.popleft()
            if lanes[0].retired:
                continue
            first, change_counts = lanes[0].id, tuple(lane.change_count for lane in lanes)
            before = self._written.get(first)
            if before is None or before[0] != change_counts:
                encoded = [(lane.id, *lane.encode()) for lane in lanes]
                self.changed.append(EncodedQueue(name, position, returns_position, encoded))
                before = (change_counts, position)
                size += self.changed[-1].size_bytes
                count += 1
            self.states[first] = before
            self._files.append(QueueFiles(name, first, before[1]))


def decode_extra(extra: Buffer) -> list[QueueFiles]:
    """Decode the contents of the root. Raises ValueError, TypeError if no `CheckpointRound` has written them."""
    return [
        QueueFiles(str(name), int(lane), int(position))
        for name, lane, position in msgpack.unpackb(extra)
    ]


def load(registry: Registry, checkpoint: Checkpoint) -> dict[int, int]:
    """Fill the lanes of a queue from its checkpoint.

    Returns:
        By lane, the log position up to which returns are counted.
    Raises:
        ValueError, TypeError, KeyError: no `encode_some` has written this.
    """
    returns_position, entries = msgpack.unpackb(checkpoint.ack)
    settled: dict[int, bytes] = dict(entries)
    enqueued: list[tuple[int, bytes]] = msgpack.unpackb(checkpoint.enq)
    for lane_id, data in enqueued:
        registry.lane(lane_id).load(data, settled[lane_id])
    return dict.fromkeys(settled, int(returns_position))


def load_ack(registry: Registry, ack: Buffer) -> dict[int, int]:
    """Fill lanes of which nothing else has been loaded or read yet with what an `ack` file knows of them.

    Returns:
        By lane, the log position up to which returns are counted.
    Raises:
        ValueError, TypeError, KeyError: no `encode_some` has written this; lanes before the invalid one
            are filled.
    """
    returns_position, entries = msgpack.unpackb(ack)
    loaded: dict[int, int] = {}
    for lane_id, data in entries:
        registry.lane(lane_id).load_settled(data)
        loaded[lane_id] = int(returns_position)
    return loaded


def settle_ack(registry: Registry, ack: Buffer) -> dict[int, list[tuple[int, int]]]:
    """Settle what an `ack` file says is settled; it stays so, whatever else is known of the queue.

    Returns:
        By lane, the ranges that were not known to be settled.
    Raises:
        ValueError, TypeError, KeyError: no `encode_some` has written this.
    """
    _, entries = msgpack.unpackb(ack)
    new: dict[int, list[tuple[int, int]]] = {}
    for lane_id, data in entries:
        lane, settled = registry.lane(lane_id), decode_settled(data)
        unsettled = lane.settled.unsettled(0, settled.end)
        found = [piece for start, end in unsettled for piece in settled.ranges(start, end)]
        settle_recorded(lane, found)
        if found:
            new[lane_id] = found
    return new
