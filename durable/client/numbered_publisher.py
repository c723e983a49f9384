"""Publishing messages whose sequences the caller chooses, so that a repeated attempt stores each message once.

    given ──> stored before? ──> batches, one per key and properties ──> part, see sender.py

A task that is retried, or a program that is restarted, opens a publisher with the same name and epoch and
sends its messages with the same sequences. The broker's greeting tells which of these are on disk; they are
not sent again. Those that are stored after the greeting are sent, and the broker drops them.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Self

import trio

from mesh.protocol.batch import NUMBERS_END, batch_pieces
from mesh.waker import Bell

from ..errors import BrokerLost, InvalidDefinition, SequenceLost
from ..protocol.calls import greeting_field
from ..protocol.properties import Properties, merge_properties
from .channel import Channel
from .gathering import batch_overhead, fitting
from .message_checks import check_sizes, checked_payloads
from .outbox import Part
from .sender import Sender

DEFAULT_EPOCH = 1
"""Default epoch of numbered publishers. A later epoch starts anew: nothing counts as stored."""


class NumberedPublisher(Sender):
    """Publishes messages whose sequences the caller chooses. Made by `Connection.numbered_publisher`.

    Sequences only grow, and may have gaps. Opening one that is open elsewhere takes over, and the other
    one ends with PublisherFenced: two attempts at a task never mix.
    """

    used_as = "async with broker.numbered_publisher(...) as publisher"

    def __init__(self, channel: Channel, name: str, epoch: int, window_bytes: int) -> None:
        super().__init__(channel, name, epoch, window_bytes)
        self._pending: deque[tuple[int, int, bytes]] = deque()
        self._pending_bytes = 0
        self._given_end = self._taken_end = 0
        """The end of all sequences given, and of those that were taken to be sent."""
        self._known = StoredSequences(0, (), 0)
        self._known_id, self._state_changed = b"", Bell()
        """The id for which `_known` holds; empty until the broker's greeting."""
        self._send_lock = trio.Lock()

    async def __aenter__(self) -> Self:
        """Raises BrokerLost if the broker does not answer in time."""
        await super().__aenter__()
        try:
            await self._wait_known()
        except BaseException:  # Otherwise its task reconnects, and fences off its successors.
            self.stop()
            raise
        return self

    async def _wait_known(self) -> None:
        with self._channel.within(self._channel.timeout_s):
            while not self._known_id:
                self._check_usable()
                await self._state_changed.wait()
        if not self._known_id:
            raise BrokerLost(self._channel.cluster, "the broker does not say what it has stored")

    @property
    def known(self) -> StoredSequences:
        """The sequences that were on the broker's disk when this was opened."""
        return self._known

    async def send(
        self, first: int, exchange: str, key: str, payloads: Sequence[bytes], *,
        headers: Sequence[bytes] | None = None, properties: Properties | None = None,
    ) -> int:  # fmt: skip
        """Hand over messages with sequences from `first` on.

        Waits only while the window is full, or another task hands over its own. If cancelled, some may have
        been taken, and all may be given again.

        Args:
            headers: as packed by `mesh.message.encode_headers`, one for each payload.
        Returns:
            how many of them were already on disk; these are not sent.
        Raises:
            ValueError: `first` has been given before, or is too large.
            InvalidDefinition: `first` is not an integer, or `headers` are not bytes, one for each payload.
            TypeError: `payloads` is not a list of bytes.
            TooLarge: one is larger than the broker takes; none was taken.
            PublishError: a message given before was refused, and with it all messages after it; only
                another attempt may give them again.
            SequenceLost: more than 1000 gaps were left in the sequences after this one, so it is unknown
                whether an earlier attempt sent it or left it out. A later epoch starts anew.
            BrokerLost: there is no room, and the broker is silent for as long as one answer may take.
            Unconfirmed, PublisherFenced, BrokerLost: this publisher has ended.
        """
        try:
            first = index(first)
        except TypeError:
            raise InvalidDefinition("message", "sequence", first, "an integer") from None
        payloads, headers = checked_payloads(payloads), headers and tuple(headers)
        if headers is not None and (
            len(headers) != len(payloads) or not {*map(type, headers)} <= {bytes}
        ):
            allowed = f"bytes, one for each of {len(payloads)} payloads"
            raise InvalidDefinition("message", "headers", headers, allowed)
        if first + len(payloads) > NUMBERS_END:
            raise ValueError(f"sequence {first} is too large, want less than {NUMBERS_END}")
        try:  # Spares a checkpoint if no other task is sending.
            self._send_lock.acquire_nowait()
        except trio.WouldBlock:
            await self._send_lock.acquire()
        try:
            return await self._send_locked(first, exchange, key, payloads, headers, properties)
        finally:
            self._send_lock.release()

    async def _send_locked(
        self, first: int, exchange: str, key: str, payloads: Sequence[bytes],
        headers: Sequence[bytes] | None, properties: Properties | None,
    ) -> int:  # fmt: skip
        if first < self._given_end:
            raise ValueError(f"sequence {first} is too small, want {self._given_end} or more")
        self._check_usable()
        self._raise_refused()
        if properties is not None:
            properties = merge_properties(exchange, False, properties)
        encoded = self._properties.encode(exchange, key, properties)
        around_bytes = len(encoded) + (max(map(len, headers)) if headers else 0)
        check_sizes(payloads, around_bytes, self._channel.message_bytes_max)
        end = first + len(payloads)
        sent = 0
        for low, high in self._known.missing(first, end):
            sent += high - low
            low = max(low, self._taken_end)  # A call that was cancelled may have taken some.
            some = payloads[low - first : high - first]
            some_headers = headers and headers[low - first : high - first]
            at = 0
            while at < len(some):
                if self._is_full():
                    await self._wait_room(self._channel.timeout_s)
                room = self._part_bytes_max - batch_overhead(key, encoded)
                count, _ = fitting(some, some_headers, room, at)
                self._add_batch(low + at, key, encoded, some[at : at + count],
                           some_headers and some_headers[at : at + count])  # fmt: skip
                at += count
        self._given_end = end
        return len(payloads) - sent

    def _add_batch(
        self, first: int, key: str, encoded: bytes, payloads: Sequence[bytes],
        headers: Sequence[bytes] | None,
    ) -> None:  # fmt: skip
        pieces, size = batch_pieces(
            self.id, self.epoch, first, time.time_ns() // 1000, key.encode(), payloads,
            shared_headers=encoded, message_headers=headers,
        )  # fmt: skip
        if first > self._taken_end:
            self._outbox.skip(self._taken_end, first)
        self._taken_end = first + len(payloads)
        self._pending.append((first, self._taken_end, b"".join(pieces)))
        self._pending_bytes += size
        self._work.wake()

    def _gathered_bytes(self) -> int:
        return self._pending_bytes

    def _barrier(self) -> int:
        # Everything taken counts, whatever became of it: no part is kept of what will never be confirmed.
        return self._taken_end

    def _pack(self) -> Part:
        first = self._pending[0][0]
        batches: list[bytes] = []
        size = end = 0
        while self._pending:
            _, after, batch = self._pending[0]
            if batches and size + len(batch) > self._part_bytes_max:
                break
            batches.append(batch)
            size, end = size + len(batch), after
            self._pending.popleft()
        self._pending_bytes -= size
        return Part(first, end, batches[0] if len(batches) == 1 else b"".join(batches))

    def _close(self) -> None:
        self._state_changed.wake()

    def _is_id_in_use(self) -> bool:
        return bool(self._pending or self._outbox)

    def _hello_fields(self) -> dict[str, Any]:
        # `oldest` is 0 although much is confirmed, because another attempt will send the earliest sequences again.
        # `stops`: after one refusal the broker refuses all that follows. That is one hole however long it is, so
        # the broker can tell refused messages from stored ones for as long as it takes.
        return {"oldest": 0, "stops": True}

    def _handle_greeting(self, greeting: Mapping[str, Any]) -> None:
        if self._known_id != self.id:
            holes = greeting_field(greeting, "holes", list)
            decided, floor = (greeting_field(greeting, name, int) for name in ("decided", "floor"))
            self._known = StoredSequences(decided, holes, floor)
            self._known_id = self.id
            self._state_changed.wake()


class StoredSequences:
    """Sequences on disk: all before `decided` except the holes. Holes before `floor` are forgotten; a program
    that flushes now and then knows from that what became of those sequences."""

    def __init__(self, decided: int, holes: Sequence[Sequence[int]], floor: int) -> None:
        self._decided, self.floor = decided, floor
        self._holes = [(low, high) for low, high in holes]

    @property
    def end(self) -> int:
        """The sequence after the last one on disk."""
        if self._holes and self._holes[-1][1] == self._decided:
            return self._holes[-1][0]
        return self._decided

    def missing(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return which of [`first`, `end`) are not on disk, in order. Raises SequenceLost if that is forgotten."""
        if first < self.floor:
            raise SequenceLost(first, self.floor)
        found: list[tuple[int, int]] = []
        at = bisect_right(self._holes, (first, first))
        for low, high in self._holes[max(0, at - 1) :]:
            if low >= end:
                break
            if high > first:
                found.append((max(low, first), min(high, end)))
        tail_start = max(first, self._decided)
        if found and found[-1][1] == tail_start:
            tail_start = found.pop()[0]
        if tail_start < end:
            found.append((tail_start, end))
        return found
