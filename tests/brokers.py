"""Brokers and their clients in one process, over real sockets on loopback and a real directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

import durable
import mesh
from durable.client.connection import Connection
from durable.client.deliveries import Deliveries
from durable.client.delivery import Delivery
from durable.client.records import Records
from tests.loopback import ANY_PORT, HOST
from tests.nodes import node
from tests.processes import SECRET
from tests.waiting import PATIENCE_S, until

SMALL = durable.BrokerConfig(
    log=durable.LogConfig(segment_bytes=1 << 20, reserve_bytes=1 << 16, free_bytes_min=0),
    recent_bytes=1 << 14,
)
"""Segments that are made quickly, and so little cached that bodies are also read from the disk."""

QUIET = replace(SMALL, idle_s=60)
"""For tests that count records: no checkpoint in between, which normally comes after a second."""

PROMPT = replace(SMALL, idle_s=0.05)
"""For tests that set the clock forward: expired messages are removed soon."""


@asynccontextmanager
async def serving(
    path: Path, *, config: durable.BrokerConfig = SMALL, **settings: Any
) -> AsyncIterator[durable.Broker]:
    """Run a broker on loopback."""
    defaults: dict[str, Any] = {
        "zeroconf": False, "listen": ANY_PORT, "network_secret": SECRET, "seeds": [], "drain_s": 0.1,
    }  # fmt: skip
    async with durable.serve(path, config=config, **{**defaults, **settings}) as broker:
        yield broker


def node_of(broker: durable.Broker) -> mesh.Node:
    assert broker.node is not None
    return broker.node


@asynccontextmanager
async def client(
    broker: durable.Broker, cluster: str = "shop", **settings: Any
) -> AsyncIterator[Connection]:
    """Connect to the broker from a node of its own."""
    async with node(cluster, node_of(broker), **settings) as joined:
        yield durable.connect(joined, timeout=PATIENCE_S)


@asynccontextmanager
async def shop_at(port: int, **settings: Any) -> AsyncIterator[mesh.Node]:
    async with node("shop", seeds=[f"tcp://{HOST}:{port}"], drain_s=0.1, **settings) as joined:
        yield joined


async def until_told(
    broker: Connection, condition: Callable[[Any], Any], patience_s: float = PATIENCE_S
) -> None:
    """Wait until `condition` holds for the broker's statistics."""

    async def told() -> Any:
        return condition(await broker.statistics())

    await until(told, patience_s)


def pass_time(broker: durable.Broker, seconds: int) -> None:
    """Set the broker's clock forward, so that tests of expiry do not depend on real time."""
    broker.hosted("/").clock._offset_ns += seconds * 10**9


def at(port: int) -> dict[str, Any]:
    return {"listen": f"tcp://{HOST}:{port}"}


async def take(deliveries: Deliveries | Records, count: int) -> list[Delivery]:
    """Return the next `count` messages."""
    with trio.fail_after(PATIENCE_S):
        return [await anext(deliveries) for _ in range(count)]


def payloads(found: Iterable[Delivery]) -> list[bytes]:
    return [one.payload for one in found]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def drain(broker: Connection, queue: str) -> list[bytes]:
    """Take and ack everything that is ready in a queue, and return its payloads."""
    found: list[bytes] = []
    ready = (await broker.statistics())["queues"][queue]["ready"]
    if ready:
        async with broker.consume(queue, prefetch=0) as deliveries:
            for one in await take(deliveries, ready):
                found.append(one.payload)
                await one.ack()
    return found
