"""What waits for one subscription: bounded in bytes, with a policy for when it is full.

    drop_oldest   make room by dropping from the front, message by message where it must be
    drop_newest   keep what is there, drop what comes
    block         never full: publishers have credit for `limit_bytes` each, returned as it is read;
                  a peer that does not keep to it, by more than was on its way when the subscription
                  began, has the rest dropped

Every drop, here or at the publisher, becomes a hole in a stream, and `take` reports it with the next
messages of the same one: see streams.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .batch import LOST, Batch
from .interest import BLOCK, DROP_NEWEST
from .link import Link
from .sharing import Sharing
from .streams import Epoch, Streams


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """Plain counters of one subscription, in messages unless they say bytes.

    `dropped` was dropped here, for want of room. `lost` is what is missing between messages that
    were delivered, wherever it was dropped: those dropped here included, once the gap was passed.
    """

    pattern: str
    when_full: str
    delivered: int
    dropped: int
    lost: int
    waiting_bytes: int
    limit_bytes: int


class Delivery:
    """Messages of one topic by one sender, in order. `lost`: how many are missing just before.

    `payloads[i]` has sequence `sequence + i`.
    """

    __slots__ = ("_batch", "lost", "payloads", "sender", "sequence", "topic")

    def __init__(self, batch: Batch, payloads: list[bytes], sequence: int, lost: int) -> None:
        self._batch, self.payloads, self.sequence, self.lost = batch, payloads, sequence, lost
        self.topic, self.sender = batch.topic, batch.publisher

    def __repr__(self) -> str:
        return f"<Delivery {self.sequence} {self.topic!r} {len(self.payloads)} messages>"

    @property
    def batch(self) -> Batch:
        """The batch as it travelled; it may hold more messages than `payloads` when some dropped."""
        return self._batch

    @property
    def headers(self) -> list[bytes] | None:
        """Per message, as msgpack maps; None when the batch has none."""
        column = self._batch.message_headers()
        if column is None or len(column) == len(self.payloads):
            return column
        first = self.sequence - self._batch.base_sequence
        return column[first : first + len(self.payloads)]

    def __len__(self) -> int:
        return len(self.payloads)


@dataclass(slots=True, eq=False)
class Entry:
    """Messages [`first`, `end`) of a batch, which wait.

    `size_bytes` is at least half of the bytes that the batch holds. Its objects are some hundred bytes
    more: of batches of one small message each, a full inbox holds eight times its limit.
    """

    batch: Batch
    link: Link | None
    epoch: Epoch
    size_bytes: int
    first: int
    end: int
    sizes: Sequence[int] | None = None
    """Of each message of the batch, once some were dropped; then `size_bytes` has no header in it."""


class Inbox:
    """One subscription's end of it all. `wake` is called when it stops being empty."""

    def __init__(
        self, ident: int, pattern: tuple[str, ...], policy: str, limit_bytes: int,
        wake: Callable[[], object], *, early_bytes: int = 0,
    ) -> None:  # fmt: skip
        """
        Args:
            early_bytes: what one peer may have on its way, uncharged, when a `block` subscription
                begins: batches for another subscription of this node that match this one too.
        """
        self.ident, self.pattern, self.policy = ident, pattern, policy
        self.limit_bytes = limit_bytes
        self.wake = wake
        self.sharing: Sharing | None = None
        """Of its messages others of this node get none."""
        self._peer_bytes_max = limit_bytes + early_bytes
        self._from: dict[Link | None, int] = {}
        """Bytes that wait per link, None for this node's own; only with `block`."""
        self._entries: deque[Entry] = deque()
        self._waiting_bytes = 0
        self.streams = Streams()
        self.owed: dict[Link, int] = {}
        """Bytes read and not yet returned as credit, per link; only with `block`."""
        self._delivered = self._dropped = self._lost = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def may_take(self, size_bytes: int) -> bool:
        """Whether this node as a publisher may go on; others ask their credit."""
        waiting = self._from.get(None, 0)  # What others sent does not count: the limit is for each.
        return self.policy != BLOCK or not waiting or waiting + size_bytes <= self.limit_bytes

    @property
    def batch_bytes_max(self) -> int:
        """With `block`, the largest batch for this node as a publisher to gather: what there is room
        for, or a quarter of the limit and wait; else each would be smaller than the one just taken."""
        return max(self.limit_bytes - self._from.get(None, 0), self.limit_bytes // 4)

    def push(self, batch: Batch, link: Link | None) -> None:
        """A batch arrived. `link` is None for messages of this very node."""
        epoch = self.streams.note(batch)
        if batch.kind == LOST:
            return
        epoch.waiting += batch.count
        entry = Entry(batch, link, epoch, batch.size_bytes, 0, batch.count)
        excess = self._waiting_bytes + entry.size_bytes - self.limit_bytes
        if excess > 0 and self.policy == DROP_NEWEST:
            self._shorten(entry, entry.size_bytes - excess, from_front=False)
        elif excess > 0 and self.policy != BLOCK:
            self._make_room(entry)
        elif self.policy == BLOCK and not self._charge(link, entry.size_bytes):
            self._drop(entry, batch.count)
            return
        if entry.first == entry.end:
            return
        epoch.waiting_end = entry.batch.base_sequence + entry.end
        self._entries.append(entry)
        self._waiting_bytes += entry.size_bytes
        if len(self._entries) == 1:
            self.wake()

    def take(self) -> Delivery:
        """The oldest waiting messages. Raises IndexError when nothing waits."""
        entry = self._entries.popleft()
        batch = entry.batch
        payloads = batch.payloads
        if entry.end - entry.first < batch.count:
            payloads = payloads[entry.first : entry.end]
        self._waiting_bytes -= entry.size_bytes
        sequence = batch.base_sequence + entry.first
        lost = self.streams.taken(batch, sequence, sequence + len(payloads))
        self._lost += lost
        self._delivered += len(payloads)
        entry.epoch.waiting -= len(payloads)
        if self.policy == BLOCK:
            self._charge(entry.link, -entry.size_bytes)
            if entry.link is not None:
                self.owed[entry.link] = self.owed.get(entry.link, 0) + entry.size_bytes
        return Delivery(batch, payloads, sequence, lost)

    def take_over(self, link: Link) -> int:
        """`link` is new. What waits of its peer, and came by links before it, is returned by this one: how many
        bytes that are."""
        before = {one for one in self._from if one is not None and one.peer == link.peer}
        if not before:
            return 0
        for entry in self._entries:
            if entry.link in before:
                entry.link = link
        waiting = self._from[link] = sum(self._from.pop(one) for one in before)
        return waiting

    def _charge(self, link: Link | None, size_bytes: int) -> bool:
        """Keep count of what waits from one publisher. False: too much, by any reading of its credit.

        This node as a publisher has asked `may_take`: of its own nothing is dropped.
        """
        waiting = self._from.get(link, 0)
        if link is not None and waiting and waiting + size_bytes > self._peer_bytes_max:
            return False
        self._from[link] = waiting + size_bytes
        if not self._from[link]:
            del self._from[link]
        return True

    def _drop(self, entry: Entry, count: int) -> None:
        """So many messages of it are not delivered."""
        epoch = entry.epoch
        self._dropped += count
        epoch.waiting -= count
        if epoch.forgotten:
            self.streams.missed(entry.batch, count)

    def _make_room(self, entry: Entry) -> None:
        """Drop from the front, message by message where a whole batch is too much."""
        entries = self._entries
        while entries and (excess := self._waiting_bytes + entry.size_bytes - self.limit_bytes) > 0:
            oldest = entries[0]
            self._waiting_bytes -= oldest.size_bytes
            self._shorten(oldest, oldest.size_bytes - excess, from_front=True)
            if oldest.first == oldest.end:
                entries.popleft()
            else:
                self._waiting_bytes += oldest.size_bytes
        if entry.size_bytes > self.limit_bytes:
            self._shorten(entry, self.limit_bytes, from_front=True)

    def _shorten(self, entry: Entry, room: int, *, from_front: bool) -> None:
        """Drop messages at one end until the rest fits into `room` bytes; maybe all of them.

        What stays is not looked at again: for every message that comes, one may have to go.
        """
        first, end = entry.first, entry.end
        if room <= 0:
            self._drop(entry, end - first)
            entry.first, entry.size_bytes = end, 0
            return
        if entry.sizes is None:
            entry.sizes = entry.batch.message_bytes()
            entry.size_bytes = sum(entry.sizes)
        sizes, size = entry.sizes, entry.size_bytes
        while size > room and first < end:
            if from_front:
                size -= sizes[first]
                first += 1
            else:
                end -= 1
                size -= sizes[end]
        self._drop(entry, entry.end - entry.first - (end - first))
        entry.first, entry.end, entry.size_bytes = first, end, size
        if not from_front:  # More of it is never dropped.
            entry.sizes = None
        if first < end and 2 * size < entry.batch.size_bytes:  # Or a few would hold all the rest.
            entry.batch = entry.batch.cut(first, end - first)
            entry.first, entry.end, entry.sizes = 0, end - first, None

    def statistics(self) -> SubscriptionStatistics:
        return SubscriptionStatistics(
            ".".join(self.pattern), self.policy, self._delivered, self._dropped, self._lost,
            self._waiting_bytes, self.limit_bytes,
        )  # fmt: skip
