"""Many nodes in one process, each linked to the hub; they only keep their links."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

import trio

from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async

if TYPE_CHECKING:
    from collections.abc import Mapping


async def run(stage: Stage) -> None:
    """Settings: `nodes`, a list with the settings of each node; `hub`, a cluster."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with trio.open_nursery() as nursery:
        for settings in stage.settings["nodes"]:
            await nursery.start(spoke, settings, stage.settings["hub"])
        stage.ready()
        async for _ in stage.orders_async():
            stage.done()
        nursery.cancel_scope.cancel()


async def spoke(
    settings: Mapping[str, Any],
    hub: str,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one node; `task_status` is called when it knows the hub."""
    async with join(settings) as node:
        await node.wait_members(hub, count=1)
        task_status.started()
        await trio.sleep_forever()


if __name__ == "__main__":
    play_async(run)
