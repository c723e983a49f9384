"""Answers requests until the bench closes the pipe."""

from __future__ import annotations

from bench.loops import Loop
from bench.roles.stage import Stage
from bench.roles.system_client import orders, play_client
from bench.systems.system import Place, System


async def act(stage: Stage, system: System, place: Place, loop: Loop) -> None:
    responder = system.responder(place, loop)
    await responder.setup()
    stage.ready()
    async for _ in orders(stage, loop):
        stage.done()
    await responder.teardown()


if __name__ == "__main__":
    play_client(act)
