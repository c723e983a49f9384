"""Shared by the four client roles of a system: the system, the place and the event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from bench.loops import Loop, make_loop
from bench.roles.stage import Order, Stage, play
from bench.systems import SYSTEMS
from bench.systems.system import Place, System

TURN_NS = 50_000_000
"""How long an order may wait; more frequent checks would add to the measured CPU time of the system."""
Act = Callable[[Stage, System, Place, Loop], Awaitable[None]]


def place_of(settings: dict[str, Any]) -> Place:
    return Place(
        ports=settings["ports"], secret=settings["secret"], size_bytes=settings["size_bytes"],
        connections=settings["connections"], directory=settings["directory"],
    )  # fmt: skip


def orders(stage: Stage, loop: Loop) -> AsyncIterator[Order]:
    """Yield the bench's orders; clients keep receiving while there is none."""

    async def turn() -> None:
        await loop.until(time.perf_counter_ns() + TURN_NS)

    return stage.orders_beside(turn)


def play_client(act: Act) -> None:
    """Run `act` in the event loop of the system's clients."""

    def role(stage: Stage) -> None:
        system, place = SYSTEMS[stage.settings["system"]], place_of(stage.settings)
        loop = make_loop(system.loop)

        async def main() -> None:
            await act(stage, system, place, loop)

        loop.run(main)

    play(role)
