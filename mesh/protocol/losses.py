"""Messages that the publisher dropped for a link, until they are reported to its peer.

A peer sees gaps in streams that it knows without a report; it gets one for streams of which it has not
received anything yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .batch import encode_lost
from .frame import Kind
from .latest import Latest
from .link import Link
from .outbox import TOPICS

STREAMS_MAX = 1000
"""Most streams with losses of which one link is yet to be told; the oldest are forgotten."""


class Stream(Protocol):
    """What this module uses of a topic's stream."""

    epoch: int
    encoded_topic: bytes


@dataclass(slots=True)
class Loss:
    """Messages of a stream, from `first` on, that were dropped for one link and not reported yet."""

    first: int
    count: int = 0


class Losses:
    """Losses of one publisher that are not reported yet, by link."""

    __slots__ = ("_me", "_wall_us", "by_link", "count")

    def __init__(self, me: bytes, wall_us: Callable[[], int]) -> None:
        self._me, self._wall_us = me, wall_us
        self.by_link: dict[Link, Latest[Stream, Loss]] = {}
        self.count = 0
        """All messages dropped so far, reported or not."""

    def add(self, link: Link, stream: Stream, first: int, count: int) -> None:
        self.count += count
        losses = self.by_link.get(link)
        if losses is None:
            losses = self.by_link[link] = Latest(STREAMS_MAX)
        loss = losses.get(stream)
        if loss is None:
            loss = losses[stream] = Loss(first)
        loss.first = min(loss.first, first)
        loss.count += count

    def report(self, link: Link) -> None:
        """Report what was dropped for a link that takes messages again, in front of all queued messages."""
        losses: dict[Stream, Loss] = self.by_link.pop(link, {})
        # Latest epoch first, as each is pushed in front of those before: a topic's epochs must arrive in order.
        for stream in sorted(losses, key=lambda one: one.epoch, reverse=True):
            loss = losses[stream]
            body = encode_lost(
                self._me, stream.epoch, loss.first, self._wall_us(), stream.encoded_topic,
                loss.count,
            )  # fmt: skip
            link.outbox.push_first(TOPICS, Kind.BATCH, 0, body)

    def forget(self, link: Link) -> None:
        self.by_link.pop(link, None)
