"""The first word of a tunnel; time is virtual."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.broker.sessions import HELLO_S, Sessions
from durable.errors import DurableError, UnknownVhost
from durable.protocol.calls import CONTROL, encode_hello
from durable.protocol.parts import decode_ended
from mesh.time_limits import PARTS
from tests.driving import Ticking, driving


class Tunnel:
    """Of a client that has much time."""

    caller = "shop"

    def __init__(self) -> None:
        self.driver = driving(Ticking())
        self.within = self.driver.within
        self._says, self._said = trio.open_memory_channel[bytes](1)
        self.told: list[DurableError] = []

    def says(self, part: bytes) -> None:
        self._says.send_nowait(part)

    def lasts(self) -> None:
        pass

    async def __anext__(self) -> bytes:
        return await self._said.receive()

    async def send(self, part: bytes) -> None:
        self.told.append(decode_ended(part))


def no_vhost(name: str, _cluster: str) -> Any:
    raise UnknownVhost(name)


@pytest.mark.parametrize("says", [True, False])
async def test_a_hello_that_comes_while_the_loop_is_blocked_is_read(
    says: bool, mock_clock: MockClock
) -> None:
    """Found by reading: a broker that was stopped for longer told clients that they had said nothing."""
    tunnel = Tunnel()
    sessions = Sessions("broker", cast("Any", SimpleNamespace(get=no_vhost)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tunnel.driver._run_timers)
        nursery.start_soon(sessions.serve, cast("Any", tunnel))
        await wait_all_tasks_blocked()
        for part in range(PARTS):
            told = [*tunnel.told]
            mock_clock.jump(10 * HELLO_S if part == 0 else HELLO_S / PARTS)
            await wait_all_tasks_blocked()
            if part == 0 and says:
                tunnel.says(encode_hello(CONTROL, "billing"))
        nursery.cancel_scope.cancel()
    if says:
        assert [type(error) for error in tunnel.told] == [UnknownVhost]
    else:
        assert not told
        assert [str(error) for error in tunnel.told] == [
            f"protocol violation by the other end: no hello within {HELLO_S:g} s"
        ]
