"""Deliveries: messages as a consumer or a reader receives them, one by one or in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from mesh.message import NO_HEADERS, decode_headers
from mesh.protocol.batch import Batch
from mesh.times import time_at

from ..definition_checks import check_flags
from ..protocol.parts import ACK, REJECT, RELEASE, REQUEUE, Gap, Slice
from ..protocol.properties import Death, Properties, decode_properties


class Settler(Protocol):
    """Sends settlements of the messages that came through one tunnel."""

    def settle(self, outcome: int, start: int, end: int) -> None: ...


def _nack_outcome(requeue: bool) -> int:
    """Return the outcome of a `nack`. Raises InvalidDefinition if `requeue` is not a bool."""
    check_flags("delivery", requeue=requeue)
    return REQUEUE if requeue else REJECT


class DeliveryBatch:
    """Consecutive messages with one key and the same properties. `payloads[i]` has tag `tag + i`."""

    __slots__ = ("_batch", "_headers", "_payloads", "_settler", "gaps", "redelivered", "tag")

    def __init__(self, found: Slice, settler: Settler, gaps: tuple[Gap, ...] = ()) -> None:
        self._batch: Batch = found.batch
        self._settler = settler
        self._payloads: list[bytes] | None = None
        self._headers: list[Mapping[str, Any]] | None = None
        self.tag = found.tag
        self.redelivered = found.returned
        """How often these messages were returned by a consumer before."""
        self.gaps = gaps
        """What a stream could not capture right before the first message; empty for a queue."""

    def __repr__(self) -> str:
        return f"<DeliveryBatch {self.tag} {self.routing_key!r} {len(self)} messages>"

    def __len__(self) -> int:
        return int(self._batch.count)

    @property
    def end_tag(self) -> int:
        """The tag after that of the last message."""
        return self.tag + len(self)

    def __iter__(self) -> Iterator[Delivery]:
        return (Delivery(self, index, payload) for index, payload in enumerate(self.payloads))

    @property
    def payloads(self) -> list[bytes]:
        if self._payloads is None:
            self._payloads = self._batch.payloads
        return self._payloads

    @property
    def headers(self) -> Sequence[Mapping[str, Any]]:
        """Headers of each message."""
        if self._headers is None:
            column = self._batch.message_headers()
            self._headers = (
                [NO_HEADERS] * len(self)
                if column is None
                else [decode_headers(raw) for raw in column]
            )
        return self._headers

    @property
    def lost(self) -> int:
        """How many messages of a stream are missing right before the first one, see `gaps`."""
        return sum(gap.messages for gap in self.gaps)

    @property
    def routing_key(self) -> str:
        return self._batch.topic

    @property
    def properties(self) -> Properties:
        return decode_properties(self._batch.shared_headers)

    @property
    def exchange(self) -> str:
        return self.properties.exchange

    @property
    def deaths(self) -> tuple[Death, ...]:
        """Queues that dead-lettered these messages: expired, rejected, over the limit, or returned too often."""
        return self.properties.deaths

    @property
    def publisher(self) -> tuple[bytes, int, int]:
        """Id and epoch of the publisher, and the sequence of the first message."""
        return self._batch.publisher, self._batch.epoch, self._batch.base_sequence

    @property
    def published(self) -> datetime:
        """When they were packed, by the publisher's clock; the nearest datetime if it is out of range."""
        return time_at(self._batch.time_us)

    async def ack(self, start: int = 0, end: int | None = None) -> None:
        """Settle messages as processed. This leaves with the next part that is sent to the broker.

        Does nothing after the connection that brought them has ended: the broker delivers them again,
        and the next `Deliveries.synced` raises BrokerLost. The same holds for the other outcomes.

        Args:
            start, end: settle only these, numbered as in a slice of `payloads`; the other outcomes
                take them, too.
        """
        self._settle(ACK, start, end)

    async def nack(self, start: int = 0, end: int | None = None, *, requeue: bool = True) -> None:
        """Settle messages as not processed: delivered again later, in their place; without `requeue` as `reject`.

        Raises InvalidDefinition if `requeue` is not a bool.
        """
        self._settle(_nack_outcome(requeue), start, end)

    async def reject(self, start: int = 0, end: int | None = None) -> None:
        """Settle messages as not processable: they are dead-lettered, or dropped."""
        self._settle(REJECT, start, end)

    async def release(self, start: int = 0, end: int | None = None) -> None:
        """Give messages back untried: ready again, in their place, with `redelivered` unchanged."""
        self._settle(RELEASE, start, end)

    def _settle(self, outcome: int, start: int, end: int | None) -> None:
        some = range(len(self))[start:end]
        self._settler.settle(outcome, self.tag + some.start, self.tag + some.stop)


class Delivery:
    """One message. Its settlements work as those of `DeliveryBatch`."""

    __slots__ = ("_batch", "_index", "payload")

    def __init__(self, batch: DeliveryBatch, index: int, payload: bytes) -> None:
        self._batch, self._index, self.payload = batch, index, payload

    def __repr__(self) -> str:
        return f"<Delivery {self.tag} {self.routing_key!r} {len(self.payload)} bytes>"

    @property
    def tag(self) -> int:
        return self._batch.tag + self._index

    @property
    def end_tag(self) -> int:
        """The tag after this one."""
        return self.tag + 1

    @property
    def headers(self) -> Mapping[str, Any]:
        return self._batch.headers[self._index]

    @property
    def routing_key(self) -> str:
        return self._batch.routing_key

    @property
    def exchange(self) -> str:
        return self._batch.exchange

    @property
    def lost(self) -> int:
        """How many messages of a stream right before this one could not be captured."""
        return 0 if self._index else self._batch.lost

    @property
    def redelivered(self) -> int:
        """How often this message was returned by a consumer before."""
        return self._batch.redelivered

    @property
    def published(self) -> datetime:
        """When the message was packed, by the publisher's clock."""
        return self._batch.published

    @property
    def properties(self) -> Properties:
        return self._batch.properties

    @property
    def deaths(self) -> tuple[Death, ...]:
        return self._batch.deaths

    async def ack(self, *, multiple: bool = False) -> None:
        """Settle the message as processed; with `multiple`, everything delivered before it, too.

        Does nothing after the connection that brought it has ended, see `DeliveryBatch.ack`.
        """
        self._settle(ACK, multiple)

    async def nack(self, *, requeue: bool = True, multiple: bool = False) -> None:
        """Settle the message as not processed: see `DeliveryBatch.nack`, and `ack` for `multiple`."""
        self._settle(_nack_outcome(requeue), multiple)

    async def reject(self) -> None:
        """Settle the message as not processable: it is dead-lettered, or dropped."""
        self._settle(REJECT, False)

    async def release(self, *, multiple: bool = False) -> None:
        """Give the message back untried: ready again, in its place, with `redelivered` unchanged."""
        self._settle(RELEASE, multiple)

    def _settle(self, outcome: int, multiple: bool) -> None:
        self._batch._settler.settle(outcome, 0 if multiple else self.tag, self.tag + 1)
