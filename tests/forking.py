"""A program with a node, a broker and a consumer that forks, for tests of the child, and of the parent afterwards.

Called with what the child does and in which block it is forked. Prints a line of JSON: what the child's verbs raised,
its exit status, and what the parent received.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from tempfile import TemporaryDirectory
from typing import Any

import trio

import durable
import mesh
from durable.client.connection import Connection
from durable.client.deliveries import Deliveries
from tests.loopback import ANY_PORT
from tests.processes import SECRET
from tests.waiting import until

ALONE: dict[str, Any] = {
    "zeroconf": False, "network_secret": SECRET, "listen": ANY_PORT
}  # fmt: skip
STATUS, WAITING = 3, 100
GOT = [*(f"{number} waits as it forks" for number in range(WAITING)), "after", "after"]
"""What the parent receives."""


async def raised_by(node: mesh.Node, shop: Connection, deliveries: Deliveries) -> dict[str, str]:
    """Return the name of the error that each verb raised."""

    async def at_once(verb: Callable[[], object]) -> None:
        verb()

    async def subscribe() -> None:
        async with node.subscribe("u"):
            pass

    async def open_tunnel() -> None:
        async with node.open_tunnel("broker"):
            pass

    async def send() -> None:
        async with shop.publisher("till") as till:
            await till.send("", "jobs", b"child")

    verbs: dict[str, Callable[[], Awaitable[object]]] = {
        "publish": lambda: node.publish("t", b"child"),
        "publish_nowait": lambda: at_once(lambda: node.publish_nowait("t", b"child")),
        "publish_many": lambda: node.publish_many("t", [b"child"]),
        "request": lambda: node.request("broker", b"child"),
        "gather": lambda: at_once(lambda: node.gather("broker", b"child")),
        "broadcast": lambda: node.broadcast("broker", b"child"),
        "subscribe": subscribe,
        "wait_sent": node.wait_sent,
        "wait_members": lambda: node.wait_members("nobody"),
        "open_tunnel": open_tunnel,
        "durable call": shop.statistics,
        "durable publish": lambda: shop.publish("", "jobs", b"child"),
        "durable publisher": send,
        "durable consume": deliveries.take,
    }
    found: dict[str, str] = {}
    for name, verb in verbs.items():
        try:
            await verb()
        except Exception as error:
            found[name] = type(error).__name__
    return found


def inner(node: mesh.Node, shop: Connection, block: str) -> AbstractAsyncContextManager[object]:
    """Return the block in which to fork."""
    blocks: dict[str, Callable[[], AbstractAsyncContextManager[object]]] = {
        "node": nullcontext,
        "subscription": lambda: node.subscribe("u"),
        "tunnel": lambda: node.open_tunnel("broker/durable"),
        "consumer": lambda: shop.consume("other"),
        "reader": lambda: shop.read("told"),
        "publisher": lambda: shop.publisher("till"),
        "nursery": trio.open_nursery,
    }
    return blocks[block]()


async def main(how: str, block: str) -> dict[str, Any]:
    reading, writing = os.pipe()
    with TemporaryDirectory() as data:
        async with (
            durable.serve(data, **ALONE) as broker,
            mesh.join("shop", **ALONE, seeds=[broker.node.endpoints[0]]) as node,  # type: ignore[union-attr]
            node.subscribe("t") as messages,
        ):
            shop = durable.connect(node)
            for queue in ("jobs", "other"):
                await shop.declare_queue(queue)
            await shop.declare_stream("told")
            await shop.publish("", "jobs", b"before")
            async with shop.consume("jobs") as deliveries:
                await (await anext(deliveries)).ack()
                await deliveries.synced()  # Else the child would not know what became of the ack.
                async with inner(node, shop, block):
                    for number in range(WAITING):
                        node.publish_nowait("t", b"%d waits as it forks" % number)
                    child = os.fork()
                    if not child:
                        if how == "verbs":
                            found = await raised_by(node, shop, deliveries)
                            os.write(writing, json.dumps(found).encode())
                        elif how == "waits":
                            await trio.lowlevel.checkpoint()
                            os._exit(STATUS)
                        elif how == "exits":
                            sys.exit(STATUS)
                        elif how == "fails":
                            raise LookupError("of the child")
                        return {}
                    status = await ended(child)
                await node.publish("t", b"after")
                await shop.publish("", "jobs", b"after")
                got = [(await anext(messages)).payload.decode() for _ in range(WAITING + 1)]
                got.append((await anext(deliveries)).payload.decode())
    os.close(writing)
    return {"status": status, "got": got, "raised": os.read(reading, 1 << 16).decode()}


async def ended(child: int) -> int:
    """Return the child's exit status; a child that does not end is killed."""
    found = (0, 0)

    def has_ended() -> bool:
        nonlocal found
        found = os.waitpid(child, os.WNOHANG)
        return found[0] == child

    try:
        await until(has_ended)
    except trio.TooSlowError:
        os.kill(child, 9)
        await until(has_ended)
    return os.waitstatus_to_exitcode(found[1])


if __name__ == "__main__":
    print(json.dumps(trio.run(main, sys.argv[1], sys.argv[2])))
