"""Several members of one cluster in one process; each echoes requests, subscribes, and checks what it receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from bench.roles.mesh_member import echo_service
from bench.roles.mesh_node import join, topic_names
from bench.roles.mesh_subscriber import Reader, read
from bench.roles.stage import Stage, play_async
from bench.sequence import Ring

if TYPE_CHECKING:
    from collections.abc import Mapping


async def run(stage: Stage) -> None:
    """Settings: `nodes`, a list with the settings of each node. Orders: `knock`, `drain` and `run`."""
    ring, readers = Ring(stage.settings["size_bytes"]), list[Reader]()
    async with trio.open_nursery() as nursery:

        async def start(settings: Mapping[str, Any]) -> None:
            readers.append(await nursery.start(member, settings, ring))

        async with trio.open_nursery() as starting:
            for settings in stage.settings["nodes"]:
                starting.start_soon(start, settings)
        stage.ready()
        async for order in stage.orders_async():
            if order["do"] == "knock":
                for reader in readers:
                    await reader.wait_knock()
                stage.done()
            else:
                await read(stage, readers, order)
        nursery.cancel_scope.cancel()


async def member(
    settings: Mapping[str, Any], ring: Ring, *, task_status: trio.TaskStatus[Reader]
) -> None:
    """Run one member. `task_status` gets the reader of its subscription."""
    async with (
        join(settings, echo_service(dict(settings))) as node,
        node.subscribe("bench.>", when_full="block") as subscription,
    ):
        task_status.started(Reader(subscription, topic_names(1), ring))
        await trio.sleep_forever()


if __name__ == "__main__":
    play_async(run)
