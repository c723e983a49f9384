"""What waits to leave on the data lane of one link: flows, served in turn.

Each tunnel is a flow, all topics together are one, all requests and replies are one. A frame takes
from the flows in turn, a quantum each, so a 16 MiB reply delays a small one by a chunk and not by
16 MiB. Large records enter as chunks for the same reason.

    push ──> flow "requests"  ▇ ▇ ▇ ─┐
    push ──> flow "topics"    ▇ ▇ ───┼── turn ──> take(limit) ──> one frame's records
    push ──> flow tunnel 7    ▇ ─────┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from .frame import MORE, RECORD, RECORD_BYTES

QUANTUM_BYTES = 64 * 1024
REQUESTS, TOPICS = "requests", "topics"


@dataclass(slots=True, eq=False)
class Item:
    """One record, or one chunk of a record, that waits.

    `sent` is called when it enters a frame: from then on the peer may have seen it. An item whose
    `key` was discarded leaves silently.
    """

    parts: Sequence[bytes]
    size_bytes: int
    key: Hashable = None
    sent: Callable[[], object] | None = None
    first: bool = True
    last: bool = True
    stays: bool = False
    """Never given up by `drop_oldest`: it is the note of a loss, or its subscriber wants it kept."""


@dataclass(slots=True, eq=False)
class Flow:
    items: deque[Item] = field(default_factory=deque)
    size_bytes: int = 0


class Outbox:
    """Bounded by the caller: check `room_bytes` before a push that may be refused."""

    __slots__ = ("_flows", "chunk_bytes", "limit_bytes", "size_bytes")

    def __init__(self, *, limit_bytes: int, chunk_bytes: int) -> None:
        self.limit_bytes, self.chunk_bytes = limit_bytes, chunk_bytes
        self.size_bytes = 0
        self._flows: dict[Hashable, Flow] = {}

    def __bool__(self) -> bool:
        return bool(self._flows)

    @property
    def room_bytes(self) -> int:
        return self.limit_bytes - self.size_bytes

    def only_notes(self) -> bool:
        """Whether nothing waits but notes of what was lost."""
        flows = self._flows.values()
        return all(item.stays and item.key is None for flow in flows for item in flow.items)

    def flow_bytes(self, flow: Hashable) -> int:
        found = self._flows.get(flow)
        return found.size_bytes if found is not None else 0

    def takes(self, flow: Hashable, size_bytes: int) -> bool:
        """Whether so much more may wait in `flow`: up to the limit, or one record of any size.

        Others' flows do not count: topics that flood a link must not keep requests off it.
        """
        found = self._flows.get(flow)
        return found is None or found.size_bytes + size_bytes <= self.limit_bytes

    def push(
        self,
        flow: Hashable,
        kind: int,
        ident: int,
        body: bytes,
        *,
        prefix: bytes = b"",
        key: Hashable = None,
        sent: Callable[[], object] | None = None,
        stays: bool = False,
    ) -> None:
        """Queue one record; `prefix + body` is its body. Cut into chunks when it is large.

        Args:
            key: what `discard` finds it by.
            sent: called once, when its first piece enters a frame.
            stays: `drop_oldest` passes over it.
        """
        total = len(prefix) + len(body)
        if total <= self.chunk_bytes:
            header = RECORD.pack(kind, 0, 0, total, ident)
            size = RECORD_BYTES + total
            self._append(flow, Item((header, prefix, body), size, key, sent, stays=stays))
            return
        at, first = 0, True
        while at < len(body) or prefix:
            piece = body[at : at + self.chunk_bytes - len(prefix)]
            at += len(piece)
            length = len(prefix) + len(piece)
            header = RECORD.pack(kind, MORE if at < len(body) else 0, 0, length, ident)
            self._append(
                flow,
                Item((header, prefix, piece), RECORD_BYTES + length, key, sent, first,
                     at >= len(body), stays),
            )  # fmt: skip
            prefix, sent, first = b"", None, False

    def push_whole(
        self, flow: Hashable, kind: int, ident: int, pieces: list[bytes], size_bytes: int, *,
        key: Hashable, stays: bool = False,
    ) -> None:  # fmt: skip
        """Queue a record that fits a frame and is not to be cut; `pieces` are joined only there."""
        header = RECORD.pack(kind, 0, 0, size_bytes, ident)
        size_bytes += RECORD_BYTES
        self._append(flow, Item((header, *pieces), size_bytes, key, stays=stays))

    def _append(self, flow: Hashable, item: Item) -> None:
        found = self._flows.get(flow)
        if found is None:
            found = self._flows[flow] = Flow()
        found.items.append(item)
        found.size_bytes += item.size_bytes
        self.size_bytes += item.size_bytes

    def take(self, limit_bytes: int) -> tuple[list[bytes], int]:
        """Parts and count of the records for one frame of at most `limit_bytes`.

        At least one record is taken when there is one, however large: pieces fit a frame.
        """
        parts: list[bytes] = []
        count = taken = 0
        flows = self._flows
        while flows:
            flow = next(iter(flows))
            found = flows[flow]
            items = found.items
            quantum = 0
            while items and quantum < QUANTUM_BYTES:
                size = items[0].size_bytes
                if taken + size > limit_bytes and count:
                    if quantum:  # Else its turn is still to come: first in the next frame.
                        self._turn(flow)
                    self.size_bytes -= taken
                    return parts, count
                item = items.popleft()
                parts += item.parts
                count += 1
                taken += size
                quantum += size
                found.size_bytes -= size
                if item.sent is not None:
                    item.sent()
            self._turn(flow)
        self.size_bytes -= taken
        return parts, count

    def _turn(self, flow: Hashable) -> None:
        """To the back of the queue, or out of it when empty."""
        found = self._flows.pop(flow)
        if found.items:
            self._flows[flow] = found

    def discard(self, flow: Hashable, key: Hashable) -> int:
        """Drop the records that wait under `key`; return how many pieces that were.

        A record of which a piece has left is completed: the receiver is putting it together.
        """
        found = self._flows.get(flow)
        if found is None:
            return 0
        kept: deque[Item] = deque()
        gone_bytes = 0
        begun = True
        for item in found.items:
            begun = begun and not item.first
            if item.key == key and not begun:
                gone_bytes += item.size_bytes
            else:
                kept.append(item)
        dropped = len(found.items) - len(kept)
        found.items, found.size_bytes = kept, found.size_bytes - gone_bytes
        self.size_bytes -= gone_bytes
        if not kept:
            del self._flows[flow]
        return dropped

    def drop_oldest(self, flow: Hashable) -> Hashable | None:
        """Take out the oldest record of which nothing has left; return its key, None if none.

        For a policy that gives way to the new. A record that has begun to leave stays: half of
        it would be worse than all or nothing of it.
        """
        found = self._flows.get(flow)
        if found is None:
            return None
        passed: list[Item] = []
        while found.items and (found.items[0].stays or not found.items[0].first):
            passed.append(found.items.popleft())
        key: Hashable | None = None
        while found.items:
            item = found.items.popleft()
            key = item.key
            found.size_bytes -= item.size_bytes
            self.size_bytes -= item.size_bytes
            if item.last:
                break
        found.items.extendleft(reversed(passed))
        if not found.items:
            del self._flows[flow]
        return key

    def note(
        self, flow: Hashable, record: bytes, sent: Callable[[], object], *, front: bool
    ) -> Item:
        """Queue a record that no policy drops, before all that waits in its flow or behind it."""
        item = Item((record,), len(record), None, sent, stays=True)
        self._append(flow, item)
        if front:
            items = self._flows[flow].items
            passed: list[Item] = []
            items.pop()
            while items and not items[0].first:  # A begun record goes on first.
                passed.append(items.popleft())
            items.appendleft(item)
            items.extendleft(reversed(passed))
        return item
