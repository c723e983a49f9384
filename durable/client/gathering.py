"""What a publisher has been given and not sent: messages alike in a row become one batch."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from mesh.protocol.batch import HEADER_BYTES, PER_MESSAGE_BYTES, batch_pieces

LEAVE_BYTES = 256 * 1024


@dataclass(slots=True, eq=False)
class Group:
    """Consecutive messages with one key and the same properties.

    The publisher's hot path appends to `payloads` while `size_bytes` stays within `limit_bytes`.
    """

    exchange: str | None
    """None: it is not all that `properties` say."""
    key: str
    properties: bytes
    limit_bytes: int
    payloads: list[bytes] = field(default_factory=list)
    headers: list[bytes] | None = None
    size_bytes: int = 0


NOTHING = Group("", "", b"", -1)
"""Takes no message, whatever it is like."""


class Gathering:
    """What has been given, in groups, in the order in which they were begun.

    Messages that go to one queue by its name pass those to other queues: nobody can tell, and keys
    in turn make full batches. What an exchange routes anywhere keeps its place among everything.

    Args:
        batch_bytes: the bodies of one batch, about.
        turns_bytes: what more may gather while queues take turns: their batches are small enough.
    """

    def __init__(self, batch_bytes: int, turns_bytes: int = 0) -> None:
        self._batch_bytes, self._turns_bytes = batch_bytes, turns_bytes
        self._groups: deque[Group] = deque()
        self._open: dict[str, Group] = {}
        """By queue, what still takes messages to it."""
        self.last = NOTHING
        """What took the last message: it takes the next one that is alike."""
        self._leave_from(LEAVE_BYTES)
        self._other_bytes = 0
        """Of all groups but the last."""
        self._ended = self._ended_count = 0
        """Groups, from the first on, that were seen to take no more, and their messages."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    @property
    def count(self) -> int:
        """Messages. Not kept up to date with each: queues in turn would pay for it with each."""
        newest_first, others = reversed(self._groups), len(self._groups) - self._ended
        return self._ended_count + sum(len(one.payloads) for one in islice(newest_first, others))

    @property
    def size_bytes(self) -> int:
        return self._other_bytes + self.last.size_bytes

    def add(
        self,
        exchange: str | None,
        key: str,
        properties: bytes,
        payload: bytes,
        headers: bytes | None,
        *,
        to_queue: bool = False,
    ) -> None:
        """Take a message. `to_queue`: it goes to the queue of that key, and nowhere else."""
        size = len(payload) + PER_MESSAGE_BYTES + len(headers or b"")
        group = self._group_for(key, properties, headers is not None, size, to_queue)
        if group is NOTHING:
            group = Group(exchange, key, properties, self._batch_bytes)
            if headers is not None:
                group.headers = []
            if headers is not None or exchange is None:
                group.limit_bytes = -1  # Each of them comes this way.
            self._groups.append(group)
            if to_queue:
                self._open[key] = group
            else:
                self._open.clear()
        self.turn_to(group)
        group.payloads.append(payload)
        group.size_bytes += size
        if headers is not None and group.headers is not None:
            group.headers.append(headers)

    def extend(
        self, payloads: Sequence[bytes], start: int, ends: Sequence[int], room_bytes: int
    ) -> int:
        """Take what follows message `start`, which was added last and is like it, as far as one batch
        and `room_bytes` go; where the rest begins. `ends`: see `ends_of`."""
        group, begins = self.last, start + 1
        # Whoever waits for the confirm of one need not wait for what follows here.
        if begins == len(payloads):
            return begins
        room_bytes = min(room_bytes, self._batch_bytes - group.size_bytes)
        stop = max(bisect_right(ends, ends[start] + room_bytes, begins), begins)
        group.payloads += payloads[begins:stop]
        group.size_bytes += ends[stop - 1] - ends[start]
        if group.headers is not None:
            group.headers += group.headers[-1:] * (stop - begins)
        return stop

    def _group_for(
        self, key: str, properties: bytes, with_headers: bool, size_bytes: int, to_queue: bool
    ) -> Group:
        """The group that takes a message, or NOTHING: what is large gets a batch of its own."""
        group = self.last
        if to_queue and group.key != key:
            group = self._open.get(key, NOTHING)
        alike = group.key == key and group.properties == properties
        full = group.size_bytes + size_bytes > self._batch_bytes
        return (
            group if alike and (group.headers is not None) == with_headers and not full else NOTHING
        )

    def turn(self, exchange: str | None, key: str) -> Group:
        """The group of another queue than the last one's, now the last; NOTHING if there is none."""
        try:
            group = self._open.get(key)
        except TypeError:  # A list, say: that it is no key is found on the long way.
            return NOTHING
        if group is None or group.exchange != exchange:
            return NOTHING
        # As `turn_to`: keys in turn come here with every message.
        self._other_bytes += self.last.size_bytes - group.size_bytes
        self.last = group
        return group if self._other_bytes < self._turn_bytes else NOTHING

    def turn_to(self, group: Group) -> None:
        """Make it the last one."""
        self._other_bytes += self.last.size_bytes - group.size_bytes
        self.last = group

    def due(self, queue: str | None) -> bool:
        """Whether some of it should leave first: before a message to `queue`, or to an exchange."""
        in_turn = queue is not None and queue != self.last.key
        return self.size_bytes >= (self._turn_bytes if in_turn else self._leave_bytes)

    def stay(self) -> None:
        """The sender had its turn: so much more before it gets another."""
        self._leave_from(self.size_bytes + LEAVE_BYTES)

    def _leave_from(self, size_bytes: int) -> None:
        """With so much gathered, some of it should leave before another group is begun, and with
        so much more before another queue has its turn."""
        self._leave_bytes, self._turn_bytes = size_bytes, size_bytes + self._turns_bytes

    def barrier(self) -> int:
        """How many there are: what comes from now on stands behind all of them."""
        if not self._groups:
            return 0
        count = self._ended_count = self.count
        self._ended = len(self._groups)
        self._open.clear()
        if self._groups[-1] is self.last:  # It goes on.
            self._ended -= 1
            self._ended_count -= len(self.last.payloads)
        else:
            self.turn_to(NOTHING)
        return count

    def close(self) -> None:
        """No group takes more: nobody is going to pack it."""
        self._open.clear()
        self.turn_to(NOTHING)

    def pack(
        self, publisher: bytes, epoch: int, sequence: int, time_us: int, part_bytes_max: int
    ) -> tuple[bytes, int]:
        """Batches for one part, from `sequence` on, and how many messages are in it."""
        self._leave_from(LEAVE_BYTES)
        batches: list[bytes] = []
        """In the pieces they are made of: all are joined once."""
        size = total = 0
        while self._groups:
            self._split_first(part_bytes_max)
            group = self._groups[0]
            pieces, batch_bytes = batch_pieces(
                publisher, epoch, sequence + total, time_us, group.key.encode(), group.payloads,
                shared_headers=group.properties, message_headers=group.headers,
            )  # fmt: skip
            if batches and size + batch_bytes > part_bytes_max:
                break
            batches += pieces
            size += batch_bytes
            total += len(group.payloads)
            self._groups.popleft()
            if group is self.last:
                self.turn_to(NOTHING)
            self._other_bytes -= group.size_bytes
            if self._ended:
                self._ended -= 1
                self._ended_count -= len(group.payloads)
            if self._open.get(group.key) is group:
                del self._open[group.key]
        return b"".join(batches), total

    def _split_first(self, part_bytes_max: int) -> None:
        """Where a broker takes less in one part than its batch was given: only what fits leaves."""
        group = self._groups[0]
        room = part_bytes_max - batch_overhead(group.key, group.properties)
        if group.size_bytes <= room or len(group.payloads) == 1:
            return
        count, size_bytes = fitting(group.payloads, group.headers, room)
        front = Group(group.exchange, group.key, group.properties, -1, group.payloads[:count])
        front.size_bytes = size_bytes
        if group.headers is not None:
            front.headers = group.headers[:count]
            del group.headers[:count]
        del group.payloads[:count]
        group.size_bytes -= size_bytes
        if group is self.last:
            self._other_bytes += size_bytes
        if self._ended:
            self._ended += 1
        self._groups.appendleft(front)


