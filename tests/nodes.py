"""Nodes in one process, over real sockets on loopback, for tests of what they do together."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import mesh
from tests.loopback import ANY_PORT, HOST
from tests.processes import SECRET
from tests.waiting import PATIENCE_S, until

PORTS = range(10_000, 20_000, 10)
"""Below Linux's range of ephemeral ports (32768 and up), and below the bench's."""
TRIES = 100


@asynccontextmanager
async def node(clusters: Any, *seeds: mesh.Node, **settings: Any) -> AsyncIterator[mesh.Node]:
    """Join a node on loopback that knows `seeds` and no other nodes."""
    defaults: dict[str, Any] = {
        "zeroconf": False, "listen": ANY_PORT,
        "seeds": [one.endpoints[0] for one in seeds],
    }  # fmt: skip
    if "keys_dir" not in settings and "keyring" not in settings:
        defaults["network_secret"] = SECRET
    async with mesh.join(clusters, **{**defaults, **settings}) as joined:
        yield joined


async def linked(one: mesh.Node, *others: mesh.Node, patience_s: float = PATIENCE_S) -> None:
    """Wait until `one` and each of the others know each other as members.

    Both views are checked, as one end of a link is up a network delay before the other.
    """

    def knows(one: mesh.Node, other: mesh.Node) -> bool:
        return other.id in {member.node for member in one.members(other.config.clusters[0])}

    await until(
        lambda: all(knows(one, other) and knows(other, one) for other in others), patience_s
    )


async def subscribed(publisher: mesh.Node, topic: str, count: int = 1) -> None:
    """Wait until the publisher knows of `count` subscriptions to `topic`."""
    interest = publisher._core.patterns.interest
    await until(lambda: len(interest.match(topic)) == count)


def free_ports(count: int) -> int:
    """Return the first of `count` adjacent free ports on loopback, none of which is an ephemeral port."""
    for first in random.SystemRandom().sample(PORTS, TRIES):
        try:
            with ExitStack() as stack:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server((HOST, port)))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def through_proxy(first: int) -> dict[str, str]:
    """Return the settings of a node at this port and the next, with its proxies four ports above."""
    return {
        "listen": f"tcp://{HOST}:{first}-{first + 1}",
        "advertise": f"tcp://{HOST}:{first + 4}-{first + 5}",
    }
