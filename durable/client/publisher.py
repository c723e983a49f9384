"""Publishing with confirms: messages with equal key and properties are batched, and numbered when packed.

send ──> gathering ──(the sender's turn)──> part, see sender.py
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import trio

from mesh.message import encode_headers
from mesh.protocol.batch import PER_MESSAGE_BYTES

from ..errors import InvalidDefinition
from ..protocol.calls import greeting_field
from ..protocol.properties import Properties, merge_properties
from .channel import Channel
from .gathering import Gathering, cumulative_sizes
from .message_checks import HEADERS_BYTES_MAX, check_sizes, checked_payloads
from .outbox import Part
from .pending_confirms import PendingConfirms
from .sender import Sender

BATCH_BYTES = 512 * 1024
"""Limit of a batch's messages: so many bytes share one checksum, one header, and one record in the log."""
ALTERNATING_BYTES = 2 * 1024 * 1024


@dataclass(slots=True)
class Given:
    """Messages with one key and equal properties to be handed over; those before `at` have been."""

    exchange: str
    key: str
    payloads: tuple[bytes, ...]
    size_sums: Sequence[int]
    """See `cumulative_sizes`."""
    encoded: bytes
    """The encoded properties; `headers` are the encoded headers."""
    headers: bytes | None
    properties: Properties | None
    at: int = 0


