"""Every error of the durable tier, in one tree.

DurableError (MeshError)
├── InvalidDefinition         (ValueError) a field of what was to be declared is wrong
├── DefinitionConflict        it exists, and is not what was asked; says what differs
├── Unknown                   abstract: nothing of this name; `nearest` is one that exists
│   ├── UnknownExchange
│   ├── UnknownQueue
│   ├── UnknownStream
│   └── UnknownVhost
├── BuiltIn                   built-in exchanges cannot be deleted or changed
├── QueueInUse                an exclusive consumer has the queue, or wants it while others do
├── ExclusiveQueue            it belongs to another connection
├── TooManyQueues             the vhost has as many queues and streams as it may have
├── InUse                     it is used and was to be deleted only if unused or empty
├── InternalExchange          only exchanges may publish to it
├── AccessRefused             the caller's cluster lacks a permission
├── Malformed                 the other end sent what is no part of the protocol; its tunnel ends
├── PublishError              abstract: why a message was not stored
│   ├── Unroutable            mandatory, and no queue wants it
│   ├── QueueFull             a queue that refuses when full has no room
│   ├── RecordTooLarge        more than a segment of the log takes
│   ├── PublisherFenced       a later epoch of the same publisher has taken over
│   ├── SequenceLost          sent again so late that nobody knows if it was stored
│   └── Unconfirmed           unknown: the connection ended, or the deadline passed, before the answer
├── BrokerLost                the connection to the broker is gone, and with it what belonged to it
├── ConsumerCancelled         the broker ended this consumer: its queue is gone, or somebody took over
├── BrokerError               an error that only a later release knows
└── StoreError                abstract: of one store, a directory
    ├── StoreInUse            another broker has the directory open
    ├── ForeignStore          the directory holds something else than one store of ours
    ├── NewerFormat           written by a later version; this one must not touch it
    ├── StoreFull             no space for more; resumes by itself when there is
    ├── StoreBusy             not now: wait for room, then again
    ├── StoreFailed           the disk failed; nothing more is confirmed until a restart
    ├── StoreClosed           this store has been closed
    ├── NotInLog              no such log position: freed, in a gap, or not yet durable
    └── RecordDamaged         bytes that ought to be a record are none
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

from mesh.errors import MeshError

SHOWN_MAX = 100
"""Characters of a wrong value that an error shows."""
COMPARED_MAX = 10_000
"""Characters an error compares for its hint: a client that misspells must not cost the broker much."""


class DurableError(MeshError):
    """Root of all errors of the durable tier."""


class InvalidDefinition(DurableError, ValueError):
    """`field` of a `kind` (queue, exchange, ...) is `value`; the text says what is `allowed`.

    `where` is the entry of an import, as `queues[3]`.
    """

    def __init__(self, kind: str, field: str, value: object, allowed: str, where: str = "") -> None:
        super().__init__(f"{where or kind}: {field} is {shown(value)}: want {allowed}")
        self.kind, self.field, self.value, self.allowed = kind, field, value, allowed
        self.where = where

    def at(self, where: str) -> InvalidDefinition:
        return InvalidDefinition(self.kind, self.field, self.value, self.allowed, where)


class DefinitionConflict(DurableError):
    """The `kind` called `name` exists; `differences` tell what was asked otherwise."""

    def __init__(self, kind: str, name: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"{kind} {name!r} exists with other settings ({'; '.join(differences)}): "
            "declare it as it is, or delete it first"
        )
        self.kind, self.name, self.differences = kind, name, tuple(differences)


class Unknown(DurableError):
    """Abstract: there is no `kind` called `name`; `nearest` exists, or is empty."""

    kind = ""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name, self.nearest = name, nearest(name, known)
        hint = f"did you mean {self.nearest!r}?" if self.nearest else "declare it first"
        super().__init__(f"no {self.kind} {shown(name)}: {hint}")


class UnknownExchange(Unknown):
    """There is no exchange called `name`."""

    kind = "exchange"


class UnknownQueue(Unknown):
    """There is no queue called `name`."""

    kind = "queue"


class UnknownStream(Unknown):
    """There is no stream called `name`."""

    kind = "stream"


class UnknownVhost(Unknown):
    """There is no vhost called `name`."""

    kind = "vhost"


class BuiltIn(DurableError):
    """The exchange `name` is built in: `what` cannot be done to it."""

    def __init__(self, name: str, what: str) -> None:
        called = f"exchange {name!r}" if name else "the default exchange"
        super().__init__(f"{called} is built in: {what}; declare an exchange of your own")
        self.name, self.what = name, what


class ExclusiveQueue(DurableError):
    """`queue` belongs to another connection, and ends with that."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} is exclusive to another connection: use another name")
        self.queue = queue


