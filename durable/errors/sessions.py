"""Errors of publishing, and of publishers, consumers and connections that ended."""

from __future__ import annotations

from collections.abc import Iterable

from .root import DurableError, nearest, shown


class Malformed(DurableError):
    """The other end sent something that violates the protocol: `what`."""

    def __init__(self, what: str) -> None:
        super().__init__(f"protocol violation by the other end: {what}")
        self.what = what


class PublishError(DurableError):
    """Abstract: a message was not stored, or it is unknown whether it was."""


class Unroutable(PublishError):
    """The message is mandatory, and `exchange` routes `key` to no queue. Not stored.

    Args:
        known: names of queues, or keys by which the exchange routes, for a hint in the text. Empty at the broker:
            it does not compare names for each message.
    """

    def __init__(self, exchange: str, key: str, known: Iterable[str] = ()) -> None:
        near = nearest(key, known)
        if exchange:
            hint = f"did you mean {near!r}, which has a binding?" if near else "bind a queue"
            text = f"exchange {exchange!r} routes {shown(key)} to no queue: {hint}"
        else:
            hint = f"did you mean {near!r}?" if near else "declare it first"
            text = f"there is no queue {shown(key)}: {hint}"
        super().__init__(text)
        self.exchange, self.key = exchange, key


class QueueFull(PublishError):
    """`queue` has reached its limits and refuses messages when full. Stored in no queue; try again later.

    If the publisher's cluster has no permission for that queue, its name is empty and the text does not
    tell its limits.
    """

    def __init__(self, queue: str, max_length: int | None, max_length_bytes: int | None) -> None:
        limits = [
            f"{limit} {unit}"
            for limit, unit in ((max_length, "messages"), (max_length_bytes, "bytes"))
            if limit is not None
        ]
        super().__init__(
            f"queue {queue!r} is full ({' or '.join(limits)}): consume, then send again"
            if queue
            else "a queue that this cluster may not see is full: send again later"
        )
        self.queue, self.max_length, self.max_length_bytes = queue, max_length, max_length_bytes


class MemoryFull(PublishError):
    """Messages in memory queues take `held_bytes` of the broker's memory; the limit is `limit_bytes`. Stored
    in no queue; try again later."""

    def __init__(self, held_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"queues in memory hold {held_bytes} bytes, the limit is {limit_bytes}: consume, then send again"
        )
        self.held_bytes, self.limit_bytes = held_bytes, limit_bytes


class RecordTooLarge(PublishError):
    """`size_bytes` were to be stored as one record, but a segment holds at most `limit_bytes`. Not stored."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{size_bytes} bytes at once are more than a segment of the broker's log can hold "
            f"({limit_bytes}): send less at a time, or give the broker larger segments"
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class PublisherFenced(PublishError):
    """Publisher `publisher` (a name or an id) of epoch `epoch` was replaced; the latest epoch seen is
    `latest`."""

    def __init__(self, publisher: str, epoch: int, latest: int) -> None:
        later = (
            f"by epoch {latest}" if latest > epoch else "by another connection of this publisher"
        )
        super().__init__(
            f"publisher {publisher} of epoch {epoch} has been replaced {later}: stop this one"
        )
        self.publisher, self.epoch, self.latest = publisher, epoch, latest


class SequenceLost(PublishError):
    """Sequence `sequence` was sent again, but the broker remembers nothing before `floor`: it may be stored."""

    def __init__(self, sequence: int, floor: int) -> None:
        super().__init__(
            f"unknown whether sequence {sequence} was stored: it was sent again, but nothing before "
            f"{floor} is remembered"
        )
        self.sequence, self.floor = sequence, floor


class Unconfirmed(PublishError):
    """`count` messages were sent and got no answer, because of `reason`: they may be stored, and sending them
    again may duplicate them. `unsent` more were not sent, because the most that may be unconfirmed was
    under way."""

    def __init__(self, count: int, reason: str, unsent: int = 0) -> None:
        some = [f"unknown whether {count} messages were stored"] if count else []
        some += [f"{unsent} messages were not sent"] if unsent else []
        super().__init__(": ".join([", and ".join(some), reason] if some else [reason]))
        self.count, self.reason, self.unsent = count, reason, unsent


class QueueInUse(DurableError):
    """`consumer` cannot consume `queue`, which has `consumers` consumers: it or one of them is exclusive."""

    def __init__(self, queue: str, consumer: str, consumers: int, exclusive: bool) -> None:
        why = "one of them is exclusive" if exclusive else "it asks to be exclusive"
        super().__init__(
            f"consumer {consumer!r} cannot consume queue {queue!r}, which has {consumers} consumers: {why}"
        )
        self.queue, self.consumer, self.consumers = queue, consumer, consumers


class ConsumerCancelled(DurableError):
    """The broker ended the consumer of `queue`, because of `reason`. Unsettled messages are delivered again, and so
    may up to `unsettled` settled ones be: their settlements are not known to have arrived."""

    unsettled = 0

    def __init__(self, queue: str, reason: str) -> None:
        super().__init__(f"the broker ended the consumer of {queue!r}: {reason}")
        self.queue, self.reason = queue, reason


class BrokerLost(DurableError):
    """There is no connection to cluster `cluster`, because of `reason`. The client reconnects by itself;
    calls that were waiting may be repeated. Up to `unsettled` settled messages may be delivered again:
    their settlements are not known to have arrived."""

    def __init__(self, cluster: str, reason: str, unsettled: int = 0) -> None:
        again = f": up to {unsettled} messages may be delivered again" if unsettled else ""
        super().__init__(f"no connection to the broker {cluster!r}: {reason}{again}")
        self.cluster, self.reason, self.unsettled = cluster, reason, unsettled


class BrokerError(DurableError):
    """The broker refused with `code`, which this release does not know. `details` has the error's fields."""

    def __init__(self, code: str, details: dict[str, object]) -> None:
        super().__init__(f"the broker refused: {code} {details}")
        self.code, self.details = code, details
