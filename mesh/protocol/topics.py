"""The publishing side of topics: gather, pack once, hand to every link that wants it.

    publish ──> stream.payloads ──(the pump's turn, or a full frame)──> one batch ──┬─> outbox of link A
                                                                                    ├─> outbox of link B
                                                                                    └─> inboxes of this node

There is no linger timer: a batch is whatever gathers until the pump's turn. Interest is matched here, at
the publisher, once per topic and change of interest; messages that nobody wants are counted, never packed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import LimitReached, NodeClosed
from ..names import TOPIC_BYTES_MAX, check_topic
from .batch import COUNT_MAX, HEADER_BYTES, PER_MESSAGE_BYTES, Batch, batch_pieces
from .frame import FRAME_BYTES, RECORD_BYTES, Kind
from .inbox import Inbox
from .interest import BLOCK, DROP_OLDEST, Interest, RemoteSubscription
from .link import Link
from .losses import Losses
from .outbox import TOPICS
from .sharing import one_per_group

BATCH_EXTRA_BYTES = HEADER_BYTES + TOPIC_BYTES_MAX
"""Most bytes that a batch takes beside its messages."""

AnySubscription = RemoteSubscription | Inbox
Blocker = RemoteSubscription | Inbox | Link
"""What blocks a stream: a subscriber without credit, a full inbox of this node, or a link with a full outbox."""


@dataclass(slots=True, eq=False)
class TopicStream:
    """One topic of this publisher. The application's hot path only appends to it.

    `limit_bytes` is what `size_bytes` may reach before `flush` must be called: a frame's worth, or
    less while a `block` subscriber has little credit or many topics gather; negative while nobody
    wants the topic or the stream is blocked, so that the hot path needs one comparison only.
    """

    topic: str
    encoded_topic: bytes
    epoch: int
    sequence: int = 0
    payloads: list[bytes] = field(default_factory=list)
    headers: list[bytes] | None = None
    size_bytes: int = 0
    limit_bytes: int = -1
    dirty: bool = False
    blocked: bool = False
    interest_version: int = -1
    links: dict[Link, str] = field(default_factory=dict)
    """Links whose peers want the topic, and the policy there."""
    block_subscriptions: list[RemoteSubscription] = field(default_factory=list)
    inboxes: list[Inbox] = field(default_factory=list)

    @property
    def has_subscribers(self) -> bool:
        return bool(self.links or self.inboxes)


@dataclass(frozen=True, slots=True)
class PublisherStatistics:
    """Plain counters, in messages. `dropped`: by the policy, at the outbox of a slow link."""

    published: int
    batches: int
    nobody: int
    dropped: int
    topics: int


class Publisher:
    """All topic streams of one node."""

    def __init__(
        self, me: bytes, interest: Interest[AnySubscription], *, frame_bytes_max: int,
        gathered_bytes_max: int, topics_max: int, epoch: int, wall_us: Callable[[], int],
        request_flush: Callable[[Link], None],
    ) -> None:  # fmt: skip
        """
        Args:
            gathered_bytes_max: bytes that all topics together gather before some should leave.
            epoch: of the first stream; greater than in any earlier life of this node id.
            request_flush: called with every link to whose outbox something was added.
        """
        self._me, self._interest = me, interest
        room = frame_bytes_max - FRAME_BYTES - RECORD_BYTES - BATCH_EXTRA_BYTES
        self._batch_bytes_max = min(room, PER_MESSAGE_BYTES * COUNT_MAX)
        self._gathered_bytes_max, self._dirty_bytes = gathered_bytes_max, 0
        self._topics_max, self._next_epoch = topics_max, epoch
        self._wall_us, self._request_flush = wall_us, request_flush
        self.streams: dict[str, TopicStream] = {}
        self._evictable: OrderedDict[TopicStream, None] = OrderedDict()
        """Streams that are not blocked, idle longest first."""
        self.dirty: list[TopicStream] = []
        self.flush_due = False
        """Whether the first messages of all dirty streams come to `gathered_bytes_max`: they should leave before other
        streams begin."""
        self._blocked: dict[Blocker, deque[TopicStream]] = {}
        self.freed_blockers: dict[Blocker, None] = {}
        """Those that have room again, or are gone; `retry_blocked` flushes what waits for them."""
        self.losses = Losses(me, wall_us)
        self.published = self.batches = self._nobody = 0
        self._batch_id = 0
        self._draining = False

    def stream(self, topic: str) -> TopicStream:
        """Return the stream of `topic`, a new one if there is none. Raises InvalidName, LimitReached, NodeClosed."""
        self.check_open()
        stream = self.streams.get(topic) if isinstance(topic, str) else None
        if stream is None:
            encoded_topic = check_topic(topic)
            if len(self.streams) >= self._topics_max:
                self._evict()
            # An evicted topic starts again under a new epoch, so its sequence may start at zero.
            stream = self.streams[topic] = TopicStream(topic, encoded_topic, self._next_epoch)
            self._evictable[stream] = None
            self._next_epoch += 1
            self.refresh(stream)
            if self._blocked:
                stream.limit_bytes = -1  # It may have to wait, too: `make_room` finds out.
        return stream

    def check_open(self) -> None:
        """Raise NodeClosed once the node is leaving."""
        if self._draining:
            raise NodeClosed("the node is leaving, or has left")

    def _evict(self) -> None:
        for stream in self._evictable:
            if not stream.payloads:
                del self.streams[stream.topic], self._evictable[stream]
                return
        raise LimitReached("topics_max", self._topics_max)

    def refresh(self, stream: TopicStream) -> None:
        """Match the stream again if interest has changed, and set its limit."""
        self._match(stream)
        self._set_limit(stream)

    def _match(self, stream: TopicStream) -> None:
        if stream.interest_version != self._interest.version:
            stream.interest_version = self._interest.version
            stream.links, stream.block_subscriptions, stream.inboxes = {}, [], []
            for subscription in self._interest.match(stream.topic):
                if isinstance(subscription, Inbox):
                    stream.inboxes.append(subscription)
                    continue
                policy = stream.links.get(subscription.link)
                if policy is None or subscription.policy == BLOCK:
                    stream.links[subscription.link] = subscription.policy
                if subscription.policy == BLOCK:
                    stream.block_subscriptions.append(subscription)
            stream.inboxes = one_per_group(stream.inboxes)

    def _set_limit(self, stream: TopicStream) -> None:
        if not stream.has_subscribers or stream.blocked or self._draining:
            stream.limit_bytes = -1
            return
        limit = self._batch_bytes_max
        credit = limit + BATCH_EXTRA_BYTES
        for link in stream.links:  # All must take the batch; a larger message goes alone.
            limit = min(limit, link.payload_bytes_max)
        for subscription in stream.block_subscriptions:
            credit = min(credit, subscription.credit_bytes)
        for inbox in stream.inboxes:
            if inbox.policy == BLOCK:
                credit = min(credit, inbox.batch_bytes_max)
        stream.limit_bytes = max(1, min(limit, credit - BATCH_EXTRA_BYTES))

    def make_room(self, stream: TopicStream, size_bytes: int) -> bool:
        """Flush the stream if another message of `size_bytes` would be too much. Return False if the message has to
        wait."""
        if stream.size_bytes + PER_MESSAGE_BYTES + size_bytes <= stream.limit_bytes:
            return True
        self.refresh(stream)
        if not stream.has_subscribers and not stream.payloads:
            return True
        if stream.payloads:
            return self.flush(stream)
        if self.blocking_stream(stream, size_bytes) is None:
            return True
        stream.limit_bytes = -1  # So that this is called again for the next message.
        return False

    def blocking_stream(self, stream: TopicStream, size_bytes: int) -> TopicStream | None:
        """Return the stream that has to go on before this one takes another message; None if none has to.

        That is this stream itself if it is blocked; or else, if its blocker has no room for the message, the
        last stream that waits for that one. Otherwise a message of each of ever new topics could wait there.
        """
        if stream.blocked:
            return stream
        size = HEADER_BYTES + len(stream.encoded_topic) + PER_MESSAGE_BYTES + size_bytes
        blocker = self._find_blocker(stream, size)
        waiting = self._blocked.get(blocker) if blocker is not None else None
        return waiting[-1] if waiting else None

    def append(self, stream: TopicStream, payload: bytes, headers: bytes | None) -> bool:
        """Add one message, after `make_room`. Return True if it is the first since the last flush."""
        if not stream.has_subscribers and not stream.payloads:
            self._nobody += 1
            return False
        if headers is not None and stream.headers is None:
            stream.headers = [b""] * len(stream.payloads)
        if stream.headers is not None:
            stream.headers.append(headers or b"")
        size = len(payload) + PER_MESSAGE_BYTES + (len(headers) if headers else 0)
        return self._extend(stream, (payload,), size)

    def extend(
        self, stream: TopicStream, payloads: Sequence[bytes], size_bytes: int,
        headers: Sequence[bytes] | None,
    ) -> bool:  # fmt: skip
        """Add messages for which there is room, `size_bytes` in all. Return as `append` does."""
        if headers is not None:
            if stream.headers is None:
                stream.headers = [b""] * len(stream.payloads)
            stream.headers += headers
        elif stream.headers is not None:
            stream.headers += [b""] * len(payloads)
        return self._extend(stream, payloads, size_bytes)

    def _extend(self, stream: TopicStream, payloads: Sequence[bytes], size_bytes: int) -> bool:
        stream.payloads += payloads
        stream.size_bytes += size_bytes
        if stream.dirty:
            return False
        self.mark_dirty(stream)
        return True

    def mark_dirty(self, stream: TopicStream) -> None:
        """Note that the stream has its first message since the last flush, so that the next one includes it.

        The more topics gather, the less each of them may. If each of a thousand gathered a frame's worth,
        nothing would leave, and no other task run, before there was a quarter of a gigabyte.
        """
        stream.dirty = True
        self.dirty.append(stream)
        share = self._gathered_bytes_max // len(self.dirty)
        if stream.limit_bytes > share:
            stream.limit_bytes = share
        self._dirty_bytes += stream.size_bytes
        self.flush_due = self._dirty_bytes >= self._gathered_bytes_max

    def flush_gathered(self) -> None:
        """Flush all streams in which messages have gathered, as far as they are not blocked."""
        dirty, self.dirty = self.dirty, []
        self._dirty_bytes, self.flush_due = 0, False
        for stream in dirty:
            stream.dirty = False
            self.flush(stream)

    def flush(self, stream: TopicStream) -> bool:
        """Pack what has gathered, and queue it for all who want it. Return False if the stream is blocked."""
        self._match(stream)
        payloads = stream.payloads
        if not payloads or not stream.has_subscribers:
            self._nobody += len(payloads)
            stream.payloads, stream.headers, stream.size_bytes = [], None, 0
            self._unblock(stream)
            self._set_limit(stream)
            return True
        size = HEADER_BYTES + len(stream.encoded_topic) + stream.size_bytes
        blocker = self._find_blocker(stream, size)
        if blocker is not None:
            if not stream.blocked:
                stream.blocked = True
                stream.limit_bytes = -1
                del self._evictable[stream]
                self._blocked.setdefault(blocker, deque()).append(stream)
            return False
        self._unblock(stream)
        self._send(stream, payloads)
        self._set_limit(stream)
        return True

    def _unblock(self, stream: TopicStream) -> None:
        if stream.blocked:
            stream.blocked = False
            self._evictable[stream] = None

    def _find_blocker(self, stream: TopicStream, size: int) -> Blocker | None:
        """Return one that has no room for `size` bytes of the stream now; None if all have."""
        for inbox in stream.inboxes:
            if not inbox.has_room(size):
                return inbox
        if not stream.block_subscriptions:
            return None
        for link, policy in stream.links.items():
            if policy == BLOCK and link.outbox.room_bytes < size and link.outbox:
                return link
        for subscription in stream.block_subscriptions:
            if not subscription.has_room(size):
                return subscription
        return None

    def _send(self, stream: TopicStream, payloads: list[bytes]) -> None:
        pieces, size = batch_pieces(
            self._me, stream.epoch, stream.sequence, self._wall_us(), stream.encoded_topic, payloads,
            message_headers=stream.headers,
        )  # fmt: skip
        count, first = len(payloads), stream.sequence
        stream.sequence += count
        stream.payloads, stream.headers, stream.size_bytes = [], None, 0
        self.published += count
        self.batches += 1
        self._evictable.move_to_end(stream)
        self._batch_id += 1
        for subscription in stream.block_subscriptions:
            if _within_limits(subscription.link, size, payloads):
                subscription.credit_bytes -= size
        for link, policy in stream.links.items():
            if _within_limits(link, size, payloads):
                self._push(link, policy, stream, pieces, size, first, count)
            else:
                self.losses.add(link, stream, first, count)
        if stream.inboxes:
            batch = Batch(b"".join(pieces))
            for inbox in stream.inboxes:
                inbox.push(batch, None)

    def _push(
        self, link: Link, policy: str, stream: TopicStream, pieces: list[bytes], size: int,
        first: int, count: int,
    ) -> None:  # fmt: skip
        outbox = link.outbox
        while outbox.room_bytes < size and policy != BLOCK and outbox:  # Empty, it takes any size.
            dropped = outbox.drop_oldest(TOPICS) if policy == DROP_OLDEST else None
            if dropped is None:
                # The new batch is dropped: the policy keeps older ones, or other flows fill the outbox.
                self.losses.add(link, stream, first, count)
                return
            self.losses.add(link, *dropped.label)
        label, protected = (stream, first, count), policy != DROP_OLDEST
        if size <= link.limits.frame_bytes_max - FRAME_BYTES - RECORD_BYTES:
            outbox.push_whole(
                TOPICS, Kind.BATCH, self._batch_id, pieces, size, label=label, protected=protected
            )
        else:  # One message larger than a frame, or a peer with smaller frames than ours.
            whole = b"".join(pieces)
            outbox.push(TOPICS, Kind.BATCH, self._batch_id, whole, label=label, protected=protected)
        self._request_flush(link)

    def drain(self) -> None:
        """Publish nothing more; what was published still leaves. With a negative limit no stream takes a message
        without asking, and so each publish gets to `check_open`."""
        self._draining = True
        for stream in self.streams.values():
            stream.limit_bytes = -1

    def close(self) -> None:
        """Publish nothing more, and discard what has not left."""
        self.drain()
        self.streams.clear()
        self._evictable.clear()

    @property
    def waiting(self) -> bool:
        """Whether messages have been published that are in no outbox yet."""
        return bool(self.dirty) or any(
            stream.payloads for waiting in self._blocked.values() for stream in waiting
        )

    def blocker_freed(self, blocker: Blocker) -> None:
        """Note that a blocker has room again, or is gone."""
        if blocker in self._blocked:
            self.freed_blockers[blocker] = None

    def retry_blocked(self) -> list[TopicStream]:
        """Flush the streams that wait for freed blockers; return those that may go on, or wait for other blockers."""
        unblocked: list[TopicStream] = []
        freed, self.freed_blockers = self.freed_blockers, {}
        for blocker in freed:
            waiting = self._blocked.pop(blocker, deque())
            while waiting:
                stream = waiting.popleft()
                self._unblock(stream)
                if not self.flush(stream) and blocker in self._blocked:
                    # It waits for the same blocker again, and so do all behind it.
                    waiting.extendleft(self._blocked[blocker])
                    self._blocked[blocker] = waiting
                    break
                unblocked.append(stream)
        return unblocked

    def forget(self, link: Link) -> None:
        """Forget a link that has ended, and the losses that were to be reported to it."""
        self.losses.forget(link)
        self.blocker_freed(link)

    def statistics(self) -> PublisherStatistics:
        return PublisherStatistics(
            self.published, self.batches, self._nobody, self.losses.count, len(self.streams)
        )


def _within_limits(link: Link, size: int, payloads: Sequence[bytes]) -> bool:
    """Return whether a batch of `size` bytes, and each message in it, is within the peer's limits."""
    most = link.payload_bytes_max
    return size <= most or (
        size <= link.limits.record_bytes_max and max(map(len, payloads)) <= most
    )
