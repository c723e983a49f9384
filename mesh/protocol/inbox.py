"""Messages that wait for one subscription: bounded in bytes, with a policy for when the inbox is full.

    drop_oldest   make room by dropping from the front, single messages where a whole batch is too much
    drop_newest   keep waiting messages, drop new ones
    block         never full: each publisher has credit for `limit_bytes`, returned as messages are read;
                  what a peer sends beyond that, and beyond what may have been on its way when the
                  subscription began, is dropped

Every drop, here or at the publisher, leaves a gap in a stream, and `take` reports the gap with the next
messages of the same stream: see stream_gaps.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .batch import LOST, Batch
from .interest import BLOCK, DROP_NEWEST
from .link import Link
from .sharing import Sharing
from .stream_gaps import Epoch, Streams


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """Plain counters of one subscription, in messages unless they say bytes.

    `dropped`: dropped here, for want of room. `lost`: missing between messages that were delivered,
    wherever they were dropped; those dropped here are included once a later message has been taken.
    """

    pattern: str
    when_full: str
    delivered: int
    dropped: int
    lost: int
    waiting_bytes: int
    limit_bytes: int


class Delivery:
    """Messages of one topic from one sender, in order. `lost`: how many are missing just before them.

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
        """The batch that the messages came in; it may contain more than `payloads` if some were dropped."""
        return self._batch

    @property
    def headers(self) -> list[bytes] | None:
        """Headers of each message, as msgpack maps; None if the batch has none."""
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

    `size_bytes` is at least half of the bytes that the batch keeps in memory. Its objects take some hundred
    bytes more: with batches of one small message each, a full inbox takes eight times its limit.
    """

    batch: Batch
    link: Link | None
    epoch: Epoch
    size_bytes: int
    first: int
    end: int
    sizes: Sequence[int] | None = None
    """Bytes of each message of the batch, once some were dropped; then `size_bytes` is without the batch's header."""


class Inbox:
    """Queue of one subscription of this node. `wake` is called when it stops being empty."""

    def __init__(
        self, ident: int, pattern: tuple[str, ...], policy: str, limit_bytes: int,
        wake: Callable[[], object], *, in_flight_bytes: int = 0,
    ) -> None:  # fmt: skip
        """
        Args:
            in_flight_bytes: most bytes that one peer may have on their way, without having used credit for
                them, when a `block` subscription begins: batches for another subscription of this
                node that match this one, too.
        """
        self.ident, self.pattern, self.policy = ident, pattern, policy
        self.limit_bytes = limit_bytes
        self.wake = wake
        self.sharing: Sharing | None = None
        """The group that this subscription shares its messages with; None: with nobody."""
        self._peer_bytes_max = limit_bytes + in_flight_bytes
        self._waiting_by_link: dict[Link | None, int] = {}
        """Waiting bytes by link, None for this node's own messages; only with `block`."""
        self._entries: deque[Entry] = deque()
        self._waiting_bytes = 0
        self.streams = Streams()
        self.owed_bytes: dict[Link, int] = {}
        """Bytes read and not yet returned as credit, by link; only with `block`."""
        self._delivered = self._dropped = self._lost = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def has_room(self, size_bytes: int) -> bool:
        """Return whether this node, as a publisher, may push a batch of `size_bytes`; peers look at their credit."""
        # Only our own: each publisher has the limit to itself.
        waiting = self._waiting_by_link.get(None, 0)
        return self.policy != BLOCK or not waiting or waiting + size_bytes <= self.limit_bytes

    @property
    def batch_bytes_max(self) -> int:
        """With `block`, the largest batch that this node, as a publisher, should gather: what there is room for,
        or a quarter of the limit, for which it waits. With room alone as the measure, each batch would be
        smaller than the one that was just taken."""
        return max(self.limit_bytes - self._waiting_by_link.get(None, 0), self.limit_bytes // 4)

    def push(self, batch: Batch, link: Link | None) -> None:
        """Add a batch, or as much of it as the policy allows. `link` is None for this node's own messages."""
        epoch = self.streams.note_batch(batch)
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
        """Return the oldest waiting messages. Raises IndexError if none wait."""
        entry = self._entries.popleft()
        batch = entry.batch
        payloads = batch.payloads
        if entry.end - entry.first < batch.count:
            payloads = payloads[entry.first : entry.end]
        self._waiting_bytes -= entry.size_bytes
        sequence = batch.base_sequence + entry.first
        lost = self.streams.note_taken(batch, sequence, sequence + len(payloads))
        self._lost += lost
        self._delivered += len(payloads)
        entry.epoch.waiting -= len(payloads)
        if self.policy == BLOCK:
            self._charge(entry.link, -entry.size_bytes)
            if entry.link is not None:
                self.owed_bytes[entry.link] = self.owed_bytes.get(entry.link, 0) + entry.size_bytes
        return Delivery(batch, payloads, sequence, lost)

    def take_over(self, link: Link) -> int:
        """Assign waiting messages that came by earlier links of the same peer to `link`, a new one, so that their
        credit is returned by it. Return how many bytes they are."""
        earlier_links = {
            one for one in self._waiting_by_link if one is not None and one.peer == link.peer
        }
        if not earlier_links:
            return 0
        for entry in self._entries:
            if entry.link in earlier_links:
                entry.link = link
        waiting = self._waiting_by_link[link] = sum(
            self._waiting_by_link.pop(one) for one in earlier_links
        )
        return waiting

    def _charge(self, link: Link | None, size_bytes: int) -> bool:
        """Count the waiting bytes of one publisher. Return False if they exceed any credit that it can have had.

        This node, as a publisher, has asked `has_room` before, so none of its own messages are dropped.
        """
        waiting = self._waiting_by_link.get(link, 0)
        if link is not None and waiting and waiting + size_bytes > self._peer_bytes_max:
            return False
        self._waiting_by_link[link] = waiting + size_bytes
        if not self._waiting_by_link[link]:
            del self._waiting_by_link[link]
        return True

    def _drop(self, entry: Entry, count: int) -> None:
        """Note that `count` messages of the entry are not delivered."""
        epoch = entry.epoch
        self._dropped += count
        epoch.waiting -= count
        if epoch.forgotten:
            self.streams.note_missed(entry.batch, count)

    def _make_room(self, entry: Entry) -> None:
        """Drop from the front until the entry fits, single messages where a whole batch is too much."""
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

        Messages that stay are not looked at, because this may happen for every message that arrives.
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
        if not from_front:  # With drop_newest no more of it is ever dropped.
            entry.sizes = None
        # Otherwise a few messages would keep the whole batch in memory.
        if first < end and 2 * size < entry.batch.size_bytes:
            entry.batch = entry.batch.cut(first, end - first)
            entry.first, entry.end, entry.sizes = 0, end - first, None

    def statistics(self) -> SubscriptionStatistics:
        return SubscriptionStatistics(
            ".".join(self.pattern), self.policy, self._delivered, self._dropped, self._lost,
            self._waiting_bytes, self.limit_bytes,
        )  # fmt: skip
