"""Why a message was not stored, and why a publisher, a consumer or a connection ended."""

from __future__ import annotations

from collections.abc import Iterable

from .root import DurableError, nearest, shown


class Malformed(DurableError):
    """What came from the other end cannot be: `what`."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the other end does not speak our protocol: {what}")
        self.what = what


class PublishError(DurableError):
    """Abstract: a message was not stored, or nobody can say whether it was."""


class Unroutable(PublishError):
    """Mandatory, and no queue is bound to `exchange` for `key`. Not stored.

    Args:
        known: names of queues, or keys by which the exchange routes, where somebody has asked; a broker
            does not compare for each message.
    """

    def __init__(self, exchange: str, key: str, known: Iterable[str] = ()) -> None:
        near = nearest(key, known)
        if exchange:
            hint = f"did you mean {near!r}, by which something is bound?" if near else "bind one"
            text = f"exchange {exchange!r} routes {shown(key)} to no queue: {hint}"
        else:
            hint = f"did you mean {near!r}?" if near else "declare it first"
            text = f"there is no queue {shown(key)}: {hint}"
        super().__init__(text)
        self.exchange, self.key = exchange, key


class QueueFull(PublishError):
    """`queue` refuses publishes when full, and is. Not stored anywhere; try again later.

    Whoever may do nothing with that queue is told neither its name, which is empty then, nor its limits.
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
            else "a queue of which this cluster is told nothing is full: send again later"
        )
        self.queue, self.max_length, self.max_length_bytes = queue, max_length, max_length_bytes


class MemoryFull(PublishError):
    """Messages of queues in memory take `held_bytes` of the broker's, `limit_bytes` may be taken. Not stored anywhere;
    try again later."""

    def __init__(self, held_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"queues in memory hold {held_bytes} bytes, of {limit_bytes} that they may: consume, then send again"
        )
        self.held_bytes, self.limit_bytes = held_bytes, limit_bytes


class RecordTooLarge(PublishError):
    """`size_bytes` were to be stored at once, a segment takes `limit_bytes`. Not stored."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{size_bytes} bytes at once are more than a segment of the broker's log takes "
            f"({limit_bytes}): send less at a time, or give the broker larger segments"
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class PublisherFenced(PublishError):
    """Publisher `publisher`, a name or an id, has been seen with epoch `latest`: this one, `epoch`, was replaced."""

    def __init__(self, publisher: str, epoch: int, latest: int) -> None:
        later = f"by epoch {latest}" if latest > epoch else "by another connection of it"
        super().__init__(
            f"publisher {publisher} of epoch {epoch} has been replaced {later}: stop this one"
        )
        self.publisher, self.epoch, self.latest = publisher, epoch, latest


class SequenceLost(PublishError):
    """Sequence `sequence` came again, but nothing before `floor` is remembered: maybe stored."""

    def __init__(self, sequence: int, floor: int) -> None:
        super().__init__(
            f"unknown whether sequence {sequence} was stored: it came again, and nothing before "
            f"{floor} is remembered"
        )
        self.sequence, self.floor = sequence, floor


class Unconfirmed(PublishError):
    """Unknown: `count` messages were sent and not answered: `reason`. Sending again may double them.
    `unsent` more are not stored: they never left, as what may be unconfirmed was all under way."""

    def __init__(self, count: int, reason: str, unsent: int = 0) -> None:
        some = [f"unknown whether {count} messages were stored"] if count else []
        some += [f"{unsent} messages were not sent"] if unsent else []
        super().__init__(": ".join([", and ".join(some), reason] if some else [reason]))
        self.count, self.reason, self.unsent = count, reason, unsent


class QueueInUse(DurableError):
    """`consumer` may not have `queue`, of `consumers` consumers: one of the two is exclusive."""

    def __init__(self, queue: str, consumer: str, consumers: int, exclusive: bool) -> None:
        why = "an exclusive consumer has it" if exclusive else "it would have to be the only one"
        super().__init__(
            f"consumer {consumer!r} cannot have queue {queue!r}, of {consumers} consumers: {why}"
        )
        self.queue, self.consumer, self.consumers = queue, consumer, consumers


class ConsumerCancelled(DurableError):
    """The broker ended the consumer of `queue`: `reason`. What was not settled is delivered again."""

    def __init__(self, queue: str, reason: str) -> None:
        super().__init__(f"the consumer of {queue!r} was ended: {reason}")
        self.queue, self.reason = queue, reason


class BrokerLost(DurableError):
    """No connection to cluster `cluster`: `reason`. It is tried again; what waits may be called again.
    Up to `unsettled` messages were settled in vain, as far as is known: they may come again."""

    def __init__(self, cluster: str, reason: str, unsettled: int = 0) -> None:
        again = f": up to {unsettled} messages may come again" if unsettled else ""
        super().__init__(f"no connection to the broker {cluster!r}: {reason}{again}")
        self.cluster, self.reason, self.unsettled = cluster, reason, unsettled


class BrokerError(DurableError):
    """The broker refused with `code`, which this release does not know. `details`: its numbers."""

    def __init__(self, code: str, details: dict[str, object]) -> None:
        super().__init__(f"the broker refused: {code} {details}")
        self.code, self.details = code, details
