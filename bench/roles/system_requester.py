"""The open load: all requesters of a run, in one process. Its samples go to a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.latency.distribution import arrays
from bench.latency.generator import Load, measure
from bench.loops import Loop
from bench.roles.stage import Stage
from bench.roles.system_client import orders, play_client
from bench.sequence import Ring
from bench.systems.system import Place, Received, Requester, System
from bench.usage import own_usage

NS = 1e9


async def act(stage: Stage, system: System, place: Place, loop: Loop) -> None:
    settings = stage.settings
    stage.ready()
    async for order in orders(stage, loop):
        load = Load(
            rate_per_s=settings["rate_per_s"], count=order["count"],
            size_bytes=place.size_bytes, warm_count=order["warm_count"],
        )  # fmt: skip
        stage.done(**await run(system, place, loop, load, order["file"]))


async def run(system: System, place: Place, loop: Loop, load: Load, file: str) -> dict[str, Any]:
    """Measure, write response, service and delay as rows of one array; the counts."""

    def connect(number: int, replied: Received) -> Requester:
        return system.requester(place, loop, number, replied)

    (rest,) = (payload[8:] for payload in Ring(place.size_bytes, 1).payloads)
    before = own_usage().cpu_s
    found = await measure(load, loop, place.connections, connect, rest)
    samples, schedule = found.samples, found.schedule
    np.save(file, np.stack(arrays(found, load.warm_count)))
    last_s = (max(samples.sent_ns) - schedule.start_ns) / NS
    return {
        "sent_per_s": (load.count - 1) / last_s,
        "cpu_s": own_usage().cpu_s - before,
        "lost": samples.lost,
        "duplicated": samples.duplicated,
        "damaged": samples.damaged,
    }


if __name__ == "__main__":
    play_client(act)
