"""Many nodes in one process, each linked to the hub: they are there to be links of the hub."""

from __future__ import annotations

import resource
from contextlib import AsyncExitStack

from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async


async def run(stage: Stage) -> None:
    """Settings: `nodes`, a list of settings of one node each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with AsyncExitStack() as stack:
        for settings in stage.settings["nodes"]:
            node = await stack.enter_async_context(join(settings))
            await node.wait_members(stage.settings["hub"], count=1)
        stage.ready()
        async for _ in stage.orders_async():
            stage.done()


if __name__ == "__main__":
    play_async(run)
