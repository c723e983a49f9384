"""The open load: all requesters of a run, in one process. Its samples go to a file.

Three orders, so that what is spent on connecting and on statistics can be left out: `connect`, `run`,
`save`.
"""

from __future__ import annotations

import numpy as np

from bench.latency.distribution import arrays
from bench.latency.generator import Load, connected, generate
from bench.latency.samples import NUMBER, Samples
from bench.loops import Loop
from bench.roles.stage import Stage
from bench.roles.system_client import orders, play_client
from bench.sequence import Ring
from bench.systems.system import Place, Received, Requester, System


async def act(stage: Stage, system: System, place: Place, loop: Loop) -> None:
    settings = stage.settings
    load = Load(
        rate_per_s=settings["rate_per_s"], count=settings["count"], warm_count=settings["warm_count"],
    )  # fmt: skip
    (payload,) = Ring(place.size_bytes, 1).payloads
    samples = Samples(load.count, payload[NUMBER.size :])

    def connect(number: int, replied: Received) -> Requester:
        return system.requester(place, loop, number, replied)

    async with connected(samples, place.connections, connect) as requesters:
        stage.ready()
        async for order in orders(stage, loop):
            if order["do"] == "run":
                found = await generate(load, loop, requesters, samples)
                stage.done(sent=samples.sent)
                continue
            rows = arrays(found, load.warm_count)
            np.savez(order["file"], allow_pickle=False, **rows)
            stage.done(
                sent_per_s=found.sent_per_s, kept=found.kept, asked=load.count, sent=samples.sent,
                lost=samples.lost, duplicated=samples.duplicated, damaged=samples.damaged,
            )  # fmt: skip


if __name__ == "__main__":
    play_client(act)