class TooManyQueues(DurableError):
    """The vhost has `limit` queues and streams, its `queues_max`."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"there are {limit} queues and streams already: delete some, or raise queues_max"
        )
        self.limit = limit


class InUse(DurableError):
    """The `kind` called `name` was to be deleted if unused, and is used: `how`."""

    def __init__(self, kind: str, name: str, how: str) -> None:
        super().__init__(
            f"{kind} {name!r} is in use ({how}): end that first, or delete without if_unused"
        )
        self.kind, self.name, self.how = kind, name, how


class InternalExchange(DurableError):
    """Clients may not publish to the exchange `name`; bind it to one they may publish to."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"exchange {name!r} is internal: publish to an exchange that is bound to it"
        )
        self.name = name


class AccessRefused(DurableError):
    """`cluster` lacks the permission `what` (configure, write, read) for the `kind` called `name`."""

    def __init__(self, cluster: str, what: str, kind: str, name: str) -> None:
        super().__init__(
            f"cluster {cluster!r} may not {what} {kind} {shown(name)}: "
            f"give it a {what} permission that matches this name"
        )
        self.cluster, self.what, self.kind, self.name = cluster, what, kind, name


class QueueInUse(DurableError):
    """`consumer` may not have `queue`, of `consumers` consumers: one of the two is exclusive."""

    def __init__(self, queue: str, consumer: str, consumers: int, exclusive: bool) -> None:
        why = "an exclusive consumer has it" if exclusive else "it would have to be the only one"
        super().__init__(
            f"consumer {consumer!r} cannot have queue {queue!r}, of {consumers} consumers: {why}"
        )
        self.queue, self.consumer, self.consumers = queue, consumer, consumers


class StoreError(DurableError):
    """Abstract: something about one store."""


class StoreInUse(StoreError):
    """Another process, or this one, has `path` open. Stop that broker, or use another directory."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is open in another broker: stop that one or use another directory"
        )
        self.path = path


class ForeignStore(StoreError):
    """`path` is not one store of ours. Nothing in it was touched."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} is not a store of ours: {what}; use an empty directory")
        self.path, self.what = path, what


class NewerFormat(StoreError):
    """`what` has format `version`, we know up to `known`. Nothing was touched; use a later release."""

    def __init__(self, what: str, version: int, known: int) -> None:
        super().__init__(
            f"{what} has format version {version}, this release knows up to {known}: "
            "use the release that wrote it"
        )
        self.what, self.version, self.known = what, version, known


class StoreFull(StoreError):
    """No room for `needed_bytes`: the next segment of `segment_bytes` cannot be made.

    Nothing was stored. `free_bytes` is what the file system had left. Acks are still taken from the
    reserve; publishes work again by themselves when there is space.
    """

    def __init__(self, needed_bytes: int, segment_bytes: int, free_bytes: int) -> None:
        super().__init__(
            f"disk full: no room for {needed_bytes} bytes; a segment needs {segment_bytes} bytes, "
            f"{free_bytes} are free: free some space or consume, then send again"
        )
        self.needed_bytes, self.segment_bytes = needed_bytes, segment_bytes
        self.free_bytes = free_bytes


class StoreBusy(StoreError):
    """Nothing was stored: `reason`. Wait for room and append again."""

    def __init__(self, needed_bytes: int, reason: str) -> None:
        super().__init__(f"not now, {needed_bytes} bytes have to wait: {reason}")
        self.needed_bytes, self.reason = needed_bytes, reason