def ends_of(payloads: Sequence[bytes], headers: bytes | None) -> list[int]:
    """How many bytes all messages up to each one take, that one included."""
    around = PER_MESSAGE_BYTES + len(headers or b"")
    return list(accumulate(map(around.__add__, map(len, payloads))))


def batch_overhead(key: str, properties: bytes) -> int:
    """Bytes of a batch beside its messages."""
    return HEADER_BYTES + len(key.encode()) + len(properties)


def fitting(
    payloads: Sequence[bytes], headers: Sequence[bytes] | None, room_bytes: int, start: int = 0
) -> tuple[int, int]:
    """How many of the messages from `start` on fit, at least one, and how many bytes they take."""
    if not start:  # All of them, nearly always: no loop for that.
        size_bytes = sum(map(len, payloads)) + PER_MESSAGE_BYTES * len(payloads)
        size_bytes += sum(map(len, headers or ()))
        if size_bytes <= room_bytes:
            return len(payloads), size_bytes
    count = size_bytes = 0
    for index in range(start, len(payloads)):
        one = len(payloads[index]) + PER_MESSAGE_BYTES + (len(headers[index]) if headers else 0)
        if count and size_bytes + one > room_bytes:
            break
        count, size_bytes = count + 1, size_bytes + one
    return count, size_bytes
