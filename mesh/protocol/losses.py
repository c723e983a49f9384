"""Messages that the publisher dropped for a link, until the link is told.

A gap in a stream that it knows it sees without being told; this is for streams of which it has seen
nothing yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .batch import encode_lost
from .frame import Kind
from .link import Link
from .outbox import TOPICS

STREAMS_MAX = 1000
"""Of which one link is yet to be told; the oldest are forgotten."""


class Stream(Protocol):
    """What has to be known of a topic's stream."""

    epoch: int
    raw: bytes


@dataclass(slots=True)
class Loss:
    """Messages of a stream dropped for one link, from `first` on, that it has not been told of."""

    first: int
    count: int = 0


class Losses:
    """Those of one publisher."""

    __slots__ = ("_me", "_wall_us", "count", "of")

    def __init__(self, me: bytes, wall_us: Callable[[], int]) -> None:
        self._me, self._wall_us = me, wall_us
        self.of: dict[Link, OrderedDict[Stream, Loss]] = {}
        self.count = 0
        """Messages dropped in all, told or not."""

    def add(self, link: Link, stream: Stream, first: int, count: int) -> None:
        self.count += count
        losses = self.of.setdefault(link, OrderedDict())
        loss = losses.setdefault(stream, Loss(first))
        loss.first = min(loss.first, first)
        loss.count += count
        if len(losses) > STREAMS_MAX:
            losses.popitem(last=False)

    def tell(self, link: Link) -> None:
        """Say what was dropped for a link that takes messages again, before any of them."""
        losses = self.of.pop(link, OrderedDict())
        # Each goes before those pushed already: a topic's epochs have to arrive in their order.
        for stream in sorted(losses, key=lambda one: one.epoch, reverse=True):
            loss = losses[stream]
            body = encode_lost(
                self._me, stream.epoch, loss.first, self._wall_us(), stream.raw, loss.count
            )
            link.outbox.push_first(TOPICS, Kind.BATCH, 0, body)

    def forget(self, link: Link) -> None:
        self.of.pop(link, None)
