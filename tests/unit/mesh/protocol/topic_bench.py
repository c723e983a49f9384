"""A test bench for a publisher, with links and inboxes that want its topics."""

from __future__ import annotations

from mesh.protocol.batch import LOST, PER_MESSAGE_BYTES, Batch
from mesh.protocol.frame import Kind
from mesh.protocol.inbox import Inbox
from mesh.protocol.interest import DROP_OLDEST, Interest, RemoteSubscription
from mesh.protocol.link import Link
from mesh.protocol.topics import (
    AnySubscription,
    Blocker,
    Publisher,
    PublisherStatistics,
    TopicStream,
)
from tests.machines import ME, make_link, take_records

BODY = bytes(150)
BATCH_BYTES = 64 + 1 + 4 + len(BODY)
"""Size of a batch of one BODY on a topic of one letter; as a record in an outbox it takes 16 bytes more."""


class Bench:
    """A publisher, and links whose outboxes hold three batches of one BODY each."""

    def __init__(self, topics_max: int = 100, gathered_bytes_max: int = 1 << 20) -> None:
        self.interest: Interest[AnySubscription] = Interest()
        self.to_flush: list[Link] = []
        self.publisher = Publisher(
            ME, self.interest, frame_bytes_max=2048,
            gathered_bytes_max=gathered_bytes_max, topics_max=topics_max, epoch=100,
            wall_us=lambda: 7, request_flush=self.to_flush.append,
        )  # fmt: skip

    def link(self, name: int = 1, outbox_bytes: int = 3 * (BATCH_BYTES + 16)) -> Link:
        return make_link(bytes([name]) * 16, outbox_bytes=outbox_bytes)

    def subscribe(
        self, link: Link, pattern: str, policy: str = DROP_OLDEST, window: int = 1 << 20
    ) -> RemoteSubscription:
        tokens = tuple(pattern.split("."))
        subscription = RemoteSubscription(link, 1, tokens, policy, window, window)
        self.interest.add(tokens, subscription)
        return subscription

    def inbox(self, pattern: str, policy: str = DROP_OLDEST, limit: int = 1 << 20) -> Inbox:
        inbox = Inbox(1, tuple(pattern.split(".")), policy, limit, lambda: None)
        self.interest.add(inbox.pattern, inbox)
        return inbox

    def publish(self, topic: str, *payloads: bytes) -> bool:
        stream = self.publisher.stream(topic)
        stream.payloads += payloads
        stream.size_bytes += sum(map(len, payloads)) + PER_MESSAGE_BYTES * len(payloads)
        return self.publisher.flush(stream)

    def freed(self, blocker: Blocker) -> list[TopicStream]:
        """Report that `blocker` may have room; return the streams that went on."""
        self.publisher.blocker_freed(blocker)
        return self.publisher.retry_blocked()

    def told(self, link: Link) -> list[tuple[str, int, int]]:
        """Return (topic, first, count) of the losses that the link is told of now."""
        count = len(self.publisher.losses.by_link.get(link, ()))
        self.publisher.losses.report(link)
        batches = [Batch(bytes(link.outbox.take(1)[0][1])) for _ in range(count)]  # One at a time.
        assert all(batch.kind == LOST for batch in batches), "they come before all others"
        return [(batch.topic, batch.base_sequence, batch.count) for batch in batches]

    def statistics(self) -> PublisherStatistics:
        return self.publisher.statistics()


def arrive(link: Link) -> list[tuple[str, int, int | list[bytes]]]:
    """Return (topic, first sequence, payloads or count of lost messages) of every batch that is sent."""
    batches = [Batch(body) for kind, _, body in take_records(link) if kind == Kind.BATCH]
    return [(b.topic, b.base_sequence, b.count if b.kind == LOST else b.payloads) for b in batches]
