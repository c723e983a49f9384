"""A node that sends numbered messages at a steady pace, by one messaging pattern, until it is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

import mesh
from bench.roles.mesh_node import KNOCK, join
from bench.roles.stage import Stage, play_async
from bench.sequence import SEQUENCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BURST = 200
PAUSE_S = 0.001
TIMEOUT_S = 30.0
REQUEST_TASKS = 32


class Load:
    """Sends messages in bursts; counts those sent and the requests that failed."""

    def __init__(self, size_bytes: int) -> None:
        self._rest = bytes(size_bytes - SEQUENCE_BYTES)
        self.sent = 0
        self.failed = 0
        self._stopping = False
        self._stopped = trio.Event()

    async def run(self, send: Callable[[bytes], Awaitable[object]], tasks: int = 1) -> None:
        """Send until `stop`: each of `tasks` sends bursts, awaiting `send` for one message after the other."""
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(self._send_bursts, send)
        self._stopped.set()

    async def stop(self) -> None:
        self._stopping = True
        await self._stopped.wait()

    async def _send_bursts(self, send: Callable[[bytes], Awaitable[object]]) -> None:
        while not self._stopping:
            for _ in range(BURST):
                payload = self.sent.to_bytes(SEQUENCE_BYTES, "little") + self._rest
                self.sent += 1
                try:
                    await send(payload)
                except mesh.RequestError:
                    self.failed += 1
            await trio.sleep(PAUSE_S)


async def run(stage: Stage) -> None:
    settings = stage.settings
    target: str = settings["target"]
    load = Load(settings["size_bytes"])
    async with join(settings) as node, trio.open_nursery() as nursery:
        await node.wait_members(target, count=1)
        stage.ready()

        async def play_tunnel() -> None:
            async with node.open_tunnel(target) as tunnel:
                await load.run(tunnel.send)
                await tunnel.send_eof()
                async for _ in tunnel:
                    pass

        plays: dict[str, Callable[[], Awaitable[None]]] = {
            "publish": lambda: load.run(lambda payload: node.publish("bench.load", payload)),
            "request": lambda: load.run(
                lambda payload: node.request(target, payload, timeout=TIMEOUT_S),
                tasks=REQUEST_TASKS,
            ),
            "tunnel": play_tunnel,
        }
        async for order in stage.orders_async():
            if order["do"] == "knock":
                await node.publish("bench.load", KNOCK)
                stage.done()
            elif order["do"] == "load":
                nursery.start_soon(plays[settings["pattern"]])
                stage.done()
            else:
                await load.stop()
                stage.done(sent=load.sent, failed=load.failed)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    play_async(run)