class StoreFailed(StoreError):
    """The disk failed: `reason`. What was not confirmed before is unknown, and stays so.

    A failed fdatasync is not tried again: the kernel may have dropped what it could not write, and
    say yes the second time. Check the disk, then restart the broker; it recovers what is there.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the store has stopped: {reason}: check the disk, then restart the broker"
        )
        self.reason = reason


class StoreClosed(StoreError):
    """The store has been closed; what was not durable by then is unknown."""


class NotInLog(StoreError):
    """No record at log position `position`; those there are lie in [`start`, `end`)."""

    def __init__(self, position: int, start: int, end: int) -> None:
        super().__init__(
            f"no record at log position {position} (freed, in a gap, or not durable yet); "
            f"the log holds [{start}, {end})"
        )
        self.position, self.start, self.end = position, start, end


class RecordDamaged(StoreError):
    """The `what` at log position `position` has a wrong checksum or impossible lengths."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(
            f"damaged {what} at log position {position}: `mesh-broker verify` tells more"
        )
        self.what, self.position = what, position


class Malformed(DurableError):
    """What came from the other end cannot be: `what`."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the other end does not speak our protocol: {what}")
        self.what = what


class PublishError(DurableError):
    """Abstract: a message was not stored, or nobody can say whether it was."""


class Unroutable(PublishError):
    """Mandatory, and no queue is bound to `exchange` for `key`. Not stored."""

    def __init__(self, exchange: str, key: str) -> None:
        super().__init__(
            f"exchange {exchange!r} routes {key!r} to no queue: bind one, or publish without mandatory"
        )
        self.exchange, self.key = exchange, key


class QueueFull(PublishError):
    """`queue` refuses publishes when full, and is. Not stored anywhere; try again later."""

    def __init__(self, queue: str, max_length: int | None, max_length_bytes: int | None) -> None:
        limits = [
            f"{limit} {unit}"
            for limit, unit in ((max_length, "messages"), (max_length_bytes, "bytes"))
            if limit is not None
        ]
        super().__init__(
            f"queue {queue!r} is full ({' or '.join(limits)}): consume, then send again"
        )
        self.queue, self.max_length, self.max_length_bytes = queue, max_length, max_length_bytes


class RecordTooLarge(PublishError):
    """`size_bytes` were to be stored at once, a segment takes `limit_bytes`. Not stored."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{size_bytes} bytes at once are more than a segment of the broker's log takes "
            f"({limit_bytes}): send less at a time, or give the broker larger segments"
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class PublisherFenced(PublishError):
    """Publisher `publisher` has been seen with epoch `latest`: this one, `epoch`, was replaced."""

    def __init__(self, publisher: str, epoch: int, latest: int) -> None:
        super().__init__(
            f"publisher {publisher} of epoch {epoch} has been replaced by epoch {latest}: stop this one"
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
    """Unknown: `count` messages were sent and not answered: `reason`. Sending again may double them."""

    def __init__(self, count: int, reason: str) -> None:
        super().__init__(f"unknown whether {count} messages were stored: {reason}")
        self.count, self.reason = count, reason


class BrokerLost(DurableError):
    """No connection to cluster `cluster`: `reason`. It is tried again; what waits may be called again."""

    def __init__(self, cluster: str, reason: str) -> None:
        super().__init__(f"no connection to the broker {cluster!r}: {reason}")
        self.cluster, self.reason = cluster, reason


class ConsumerCancelled(DurableError):
    """The broker ended the consumer of `queue`: `reason`. What was not settled is delivered again."""

    def __init__(self, queue: str, reason: str) -> None:
        super().__init__(f"the consumer of {queue!r} was ended: {reason}")
        self.queue, self.reason = queue, reason


class BrokerError(DurableError):
    """The broker refused with `code`, which this release does not know. `details`: its numbers."""

    def __init__(self, code: str, details: dict[str, object]) -> None:
        super().__init__(f"the broker refused: {code} {details}")
        self.code, self.details = code, details


def shown(value: Any) -> str:
    """A value as an error shows it: short enough for a line of a log."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of `known` that was probably meant; empty when none is near."""
    alike = (one for one in known if abs(len(one) - len(name)) <= 3)
    return next(
        iter(get_close_matches(name, islice(alike, COMPARED_MAX // (len(name) + 1)), n=1)), ""
    )
