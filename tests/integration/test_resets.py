"""Links heal: a proxy resets the connections under load, and nothing is lost on any pattern."""

from __future__ import annotations

import hashlib
import random

import pytest
import trio

import mesh
from bench.proxy import Proxy
from tests.loopback import HOST
from tests.nodes import free_ports, linked, node, subscribed, through_proxy
from tests.waiting import until

RESETS = 20


@pytest.mark.parametrize("proxied", [4, 2], ids=["both can be dialled", "one of them behind NAT"])
async def test_20_resets_under_load_lose_nothing(proxied: int) -> None:
    """Promise: link resume. Requests, topics, broadcasts and a tunnel, all at once."""
    service = mesh.Service("databases", concurrency=64)
    flushed = 0

    @service.request
    async def echo(request: mesh.Request) -> bytes:
        return request.payload

    @service.broadcast
    async def flush(request: mesh.Request) -> None:
        nonlocal flushed
        flushed += 1

    @service.tunnel
    async def digest(tunnel: mesh.Tunnel) -> None:
        total = hashlib.sha256()
        async for part in tunnel:
            total.update(part)
        await tunnel.send(total.digest())

    ports = free_ports(8)

    async with trio.open_nursery() as nursery:
        proxies = [Proxy((HOST, ports + place)) for place in range(proxied)]
        for place, proxy in enumerate(proxies):
            await nursery.start(proxy.serve, (HOST, ports + 4 + place))
        async with (
            node(service, **through_proxy(ports)) as db,
            node("shop", db, **through_proxy(ports + 2)) as shop,
            db.subscribe("t", when_full="block", limit_bytes=1 << 20) as subscription,
        ):
            await linked(shop, db)
            await subscribed(shop, "t")
            running, answered, published, told = True, 0, 0, 0
            received: list[int] = []

            async def ask() -> None:
                nonlocal answered
                while running:
                    payload = random.randbytes(200)
                    assert await shop.request("databases", payload, timeout=20) == payload
                    answered += 1

            async def another_answer() -> None:
                """The pace of the load."""
                before = answered
                await until(lambda: answered > before or not running, 30)

            async def publish() -> None:
                nonlocal published
                while running:
                    await shop.publish("t", published.to_bytes(8, "little") * 20)
                    published += 1
                    if published % 500 == 0:
                        await another_answer()

            async def read() -> None:
                async for batch in subscription.batches():
                    received.extend(int.from_bytes(one[:8], "little") for one in batch.payloads)

            async def broadcast() -> None:
                nonlocal told
                while running:
                    told += await shop.broadcast("databases", b"x")
                    await another_answer()

            async def tunnel() -> None:
                total = hashlib.sha256()
                async with shop.open_tunnel("databases") as stream:
                    while running:
                        part = random.randbytes(20_000)
                        total.update(part)
                        await stream.send(part)
                    await stream.send_eof()
                    assert [part async for part in stream] == [total.digest()]

            async with trio.open_nursery() as load:
                with trio.fail_after(160):
                    reader = trio.CancelScope()

                    async def read_until_cancelled() -> None:
                        with reader:
                            await read()

                    load.start_soon(read_until_cancelled)
                    async with trio.open_nursery() as work:
                        for job in (ask, ask, publish, broadcast, tunnel):
                            work.start_soon(job)
                        for _ in range(RESETS):
                            for _ in range(20):
                                await another_answer()
                            for proxy in proxies:
                                proxy.reset()
                        running = False
                    await until(lambda: len(received) >= published and flushed >= told, 60)
                    reader.cancel()
            assert received == list(range(published))
            assert flushed == told
            resumes = sum(link.resumes for link in shop.statistics().links)
            assert resumes >= RESETS, "the connections were really reset"
            assert len(shop.statistics().links) == 1
        nursery.cancel_scope.cancel()
