"""Records queued for the data lane of one link, in flows that are served round-robin.

Each tunnel is a flow, all topics together are one, all requests, replies and broadcasts are one, and the
large ones among these another. A frame takes from the flows in turn, a quantum each, so a 16 MiB reply delays a
small reply, or a record of any other flow, by a quantum and not by 16 MiB. Large records leave in pieces
for the same reason; unfinished ones at the peer stay within the limit for what it reassembles.

    push ──> flow "requests"        ▇ ▇ ▇ ─┐
    push ──> flow "large requests"  ▇ ─────┤
    push ──> flow "topics"          ▇ ▇ ───┼── turn ──> take(limit) ──> one frame's records
    push ──> flow tunnel 7          ▇ ─────┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .frame import MORE, RECORD, RECORD_BYTES, Buffer, Part

QUANTUM_BYTES = 64 * 1024
REQUESTS, LARGE_REQUESTS, TOPICS = "requests", "large requests", "topics"
SMALL_BYTES, JOINED_BYTES_MAX = 2048, 16 * 1024
"""Records up to SMALL_BYTES that may be joined are, up to JOINED_BYTES_MAX together: each one alone would cost
200 bytes of memory beside its content."""
DISCARDED_MAX = 64
"""Records taken back stay in a flow's queue until there are this many more than half of its length."""

Piece = tuple[Sequence[Buffer], int]
"""Parts to be joined, the record header included, and their size in bytes."""


class Owner(Protocol):
    """Is told when a record leaves."""

    def on_first_piece(self) -> None:
        """The record's first piece enters a frame: from then on the peer may have seen it."""

    def on_last_piece(self) -> None:
        """The record's last piece enters a frame, maybe the same one."""


@dataclass(slots=True, eq=False)
class Record:
    """One queued record, or those of its pieces that have not left."""

    parts: Sequence[Part]
    size_bytes: int
    """Bytes of `parts`, the next piece."""
    rest: list[Piece] | None
    """Further pieces, in reverse order."""
    total_bytes: int
    owner: Owner | None
    label: Any
    begun: bool = False
    discarded: bool = False
    flow: Hashable = None
    """The name of the flow that it waits in."""
    joined: bytearray | None = None
    """The only one of `parts`, if further records may be joined to it."""
    count: int = 1
    """How many records are joined in this one."""


@dataclass(slots=True, eq=False)
class Flow:
    records: deque[Record] = field(default_factory=deque)
    droppable: deque[Record] = field(default_factory=deque)
    """Records that `drop_oldest` may take back, oldest first."""
    size_bytes: int = 0
    discarded_count: int = 0

    def front(self) -> Record | None:
        """Return the record to leave next, None if there is none."""
        records = self.records
        while records:
            if not records[0].discarded:
                return records[0]
            records.popleft()
            self.discarded_count -= 1
        return None

    def join(self, piece: bytes, limit_bytes: int) -> bool:
        """Join a record to the last one. Return False if that one takes no more, or would exceed `limit_bytes`.

        `limit_bytes` is at most the size of a piece, and a piece fits a frame, so joined records do, too.
        """
        last, size = self.records[-1], len(piece)
        if last.joined is None or last.total_bytes + size > limit_bytes:
            return False
        last.joined += piece
        last.count += 1
        last.size_bytes = last.total_bytes = last.total_bytes + size
        self.size_bytes += size
        return True

    def discard(self, record: Record) -> None:
        record.discarded = True
        record.parts, record.rest, record.joined = (), None, None
        self.size_bytes -= record.total_bytes
        self.discarded_count += 1
        if self.discarded_count > len(self.records) // 2 + DISCARDED_MAX:
            self.records = deque(one for one in self.records if not one.discarded)
            self.discarded_count = 0


