"""What a publisher has been given and not sent: messages alike in a row become one batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.protocol.batch import batch_pieces, with_checksum

PER_MESSAGE_BYTES = 8
BATCH_COUNT_MAX = 1 << 16


@dataclass(slots=True, eq=False)
class Group:
    """Consecutive messages with one key and the same properties."""

    key: str
    properties: bytes
    payloads: list[bytes] = field(default_factory=list)
    headers: list[bytes] | None = None
    size_bytes: int = 0


class Gathering:
    """In the order in which they were given; sequences are given when they are packed."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._groups: list[Group] = []
        self.count = self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._groups)

    def group(self, key: str, properties: bytes, *, headers: bool) -> Group:
        """Where the next such message goes."""
        if self._groups:
            last = self._groups[-1]
            if (
                last.key == key
                and last.properties == properties
                and (last.headers is not None) == headers
                and last.size_bytes < self._batch_bytes
                and len(last.payloads) < BATCH_COUNT_MAX
            ):
                return last
        group = Group(key, properties, headers=[] if headers else None)
        self._groups.append(group)
        return group

    def add(self, key: str, properties: bytes, payload: bytes, headers: bytes | None) -> None:
        group = self.group(key, properties, headers=headers is not None)
        group.payloads.append(payload)
        size = len(payload) + PER_MESSAGE_BYTES
        if headers is not None and group.headers is not None:
            group.headers.append(headers)
            size += len(headers)
        group.size_bytes += size
        self.size_bytes += size
        self.count += 1

    def pack(
        self, publisher: bytes, epoch: int, sequence: int, time_us: int, part_bytes_max: int
    ) -> tuple[bytes, int]:
        """Batches for one part, from `sequence` on, and how many messages are in it."""
        pieces: list[bytes] = []
        size = total = 0
        while self._groups:
            group = self._groups[0]
            packed, packed_bytes = batch_pieces(
                publisher, epoch, sequence + total, time_us, group.key.encode(), group.payloads,
                shared_headers=group.properties, message_headers=group.headers,
            )  # fmt: skip
            if pieces and size + packed_bytes > part_bytes_max:
                break
            pieces.append(with_checksum(b"".join(packed)))
            size += packed_bytes
            total += len(group.payloads)
            self.size_bytes -= group.size_bytes
            del self._groups[0]
        self.count -= total
        return b"".join(pieces), total
