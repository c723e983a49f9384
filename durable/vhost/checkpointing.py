"""What is written beside the log so that the next start need not read all of it.

    enq   [[lane, index, expiries and marks], ...]     of one queue or stream, all of the same moment
    ack   [log position up to which returns are counted, [[lane, settled and returns], ...]]; in `enq` as well
          if something was settled out of order or came back
    root  [[name, lane, log position], ...]

Files of queues that have not changed since the last time stay; the root says which ones hold. One that
is newer than the root says holds as well: a crash came between the two, and records applied twice
are as if once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgpack

from ..log.checkpoints import Checkpoint
from ..log.record import Buffer
from ..queues.block import Pieces
from ..queues.lane import IN_ORDER_BYTES, Lane, settled_in
from .recovering import settle_known
from .registry import Registry

Look = tuple[int, ...]
"""How often each lane of a queue has changed: two different states look different."""

AT_ONCE, BYTES_AT_ONCE = 50, 1 << 20
"""Queues encoded in one go, and bytes after which a go ends: about a millisecond."""


class Named(NamedTuple):
    """Files of a queue, as the root has them."""

    name: str
    lane: int
    """The first of its lanes."""
    position: int
    """The log position that they are of, or an earlier one."""


class Encoded(NamedTuple):
    """A queue as of one moment, in pieces that are put together only where they are written: in another
    thread, since that takes its time when very many messages wait."""

    name: str
    position: int
    returns: int
    lanes: Sequence[tuple[int, Pieces, bytes]]

    @property
    def twice(self) -> bool:
        """Whether `enq` has a copy of `ack`. Any snapshot says what is in order; of the rest it may leave out
        what is much by then, however little it is now."""
        return any(len(settled) > IN_ORDER_BYTES for _, _, settled in self.lanes)

    @property
    def size_bytes(self) -> int:
        times = 1 + self.twice
        return sum(
            sum(map(len, pieces)) + times * len(settled) for _, pieces, settled in self.lanes
        )

    def checkpoint(self) -> Checkpoint:
        enq = msgpack.packb([(lane, b"".join(pieces)) for lane, pieces, _ in self.lanes])
        ack = msgpack.packb((self.returns, [(lane, settled) for lane, _, settled in self.lanes]))
        return Checkpoint(self.name, self.lanes[0][0], self.position, enq, ack, self.twice)


class Checkpointing:
    """Which queues of a vhost have changed since they were written down."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._written: dict[int, tuple[Look, int]] = {}
        """By first lane: how it looked, and at which log position."""

    def begin(self) -> Taking:
        """What has to be written, from this moment on: see Taking."""
        return Taking(self._written, self._with_messages())

    def written(self, taking: Taking) -> None:
        """All of it is on disk."""
        self._written = taking.looks

    def _with_messages(self) -> list[tuple[str, tuple[Lane, ...]]]:
        """Others are empty, and the snapshot says all there is to say of them."""
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


class Taking:
    """One round of checkpoints, encoded some at a time, so that nothing waits for all of them.

    Each is of the moment in which it is encoded, and says so. That is later than the root says,
    which does no harm: records that are applied twice are as if once.
    """

    def __init__(
        self, before: Mapping[int, tuple[Look, int]], left: Sequence[tuple[str, tuple[Lane, ...]]]
    ) -> None:
        self._before, self._left = before, deque(left)
        self.changed: list[Encoded] = []
        self._files: list[Named] = []
        self.looks: dict[int, tuple[Look, int]] = {}

    @property
    def more(self) -> bool:
        """Whether there is anything left to `take`."""
        return bool(self._left)

    @property
    def extra(self) -> bytes:
        """The root's, to be written after the files."""
        packed: bytes = msgpack.packb(self._files)
        return packed

    def take(self, position: int, returns: int) -> None:
        """Some of them. They may be written once everything is durable that has been appended.

        Args:
            position: records before it have been applied, and nothing else.
            returns: log position of the last record of returns. All that came back so far is in
                records up to there, and nothing that comes back later.
        """
        size, count = 0, 0
        while self._left and count < AT_ONCE and size < BYTES_AT_ONCE:
            name, lanes = self._left.popleft()
            if lanes[0].retired:
                continue
            first, look = lanes[0].id, tuple(lane.changes for lane in lanes)
            before = self._before.get(first)
            if before is None or before[0] != look:
                encoded = [(lane.id, *lane.encode()) for lane in lanes]
                self.changed.append(Encoded(name, position, returns, encoded))
                before = (look, position)
                size += self.changed[-1].size_bytes
                count += 1
            self.looks[first] = before
            self._files.append(Named(name, first, before[1]))


def decode_extra(extra: Buffer) -> list[Named]:
    """Raises ValueError, TypeError: no `take` has written this."""
    return [
        Named(str(name), int(lane), int(position))
        for name, lane, position in msgpack.unpackb(extra)
    ]


def load(registry: Registry, checkpoint: Checkpoint) -> dict[int, int]:
    """Fill the lanes of a queue.

    Returns:
        By lane, the log position up to which returns are counted.
    Raises:
        ValueError, TypeError, KeyError: no `take` has written this.
    """
    returns, entries = msgpack.unpackb(checkpoint.ack)
    settled: dict[int, bytes] = dict(entries)
    enqueued: list[tuple[int, bytes]] = msgpack.unpackb(checkpoint.enq)
    for lane_id, data in enqueued:
        registry.lane(lane_id).load(data, settled[lane_id])
    return dict.fromkeys(settled, int(returns))


def recall(registry: Registry, ack: Buffer) -> dict[int, int]:
    """What an `ack` file knows of lanes of which nothing else has been loaded or read yet.

    Returns:
        By lane, the log position up to which returns are counted.
    Raises:
        ValueError, TypeError, KeyError: no `take` has written this; lanes before that one are recalled.
    """
    returns, entries = msgpack.unpackb(ack)
    recalled: dict[int, int] = {}
    for lane_id, data in entries:
        registry.lane(lane_id).recall(data)
        recalled[lane_id] = int(returns)
    return recalled


def recall_settled(registry: Registry, ack: Buffer) -> dict[int, list[tuple[int, int]]]:
    """Settle what an `ack` file says is settled: so it is, whatever else is known of the queue.

    Returns:
        By lane, ranges of what was not known to be settled.
    Raises:
        ValueError, TypeError, KeyError: no `take` has written this.
    """
    _, entries = msgpack.unpackb(ack)
    new: dict[int, list[tuple[int, int]]] = {}
    for lane_id, data in entries:
        lane, settled = registry.lane(lane_id), settled_in(data)
        unsettled = lane.settled.unsettled(0, settled.end)
        found = [piece for start, end in unsettled for piece in settled.ranges(start, end)]
        settle_known(lane, found)
        if found:
            new[lane_id] = found
    return new
