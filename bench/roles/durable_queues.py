"""Declares many queues, with OUTSTANDING calls at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    import durable

OUTSTANDING = 500


async def declare_all(broker: durable.Connection, queues: Sequence[str]) -> None:
    names = iter(queues)
    async with trio.open_nursery() as nursery:
        for _ in range(min(OUTSTANDING, len(queues))):
            nursery.start_soon(declare, broker, names)


async def declare(broker: durable.Connection, names: Iterator[str]) -> None:
    """Declare one queue after the other; each is on disk before the next name is taken."""
    for name in names:
        await broker.declare_queue(name)
