"""Bytes that somebody on the way changes: real processes, for libzmq may end one with SIGABRT."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import trio

from bench.proxy import Proxy
from tests.loopback import HOST
from tests.nodes import free_ports, through_proxy
from tests.processes import Process, member
from tests.waiting import until

ATTACKS = 3
HEARTBEAT_S = 1.2
"""Of libzmq, and a little."""


class Garbling(Proxy):
    """Flips a bit of what passes next when it is `armed`, and resets the connection soon after."""

    armed = False

    async def _pump(
        self, source: trio.socket.SocketType, sink: trio.socket.SocketType, both: trio.CancelScope
    ) -> None:
        try:
            while data := await source.recv(1 << 16):
                garbled = self.armed and len(data) > 40
                if garbled:
                    self.armed = False
                    data = data[:-1] + bytes([data[-1] ^ 1])
                view = memoryview(data)
                while view:
                    view = view[await sink.send(view) :]
                if garbled:
                    await trio.sleep(0.05)  # So that it is read before the reset is.
                    self.reset()
        except (OSError, trio.ClosedResourceError):
            both.cancel()


@pytest.mark.slow
async def test_a_bit_changed_on_the_way_and_a_reset_end_no_process() -> None:
    """Promise: who garbles loses the link. Found: libzmq asserted, and ended the process, at its next heartbeat."""
    ports = free_ports(8)
    proxies = [Garbling((HOST, ports + place)) for place in range(4)]

    def started(stack: ExitStack) -> list[Process]:
        seed = f"tcp://{HOST}:{ports + 4}"
        databases = stack.enter_context(member("databases", **through_proxy(ports)))
        shop = member("shop", seeds=[seed], **through_proxy(ports + 2))
        return [databases, stack.enter_context(shop)]

    with ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            for place, proxy in enumerate(proxies):
                await nursery.start(proxy.serve, (HOST, ports + 4 + place))
            processes = await trio.to_thread.run_sync(started, stack)
            shop = processes[1]

            async def linked() -> bool:
                found = await trio.to_thread.run_sync(
                    lambda: shop.call("members", cluster="databases")
                )
                return bool(found)

            for _ in range(ATTACKS):
                with trio.fail_after(20):
                    while not await linked():  # noqa: ASYNC110 (a process is asked)
                        await trio.sleep(0.1)
                for proxy in proxies:
                    proxy.armed = True
                await until(lambda: not all(proxy.armed for proxy in proxies))
                await trio.sleep(HEARTBEAT_S)
                for proxy in proxies:
                    proxy.armed = False
                assert [one.ended for one in processes] == [None, None]
            nursery.cancel_scope.cancel()
