"""What a publisher has been given and not sent: messages alike in a row become one batch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from mesh.protocol.batch import batch_pieces

PER_MESSAGE_BYTES = 8
"""What a message takes beside its body, at most, in the columns of a batch."""


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
    """In the order in which messages were given; the last group takes more that are like it."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._groups: deque[Group] = deque()
        self.last = NOTHING
        self._closed_count = self._closed_bytes = 0
        """Of all groups but the last: keys in turn make a group of every message."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    @property
    def count(self) -> int:
        return self._closed_count + len(self.last.payloads)

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self.last.size_bytes

    def add(
        self,
        exchange: str | None,
        key: str,
        properties: bytes,
        payload: bytes,
        headers: bytes | None,
    ) -> None:
        group, size = self.last, len(payload) + PER_MESSAGE_BYTES + len(headers or b"")
        alike = group.key == key and group.properties == properties
        if not alike or (group.headers is None) != (headers is None) or self._is_full(size):
            group = Group(exchange, key, properties, self._batch_bytes)
            if headers is not None:
                group.headers, group.limit_bytes = [], -1  # Each of them comes this way.
            self._closed_count += len(self.last.payloads)
            self._closed_bytes += self.last.size_bytes
            self._groups.append(group)
            self.last = group
        group.payloads.append(payload)
        group.size_bytes += size
        if headers is not None and group.headers is not None:
            group.headers.append(headers)

    def close(self) -> None:
        """The last group takes no more: nobody is going to pack it."""
        self._closed_count, self._closed_bytes, self.last = self.count, self.size_bytes, NOTHING

    def _is_full(self, size_bytes: int) -> bool:
        """Whether the last group has no room for so much: what is large gets a batch of its own."""
        return self.last is NOTHING or self.last.size_bytes + size_bytes > self._batch_bytes

    def pack(
        self, publisher: bytes, epoch: int, sequence: int, time_us: int, part_bytes_max: int
    ) -> tuple[bytes, int]:
        """Batches for one part, from `sequence` on, and how many messages are in it."""
        batches: list[bytes] = []
        size = total = 0
        while self._groups:
            group = self._groups[0]
            pieces, batch_bytes = batch_pieces(
                publisher, epoch, sequence + total, time_us, group.key.encode(), group.payloads,
                shared_headers=group.properties, message_headers=group.headers,
            )  # fmt: skip
            if batches and size + batch_bytes > part_bytes_max:
                break
            batches.append(b"".join(pieces))
            size += batch_bytes
            total += len(group.payloads)
            self._groups.popleft()
            if group is self.last:
                self.last = NOTHING
            else:
                self._closed_count -= len(group.payloads)
                self._closed_bytes -= group.size_bytes
        return batches[0] if len(batches) == 1 else b"".join(batches), total