class Publisher(Sender):
    """Publishes messages, numbered by itself, without waiting for each. Made by `Connection.publisher`."""

    used_as = "async with broker.publisher(...) as publisher"

    def __init__(
        self, channel: Channel, name: str | None, epoch: int | None, window_bytes: int
    ) -> None:
        super().__init__(channel, name, epoch, window_bytes)
        self._gathering = Gathering(
            min(BATCH_BYTES, window_bytes), min(ALTERNATING_BYTES, window_bytes)
        )
        self._next_sequence = 0
        """The sequence that the next packed message gets."""

    async def send(
        self, exchange: str, key: str, payload: bytes, *,
        headers: Mapping[str, Any] | None = None, mandatory: bool = False,
        properties: Properties | None = None,
    ) -> None:  # fmt: skip
        """Hand over one message; waits only while the window is full. See `flush`.

        Args:
            mandatory: refuse it with Unroutable if it reaches no queue; otherwise it is confirmed and dropped.
            properties: their exchange is empty or the same; `mandatory` holds if either says so.
        Raises:
            InvalidDefinition: the key or the properties are invalid, or name another exchange.
            TooLarge: the message is larger than the broker takes.
            BrokerLost: there is no room, and the broker is silent for as long as one answer may take.
            Unconfirmed, PublisherFenced, BrokerLost: this publisher has ended.
        """
        if mandatory or properties is not None:
            properties = merge_properties(exchange, mandatory, properties)
        if headers is None and properties is None and type(payload) is bytes:
            group = self._gathering.current
            if group.key != key or group.exchange != exchange:
                group = self._gathering.switch(exchange, key)
            size = group.size_bytes + len(payload) + PER_MESSAGE_BYTES
            if size <= group.limit_bytes:
                group.payloads.append(payload)
                group.size_bytes = size
                return
        encoded, packed = self._encode_checked(
            checked_payloads((payload,)), exchange, key, headers, properties
        )
        if self._gathering.should_yield(key if not exchange and properties is None else None):
            await trio.lowlevel.checkpoint()
            self._gathering.postpone_yield()
        await self._wait_room(self._channel.timeout_s)
        self._add(exchange, key, payload, encoded, packed, properties)
        self._work.wake()

    async def send_many(
        self, exchange: str, key: str, payloads: Sequence[bytes], *,
        headers: Mapping[str, Any] | None = None, mandatory: bool = False,
        properties: Properties | None = None,
    ) -> None:  # fmt: skip
        """Hand over messages as `send` does, batch by batch, which takes less time. See `flush`.

        If one is invalid, none is taken. If this is cancelled, or the publisher ends, while there is no room,
        some are on their way.
        """
        if mandatory or properties is not None:
            properties = merge_properties(exchange, mandatory, properties)
        given = self.given(exchange, key, payloads, headers, properties)
        while given.at < len(given.payloads):
            if self._gathering.should_yield(None):
                await trio.lowlevel.checkpoint()
                self._gathering.postpone_yield()
            await self._wait_room(self._channel.timeout_s)
            self._add_many(given)
            self._work.wake()

    async def publish(
        self, exchange: str, key: str, payloads: Sequence[bytes], *,
        headers: Mapping[str, Any] | None = None, mandatory: bool = False,
        properties: Properties | None = None,
    ) -> None:  # fmt: skip
        """Hand over messages and return when all of them are on disk.

        Args:
            mandatory, properties: as for `send`.
        Raises:
            PublishError: some were refused; this is the first reason, with a note of how many, by kind.
            Unconfirmed: unknown, because the broker is silent for as long as one answer may take.
            BrokerLost: likewise, and the rest was not taken because there is no room.
        """
        if mandatory or properties is not None:
            properties = merge_properties(exchange, mandatory, properties)
        given = self.given(exchange, key, payloads, headers, properties)
        pending = PendingConfirms()
        with self._forget_on_exit(pending):
            await self.hand_over(given, pending, self._channel.timeout_s)
            await self.confirmed(pending)

    def given(
        self, exchange: str, key: str, payloads: Sequence[bytes],
        headers: Mapping[str, Any] | None, properties: Properties | None,
    ) -> Given:  # fmt: skip
        """Prepare what `publish` hands over. Raises what `publish` raises before anything is on its way."""
        each = checked_payloads(payloads)
        encoded, packed = self._encode_checked(each, exchange, key, headers, properties)
        return Given(
            exchange, key, each, cumulative_sizes(each, packed), encoded, packed, properties
        )

    async def hand_over(
        self, given: Given, pending: PendingConfirms, patience_s: float = inf
    ) -> None:
        """As `publish`, without waiting for confirms. If cancelled, `pending` says how many are on their way."""
        while not self.hand_over_nowait(given, pending):
            await self._wait_room(patience_s)

    def hand_over_nowait(self, given: Given, pending: PendingConfirms) -> bool:
        """Take as many as there is room for, and return whether those are all. Messages that others hand over
        before the rest get the next sequences."""
        self._check_usable()
        first, count = self._barrier(), len(given.payloads)
        while given.at < count and not self._is_full():
            self._add_many(given)
        if given.at == count:
            self._send_at_once()
        self._add_waiter(pending, first)
        return given.at == count

    @property
    def stored(self) -> int:
        """How many messages the broker has confirmed as on disk so far."""
        return max(self._outbox.confirmed - self._outbox.refused, 0)

    def _encode_checked(
        self, payloads: tuple[bytes, ...], exchange: str, key: str,
        headers: Mapping[str, Any] | None, properties: Properties | None,
    ) -> tuple[bytes, bytes | None]:  # fmt: skip
        """Return the encoded properties and headers of each message. Raises what `send` raises for messages
        that cannot be sent."""
        encoded = self._properties.encode(exchange, key, properties)
        packed = None if headers is None else encode_headers(headers, HEADERS_BYTES_MAX)
        around_bytes = len(encoded) + len(packed or b"")
        check_sizes(payloads, around_bytes, self._channel.message_bytes_max)
        return encoded, packed

    def _add(
        self, exchange: str, key: str, payload: bytes, encoded: bytes, headers: bytes | None,
        properties: Properties | None,
    ) -> None:  # fmt: skip
        if properties is None:
            self._gathering.add(exchange, key, encoded, payload, headers, to_queue=not exchange)
        else:
            to_queue = not (properties.exchange or properties.cc or properties.bcc)
            self._gathering.add(None, key, encoded, payload, headers, to_queue=to_queue)

    def _add_many(self, given: Given) -> None:
        """Add the next messages: at least one, then as many as one batch takes and the window has room for."""
        payloads, at = given.payloads, given.at
        self._add(
            given.exchange, given.key, payloads[at], given.encoded, given.headers, given.properties
        )
        given.at = self._gathering.extend(payloads, at, given.size_sums, self._room_bytes())

    def _barrier(self) -> int:
        """Return the sequence that the next message gets, which is behind all messages handed over before."""
        return self._next_sequence + self._gathering.barrier()

    def _handle_greeting(self, greeting: Mapping[str, Any]) -> None:
        """Raises InvalidDefinition if this name and epoch have published before: our first messages would get the
        sequences of those, and be dropped as duplicates."""
        if not self._next_sequence and greeting_field(greeting, "next", int):
            later = "a later epoch, as messages have already been sent under this one, or None"
            raise InvalidDefinition("publisher", "epoch", self.epoch, later)

    def _gathered_bytes(self) -> int:
        return self._gathering.size_bytes

    def _close(self) -> None:
        self._gathering.close()

    def _pack(self) -> Part:
        data, count = self._gathering.pack(
            self.id, self.epoch, self._next_sequence, time.time_ns() // 1000, self._part_bytes_max
        )
        part = Part(self._next_sequence, self._next_sequence + count, data)
        self._next_sequence += count
        return part
