"""Messages handed to a publisher and not packed yet: those with equal key and properties become one batch."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from mesh.protocol.batch import HEADER_BYTES, PER_MESSAGE_BYTES, batch_pieces

YIELD_BYTES = 256 * 1024


@dataclass(slots=True, eq=False)
class Group:
    """Consecutive messages with one key and the same properties.

    The publisher's hot path appends to `payloads` while `size_bytes` stays within `limit_bytes`.
    """

    exchange: str | None
    """None if `properties` hold more than an exchange."""
    key: str
    properties: bytes
    limit_bytes: int
    payloads: list[bytes] = field(default_factory=list)
    headers: list[bytes] | None = None
    size_bytes: int = 0


NO_GROUP = Group("", "", b"", -1)
"""A group that takes no message."""


class Gathering:
    """Groups of messages that are not packed yet, in the order in which the groups were begun.

    A message sent directly to one queue may overtake messages to other queues: no consumer can observe it,
    and alternating keys still make full batches. A message that an exchange routes keeps its place among all.

    Args:
        batch_bytes: approximate limit of the messages in one batch.
        alternating_bytes: how much more may gather while messages to several queues alternate, so that the
            batch of each queue grows.
    """

    def __init__(self, batch_bytes: int, alternating_bytes: int = 0) -> None:
        self._batch_bytes, self._alternating_bytes = batch_bytes, alternating_bytes
        self._groups: deque[Group] = deque()
        self._open_groups: dict[str, Group] = {}
        """Groups that still take messages, by queue."""
        self.current = NO_GROUP
        """The group that took the last message; it takes the next one if key and properties are equal."""
        self._set_thresholds(YIELD_BYTES)
        self._other_bytes = 0
        """Size of all groups but the current one."""
        self._closed_groups = self._closed_messages = 0
        """How many leading groups are known to take no more messages, and how many messages they hold."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    @property
    def count(self) -> int:
        """Number of messages, counted on demand: a counter would cost alternating queues time per message."""
        newest_first, others = reversed(self._groups), len(self._groups) - self._closed_groups
        return self._closed_messages + sum(
            len(one.payloads) for one in islice(newest_first, others)
        )

    @property
    def size_bytes(self) -> int:
        return self._other_bytes + self.current.size_bytes

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
        """Take a message. `to_queue`: it goes directly to the queue named `key`, and nowhere else."""
        size = len(payload) + PER_MESSAGE_BYTES + len(headers or b"")
        group = self._group_for(key, properties, headers is not None, size, to_queue)
        if group is NO_GROUP:
            group = Group(exchange, key, properties, self._batch_bytes)
            if headers is not None:
                group.headers = []
            if headers is not None or exchange is None:
                group.limit_bytes = -1  # The publisher's hot path cannot add to this group.
            self._groups.append(group)
            if to_queue:
                self._open_groups[key] = group
            else:
                self._open_groups.clear()
        self.switch_to(group)
        group.payloads.append(payload)
        group.size_bytes += size
        if headers is not None and group.headers is not None:
            group.headers.append(headers)

    def extend(
        self, payloads: Sequence[bytes], start: int, size_sums: Sequence[int], room_bytes: int
    ) -> int:
        """Take messages after `start`, which was added last and is alike, as far as one batch and
        `room_bytes` allow. Return the index of the first one not taken. `size_sums`: see `cumulative_sizes`."""
        group, next_index = self.current, start + 1
        # A single message needs nothing of what follows, and somebody may be waiting for its confirm.
        if next_index == len(payloads):
            return next_index
        room_bytes = min(room_bytes, self._batch_bytes - group.size_bytes)
        stop = max(bisect_right(size_sums, size_sums[start] + room_bytes, next_index), next_index)
        group.payloads += payloads[next_index:stop]
        group.size_bytes += size_sums[stop - 1] - size_sums[start]
        if group.headers is not None:
            group.headers += group.headers[-1:] * (stop - next_index)
        return stop

    def _group_for(
        self, key: str, properties: bytes, with_headers: bool, size_bytes: int, to_queue: bool
    ) -> Group:
        """Return the group that takes a message; NO_GROUP if a new one is needed, as for a very large message."""
        group = self.current
        if to_queue and group.key != key:
            group = self._open_groups.get(key, NO_GROUP)
        alike = group.key == key and group.properties == properties
        full = group.size_bytes + size_bytes > self._batch_bytes
        return (
            group
            if alike and (group.headers is not None) == with_headers and not full
            else NO_GROUP
        )

    def switch(self, exchange: str | None, key: str) -> Group:
        """Make the open group of another queue the current one, and return it.

        NO_GROUP if there is none, or if so much has gathered that the sender should run first.
        """
        try:
            group = self._open_groups.get(key)
        except TypeError:  # An unhashable key, such as a list; the slow path reports it.
            return NO_GROUP
        if group is None or group.exchange != exchange:
            return NO_GROUP
        # This is `switch_to` inlined: with alternating keys every message comes here.
        self._other_bytes += self.current.size_bytes - group.size_bytes
        self.current = group
        return group if self._other_bytes < self._switch_bytes else NO_GROUP

    def switch_to(self, group: Group) -> None:
        """Make `group` the current one."""
        self._other_bytes += self.current.size_bytes - group.size_bytes
        self.current = group

    def should_yield(self, queue: str | None) -> bool:
        """Return whether the sender should run before a message to `queue` is added; None for an exchange."""
        alternating = queue is not None and queue != self.current.key
        return self.size_bytes >= (self._switch_bytes if alternating else self._yield_bytes)

    def postpone_yield(self) -> None:
        """The caller has let the sender run: let YIELD_BYTES more gather before it does so again."""
        self._set_thresholds(self.size_bytes + YIELD_BYTES)

    def _set_thresholds(self, size_bytes: int) -> None:
        """Set from which total on the sender should run before another group is begun; with `alternating_bytes`
        more, before a message to another queue."""
        self._yield_bytes, self._switch_bytes = size_bytes, size_bytes + self._alternating_bytes

    def barrier(self) -> int:
        """Return the number of messages, and make sure that later ones are packed behind all of them."""
        if not self._groups:
            return 0
        count = self._closed_messages = self.count
        self._closed_groups = len(self._groups)
        self._open_groups.clear()
        # The current group stays open: later messages come behind all others.
        if self._groups[-1] is self.current:
            self._closed_groups -= 1
            self._closed_messages -= len(self.current.payloads)
        else:
            self.switch_to(NO_GROUP)
        return count

    def close(self) -> None:
        """Let no group take more messages, because nothing will be packed any more."""
        self._open_groups.clear()
        self.switch_to(NO_GROUP)

    def pack(
        self, publisher: bytes, epoch: int, sequence: int, time_us: int, part_bytes_max: int
    ) -> tuple[bytes, int]:
        """Pack batches for one part, numbered from `sequence` on. Return them and their number of messages."""
        self._set_thresholds(YIELD_BYTES)
        batches: list[bytes] = []
        """Pieces of all batches, joined once at the end."""
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
            if group is self.current:
                self.switch_to(NO_GROUP)
            self._other_bytes -= group.size_bytes
            if self._closed_groups:
                self._closed_groups -= 1
                self._closed_messages -= len(group.payloads)
            if self._open_groups.get(group.key) is group:
                del self._open_groups[group.key]
        return b"".join(batches), total

    def _split_first(self, part_bytes_max: int) -> None:
        """Split the first group if its batch is too large for a part: some brokers take smaller parts."""
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
        if group is self.current:
            self._other_bytes += size_bytes
        if self._closed_groups:
            self._closed_groups += 1
        self._groups.appendleft(front)


def cumulative_sizes(payloads: Sequence[bytes], headers: bytes | None) -> list[int]:
    """Return the cumulative sizes: for each message, the bytes of it and of all before it."""
    around = PER_MESSAGE_BYTES + len(headers or b"")
    return list(accumulate(map(around.__add__, map(len, payloads))))


def batch_overhead(key: str, properties: bytes) -> int:
    """Return the bytes of a batch besides its messages."""
    return HEADER_BYTES + len(key.encode()) + len(properties)


def fitting(
    payloads: Sequence[bytes], headers: Sequence[bytes] | None, room_bytes: int, start: int = 0
) -> tuple[int, int]:
    """Return how many messages from `start` on fit, at least one, and how many bytes they take."""
    if not start:  # Nearly always all of them fit, which needs no loop to find out.
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