class Outbox:
    """Queue of one link, bounded by the caller: it checks `room_bytes` or `has_room` before a push that may be
    refused."""

    __slots__ = (
        "_begun_bytes", "_flows", "_next_large", "chunk_bytes", "limit_bytes", "reassembly_bytes", "size_bytes",
    )  # fmt: skip

    def __init__(self, *, limit_bytes: int, chunk_bytes: int, reassembly_bytes: int) -> None:
        self.limit_bytes, self.chunk_bytes = limit_bytes, chunk_bytes
        self.reassembly_bytes = reassembly_bytes
        """Limit for all records in pieces that have begun to leave; one alone may exceed it."""
        self.size_bytes = self._begun_bytes = 0
        self._flows: dict[Hashable, Flow] = {}
        self._next_large: Hashable | None = None
        """The flow whose large record waits until others have left completely; until it begins, no other flow may
        begin a large record."""

    def __bool__(self) -> bool:
        return bool(self._flows)

    @property
    def room_bytes(self) -> int:
        return self.limit_bytes - self.size_bytes

    def has_room(self, flow: Hashable, size_bytes: int) -> bool:
        """Return whether `size_bytes` more may wait in `flow`: up to the limit, or any size if the flow is empty.

        Other flows do not count: topics that flood a link must not keep requests off it. Large requests and replies
        count as requests: they share one limit.
        """
        if self.size_bytes + size_bytes <= self.limit_bytes:
            return True  # In whichever flows the others wait.
        waiting = self._waiting_bytes(flow)
        if flow == REQUESTS:
            waiting += self._waiting_bytes(LARGE_REQUESTS)
        return not waiting or waiting + size_bytes <= self.limit_bytes

    def _waiting_bytes(self, flow: Hashable) -> int:
        found = self._flows.get(flow)
        return 0 if found is None else found.size_bytes

    def push(
        self, flow: Hashable, kind: int, ident: int, body: bytes, *, prefix: bytes = b"",
        owner: Owner | None = None, label: Any = None, protected: bool = True,
    ) -> Record:  # fmt: skip
        """Queue one record with the body `prefix + body`, in pieces if it is larger than a chunk.

        Args:
            label: kept for the caller of `drop_oldest`.
            protected: whether `drop_oldest` must not take it back.
        """
        total = len(prefix) + len(body)
        if total <= self.chunk_bytes:
            header = RECORD.pack(kind, 0, 0, total, ident)
            size = RECORD_BYTES + total
            record = Record((header + prefix, body), size, None, size, owner, label)
        else:
            pieces = self._pieces(kind, ident, prefix, body)
            total = sum(size for _, size in pieces)
            parts, size = pieces.pop()
            record = Record(parts, size, pieces, total, owner, label)
        self._append(flow, record, protected)
        return record

    def push_unordered(
        self, kind: int, ident: int, body: bytes, *, prefix: bytes, owner: Owner | None = None
    ) -> Record:
        """Queue a request, reply or broadcast. Nothing promises their order, so a large one waits in a flow of its own, and
        small ones do not wait for its pieces."""
        large = len(prefix) + len(body) > self.chunk_bytes
        flow = LARGE_REQUESTS if large else REQUESTS
        return self.push(flow, kind, ident, body, prefix=prefix, owner=owner)

    def _pieces(self, kind: int, ident: int, prefix: bytes, body: bytes) -> list[Piece]:
        pieces: list[Piece] = []
        view, at = memoryview(body), 0  # So the body is copied only once, into frames.
        while at < len(body) or prefix:
            piece = view[at : at + self.chunk_bytes - len(prefix)]
            at += len(piece)
            length = len(prefix) + len(piece)
            header = RECORD.pack(kind, MORE if at < len(body) else 0, 0, length, ident)
            pieces.append(((header, prefix, piece), RECORD_BYTES + length))
            prefix = b""
        pieces.reverse()
        return pieces

    def push_whole(
        self, flow: Hashable, kind: int, ident: int, pieces: list[bytes], size_bytes: int, *,
        label: Any = None, protected: bool = True,
    ) -> None:  # fmt: skip
        """Queue a record that fits a frame and is not split; `pieces` are joined only when the frame is packed."""
        header = RECORD.pack(kind, 0, 0, size_bytes, ident)
        size_bytes += RECORD_BYTES
        record = Record((header, *pieces), size_bytes, None, size_bytes, None, label)
        self._append(flow, record, protected)

    def push_joined(self, flow: Hashable, kind: int, ident: int, body: bytes) -> None:
        """Queue a record without owner that is never taken back alone, only with its whole flow: so it may be joined
        with others."""
        if len(body) > min(SMALL_BYTES, self.chunk_bytes):
            self.push(flow, kind, ident, body)
            return
        piece = RECORD.pack(kind, 0, 0, len(body), ident) + body
        size = len(piece)
        found = self._flows.get(flow)
        if found is not None and found.join(piece, min(JOINED_BYTES_MAX, self.chunk_bytes)):
            self.size_bytes += size
            return
        joined = bytearray(piece)
        record = Record((joined,), size, None, size, None, None, joined=joined)
        self._append(flow, record, protected=True)

    def push_first(self, flow: Hashable, kind: int, ident: int, body: bytes) -> None:
        """Queue a small record in front of all others of its flow; `drop_oldest` must not take it back."""
        header = RECORD.pack(kind, 0, 0, len(body), ident)
        size = RECORD_BYTES + len(body)
        self._append(flow, Record((header, body), size, None, size, None, None), protected=True)
        self._flows[flow].records.rotate(1)

    def _append(self, flow: Hashable, record: Record, protected: bool) -> None:
        found = self._flows.get(flow)
        if found is None:
            found = self._flows[flow] = Flow()
        record.flow = flow
        found.records.append(record)
        if not protected:
            found.droppable.append(record)
        found.size_bytes += record.total_bytes
        self.size_bytes += record.total_bytes

    def take(self, limit_bytes: int) -> tuple[list[Part], int]:
        """Take records for one frame of at most `limit_bytes`; return their parts and their number.

        The first one is taken however large it is: pieces fit a frame.
        """
        parts: list[Part] = []
        count = taken = skipped = 0
        flows = self._flows
        while skipped < len(flows):
            name = next(iter(flows))
            flow = flows[name]
            records = flow.records
            quantum = 0
            while records and quantum < QUANTUM_BYTES:
                record = records[0]
                if record.discarded:
                    flow.front()
                    continue
                size = record.size_bytes
                if taken + size > limit_bytes and count:
                    if quantum:  # Else it keeps its turn: it is the first in the next frame.
                        self._rotate(name)
                    self.size_bytes -= taken
                    return parts, count
                if not record.begun and not self._begin(name, flow, record):
                    break
                parts += record.parts
                count += record.count
                taken += size
                quantum += size
                flow.size_bytes -= size
                if record.rest:
                    record.parts, record.size_bytes = record.rest.pop()
                    continue
                records.popleft()
                if record.owner is not None:
                    record.owner.on_last_piece()
                if size < record.total_bytes:
                    self._begun_bytes -= record.total_bytes
            skipped = 0 if quantum else skipped + 1
            self._rotate(name)
        self.size_bytes -= taken
        return parts, count

    def _begin(self, name: Hashable, flow: Flow, record: Record) -> bool:
        """Note that the record's first piece leaves. Return False, for a large record, if that has to wait, so that
        the peer's limit for unfinished records is kept."""
        if record.rest:
            if self._next_large not in self._flows:
                self._next_large = None
            full = self._begun_bytes + record.total_bytes > self.reassembly_bytes
            if (full and self._begun_bytes) or self._next_large not in (None, name):
                self._next_large = name if self._next_large is None else self._next_large
                return False
            self._begun_bytes += record.total_bytes
        if self._next_large == name:
            self._next_large = None
        record.begun = True
        if flow.droppable and flow.droppable[0] is record:
            flow.droppable.popleft()
        if record.owner is not None:
            record.owner.on_first_piece()
        return True

    def _rotate(self, name: Hashable) -> None:
        """Move the flow behind all others, or remove it if it is empty."""
        flow = self._flows.pop(name)
        if flow.front() is not None:
            self._flows[name] = flow

    def discard(self, record: Record) -> bool:
        """Take back a record of this outbox. Return False if it has begun to leave; then the rest of it leaves, too."""
        if record.begun or record.discarded:
            return False
        flow = self._flows[record.flow]
        self.size_bytes -= record.total_bytes
        flow.discard(record)
        if flow.front() is None:
            del self._flows[record.flow]
        return True

    def discard_all(self, flow: Hashable) -> None:
        """Take back all records of a flow that have not begun to leave."""
        found = self._flows.get(flow)
        for record in list(found.records) if found is not None else ():
            self.discard(record)

    def drop_oldest(self, flow: Hashable) -> Record | None:
        """Take back the oldest record that may be dropped and has not begun to leave; None if there is none.

        For the policy drop_oldest. A record that has begun to leave is completed, because half of it
        would be worse than all or nothing of it.
        """
        found = self._flows.get(flow)
        while found is not None and found.droppable:
            record = found.droppable.popleft()
            if self.discard(record):
                return record
        return None
