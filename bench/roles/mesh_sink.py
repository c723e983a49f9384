"""A member that counts by sequence what mesh_load sends: messages, requests or tunnel parts."""

from __future__ import annotations

import trio

import mesh
from bench.roles.mesh_node import KNOCK, join
from bench.roles.stage import Stage, play_async
from bench.sequence import SEQUENCE_BYTES, Tally

SETTLE_S_MAX = 20.0
"""Time for the last messages to arrive after the load has stopped."""


def make_service(cluster: str, tally: Tally, ended: trio.Event) -> mesh.Service:
    service = mesh.Service(cluster)

    @service.request
    async def count(request: mesh.Request) -> bytes:
        note(tally, request.payload)
        return b""

    @service.tunnel
    async def read(tunnel: mesh.Tunnel) -> None:
        async for part in tunnel:
            note(tally, part)
        await tunnel.send_eof()
        ended.set()

    return service


def note(tally: Tally, payload: bytes) -> None:
    tally.add(int.from_bytes(payload[:SEQUENCE_BYTES], "little"))


async def subscribe(node: mesh.Node, tally: Tally, heard: trio.Event) -> None:
    async with node.subscribe("bench.>", when_full="block") as messages:
        async for message in messages:
            heard.set()
            if message.payload != KNOCK:
                note(tally, message.payload)


async def run(stage: Stage) -> None:
    tally, heard, ended = Tally(), trio.Event(), trio.Event()
    service = make_service(stage.settings["cluster"], tally, ended)
    async with join(stage.settings, service) as node, trio.open_nursery() as nursery:
        if stage.settings["pattern"] == "publish":
            nursery.start_soon(subscribe, node, tally, heard)
            await heard.wait()
        stage.ready()
        async for order in stage.orders_async():
            with trio.move_on_after(SETTLE_S_MAX):
                while tally.distinct < order["sent"]:  # noqa: ASYNC110 (counts, no event)
                    await trio.sleep(0.05)
            stage.done(**tally.report(order["sent"]))
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    play_async(run)
