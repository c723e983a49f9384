"""The proxy forwards, and its reset is a real one."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from bench.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Target:
    """What is behind the proxy: the connections it was given."""

    def __init__(self) -> None:
        self._send, self._accepted = trio.open_memory_channel[trio.SocketStream](8)

    async def serve(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(listener.socket.getsockname()[1])
        async with listener:
            while True:
                await self._send.send(await listener.accept())

    async def next(self) -> trio.SocketStream:
        return await self._accepted.receive()


@asynccontextmanager
async def proxied(clients: int = 1) -> AsyncGenerator[tuple[Proxy, Wires]]:
    """A proxy, and connections through it that have carried a byte."""
    target = Target()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        proxy = Proxy(("127.0.0.1", await nursery.start(target.serve)))
        port: int = await nursery.start(proxy.serve)
        wires = Wires(port, target, stack)
        for _ in range(clients):
            await wires.connect()
        yield proxy, wires
        nursery.cancel_scope.cancel()


class Wires:
    """Connections through the proxy, closed at the end of its block."""

    def __init__(self, port: int, target: Target, stack: AsyncExitStack) -> None:
        self._port, self._target, self._stack = port, target, stack
        self.pairs: list[tuple[trio.SocketStream, trio.SocketStream]] = []

    async def connect(self) -> tuple[trio.SocketStream, trio.SocketStream]:
        """A client, and what the target was given for it."""
        client = await trio.open_tcp_stream("127.0.0.1", self._port)
        server = await self._target.next()
        for end in (client, server):
            await self._stack.enter_async_context(end)
        await client.send_all(b"x")
        assert await receive(server) == b"x"
        self.pairs.append((client, server))
        return client, server


async def receive(stream: trio.SocketStream) -> bytes:
    """Raw, because a stream turns ECONNRESET into trio.BrokenResourceError."""
    return await stream.socket.recv(100)


async def assert_reset(*ends: trio.SocketStream) -> None:
    for end in ends:
        with pytest.raises(ConnectionResetError):
            await receive(end)


async def test_forwards_both_ways_and_counts() -> None:
    async with proxied() as (proxy, wires):
        ((client, server),) = wires.pairs
        before = proxy.forwarded_bytes
        await client.send_all(b"question")
        assert await receive(server) == b"question"
        await server.send_all(b"answer")
        assert await receive(client) == b"answer"
        assert proxy.forwarded_bytes - before == len(b"questionanswer")


async def test_an_orderly_end_stays_one() -> None:
    async with proxied() as (_, wires):
        ((client, server),) = wires.pairs
        await client.send_eof()
        assert await receive(server) == b""
        await server.send_all(b"still open this way")
        assert await receive(client) == b"still open this way"


async def test_reset_is_heard_as_a_reset_by_both_ends() -> None:
    async with proxied() as (proxy, wires):
        assert proxy.reset() == 1
        assert proxy.forwarded_bytes == 0
        await assert_reset(*wires.pairs[0])


async def test_every_connection_is_reset() -> None:
    async with proxied(clients=3) as (proxy, wires):
        assert proxy.reset() == 3
        for pair in wires.pairs:
            await assert_reset(*pair)


async def test_after_a_reset_new_connections_work() -> None:
    async with proxied() as (proxy, wires):
        for number in (2, 3, 4):
            assert proxy.reset() == 1
            await wires.connect()
            assert proxy.accepted == number


async def test_nobody_behind_it_is_an_end_not_a_crash() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        dead_port: int = unused.getsockname()[1]
    async with trio.open_nursery() as nursery:
        port = await nursery.start(Proxy(("127.0.0.1", dead_port)).serve)
        async with await trio.open_tcp_stream("127.0.0.1", port) as client:
            assert await receive(client) == b""
        nursery.cancel_scope.cancel()
