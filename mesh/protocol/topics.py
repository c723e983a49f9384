"""The publishing side of topics: gather, pack once, hand to every link that wants it.

    publish ──> stream.payloads ──(the pump's turn, or a full frame)──> one batch ──┬─> outbox of link A
                                                                                    ├─> outbox of link B
                                                                                    └─> inboxes of this node

No linger: a batch is whatever gathered until the pump got its turn. Interest is matched here, at the
publisher, once per topic and change of interest; what nobody wants is counted and never packed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from ..errors import LimitReached
from ..names import check_topic
from .batch import HEADER_BYTES, Batch, batch_pieces, encode_lost
from .frame import FRAME_BYTES, RECORD_BYTES, Kind, pack_record
from .inbox import Inbox
from .interest import BLOCK, DROP_OLDEST, Interest, RemoteSubscription
from .link import Link
from .outbox import TOPICS, Item

Dropped = tuple["TopicStream", int, int]
"""What an outbox knows a batch by: its stream, first sequence and count."""

PER_MESSAGE_BYTES = 8
"""Length columns, with headers."""

Wanted = RemoteSubscription | Inbox


@dataclass(slots=True, eq=False)
class TopicStream:
    """One topic of this publisher. The application's hot path appends to it and no more.

    `limit_bytes` is what `size_bytes` may reach before `flush` must be called: a frame's worth, or
    less while a `block` subscriber has little credit; negative while nobody wants the topic or the
    stream is blocked, so that one comparison guards the hot path.
    """

    topic: str
    raw: bytes
    epoch: int
    sequence: int = 0
    payloads: list[bytes] = field(default_factory=list)
    headers: list[bytes] | None = None
    size_bytes: int = 0
    limit_bytes: int = -1
    dirty: bool = False
    blocked: bool = False
    version: int = -1
    links: dict[Link, str] = field(default_factory=dict)
    """Links that want it, and the policy there."""
    blockers: list[RemoteSubscription] = field(default_factory=list)
    inboxes: list[Inbox] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        return bool(self.links or self.inboxes)


@dataclass(frozen=True, slots=True)
class PublisherStatistics:
    """Plain counters, in messages. `dropped` is per policy at the outbox of a slow link."""

    published: int
    batches: int
    nobody: int
    dropped: int
    topics: int


@dataclass(slots=True)
class Note:
    """Messages [first, first + count) of a stream, dropped for one link and not yet told to it."""

    first: int
    count: int = 0
    item: Item | None = None


class Publisher:
    """All topic streams of one node."""

    def __init__(
        self, me: bytes, interest: Interest[Wanted], *, frame_bytes_max: int, topics_max: int,
        epoch: int, wall_us: Callable[[], int], touched: Callable[[Link], None],
    ) -> None:  # fmt: skip
        """
        Args:
            epoch: of the first stream; greater than in any earlier life of this node id.
            touched: called with every link whose outbox got something.
        """
        self._me, self._interest = me, interest
        self._batch_bytes_max = frame_bytes_max - FRAME_BYTES - RECORD_BYTES - HEADER_BYTES - 256
        self._topics_max, self._next_epoch = topics_max, epoch
        self._wall_us, self._touched = wall_us, touched
        self.streams: OrderedDict[str, TopicStream] = OrderedDict()
        self.dirty: list[TopicStream] = []
        self.blocked: list[TopicStream] = []
        self._front_notes: dict[tuple[Link, TopicStream], Note] = {}
        self._back_notes: dict[tuple[Link, TopicStream], Note] = {}
        self._published = self._batches = self._nobody = self._dropped = 0
        self._batch_id = 0

    def stream(self, topic: str) -> TopicStream:
        """The stream of `topic`, opened when it is new. Raises InvalidName, LimitReached."""
        stream = self.streams.get(topic)
        if stream is None:
            raw = check_topic(topic)
            if len(self.streams) >= self._topics_max:
                self._evict()
            # An evicted topic starts again under a new epoch, so its sequence may start at zero.
            stream = self.streams[topic] = TopicStream(topic, raw, self._next_epoch)
            self._next_epoch += 1
            self.refresh(stream)
        return stream

    def _evict(self) -> None:
        for topic, stream in self.streams.items():
            if not stream.payloads:
                del self.streams[topic]
                return
        raise LimitReached("topics_max", self._topics_max)

    def nobody(self, count: int) -> None:
        """`count` messages were published that no one wants."""
        self._nobody += count

    def refresh(self, stream: TopicStream) -> None:
        """Match the stream anew when interest has changed, and set its limit."""
        if stream.version != self._interest.version:
            stream.version = self._interest.version
            stream.links, stream.blockers, stream.inboxes = {}, [], []
            for wanted in self._interest.match(stream.topic):
                if isinstance(wanted, Inbox):
                    stream.inboxes.append(wanted)
                    continue
                policy = stream.links.get(wanted.link)
                if policy is None or wanted.policy == BLOCK:
                    stream.links[wanted.link] = wanted.policy
                if wanted.policy == BLOCK:
                    stream.blockers.append(wanted)
        if not stream.wanted or stream.blocked:
            stream.limit_bytes = -1
            return
        limit = self._batch_bytes_max
        for blocker in stream.blockers:
            limit = min(limit, max(1, blocker.credit_bytes - HEADER_BYTES - 256))
        stream.limit_bytes = limit

    def flush(self, stream: TopicStream) -> bool:
        """Pack what has gathered and hand it on. False: blocked by a subscriber without credit."""
        self.refresh(stream)
        payloads = stream.payloads
        if not payloads:
            stream.blocked = False
            return True
        if not stream.wanted:
            self._nobody += len(payloads)
            stream.payloads, stream.headers, stream.size_bytes, stream.blocked = [], None, 0, False
            return True
        size = HEADER_BYTES + len(stream.raw) + stream.size_bytes
        if not self._may_send(stream, size):
            if not stream.blocked:
                stream.blocked = True
                stream.limit_bytes = -1
                self.blocked.append(stream)
            return False
        stream.blocked = False
        self._send(stream, payloads)
        self.refresh(stream)
        return True

    def _may_send(self, stream: TopicStream, size: int) -> bool:
        for inbox in stream.inboxes:
            if not inbox.may_take(size):
                return False
        if not stream.blockers:
            return True
        for link, policy in stream.links.items():
            if policy == BLOCK and link.outbox.room_bytes < size and link.outbox.size_bytes:
                return False
        return all(blocker.may_take(size) for blocker in stream.blockers)

    def _send(self, stream: TopicStream, payloads: list[bytes]) -> None:
        pieces, size = batch_pieces(
            self._me, stream.epoch, stream.sequence, self._wall_us(), stream.raw, payloads,
            message_headers=stream.headers,
        )  # fmt: skip
        count, first = len(payloads), stream.sequence
        stream.sequence += count
        stream.payloads, stream.headers, stream.size_bytes = [], None, 0
        self._published += count
        self._batches += 1
        self.streams.move_to_end(stream.topic)  # `_evict` takes those that are idle first.
        self._batch_id += 1
        for blocker in stream.blockers:
            blocker.credit_bytes -= size
        for link, policy in stream.links.items():
            self._push(link, policy, stream, pieces, size, first, count)
        if stream.inboxes:
            batch = Batch(b"".join(pieces))
            for inbox in stream.inboxes:
                inbox.push(batch, None)

    def _push(
        self, link: Link, policy: str, stream: TopicStream, pieces: list[bytes], size: int,
        first: int, count: int,
    ) -> None:  # fmt: skip
        outbox = link.outbox
        while outbox.room_bytes < size and policy != BLOCK:
            dropped = outbox.drop_oldest(TOPICS) if policy == DROP_OLDEST else None
            if dropped is not None:
                self._note(link, *cast("Dropped", dropped), front=True)
                continue
            if 2 * size > outbox.limit_bytes and outbox.only_notes():
                break  # Nearly as large as the outbox, or larger: alone, it may go.
            # This one gives way: to what its policy keeps, or to others' that fill the outbox.
            self._note(link, stream, first, count, front=False)
            return
        if self._back_notes:
            self._back_notes.pop((link, stream), None)
        key, stays = (stream, first, count), policy != DROP_OLDEST
        if size <= link.limits.frame_bytes_max - FRAME_BYTES - RECORD_BYTES:
            outbox.push_whole(
                TOPICS, Kind.BATCH, self._batch_id, pieces, size, key=key, stays=stays
            )
        else:  # One message larger than a frame, or a peer with smaller frames than ours.
            whole = b"".join(pieces)
            outbox.push(TOPICS, Kind.BATCH, self._batch_id, whole, key=key, stays=stays)
        self._touched(link)

    def _note(
        self, link: Link, stream: TopicStream, first: int, count: int, *, front: bool
    ) -> None:
        """Tell the subscriber, in its place in the order, that messages were dropped."""
        self._dropped += count
        notes, key = self._front_notes if front else self._back_notes, (link, stream)
        note = notes.setdefault(key, Note(first))
        note.count += count
        lost = encode_lost(
            self._me, stream.epoch, note.first, self._wall_us(), stream.raw, note.count
        )
        record = pack_record(Kind.BATCH, 0, lost)
        if note.item is None:
            note.item = link.outbox.note(TOPICS, record, lambda: notes.pop(key, None), front=front)
        else:
            note.item.parts = (record,)  # As long as before: only counts have changed.
        self._touched(link)

    def retry(self) -> list[TopicStream]:
        """Flush the blocked streams again; return those that go on."""
        blocked, self.blocked = self.blocked, []
        for stream in blocked:
            stream.blocked = False
        freed = [stream for stream in blocked if self.flush(stream)]
        return freed

    def forget(self, link: Link) -> None:
        """The link is gone, and with it what was noted for it."""
        for notes in (self._front_notes, self._back_notes):
            for key in [key for key in notes if key[0] is link]:
                del notes[key]

    def statistics(self) -> PublisherStatistics:
        return PublisherStatistics(
            self._published, self._batches, self._nobody, self._dropped, len(self.streams)
        )
