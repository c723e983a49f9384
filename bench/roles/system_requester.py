"""The open load: all requesters of a run, in one process. Its samples are written to a file.

The role is ready once all requesters are connected. It takes two orders, `run` and `save`, so that the CPU time of
connecting and of statistics is not measured.
"""

from __future__ import annotations

import numpy as np

from bench.latency.distribution import arrays
from bench.latency.generator import connected, generate
from bench.latency.samples import NUMBER, Samples
from bench.loops import Loop
from bench.roles.stage import Stage
from bench.roles.system_client import orders, play_client
from bench.sequence import Ring
from bench.systems.system import Place, Received, Requester, System


async def act(stage: Stage, system: System, place: Place, loop: Loop) -> None:
    settings = stage.settings
    (payload,) = Ring(place.size_bytes, 1).payloads
    samples = Samples(settings["count"], payload[NUMBER.size :])

    def connect(number: int, replied: Received) -> Requester:
        return system.requester(place, loop, number, replied)

    async with connected(samples, place.connections, connect) as requesters:
        stage.ready()
        async for order in orders(stage, loop):
            if order["do"] == "run":
                found = await generate(settings["rate_per_s"], loop, requesters, samples)
                stage.done(sent=samples.sent)
                continue
            rows = arrays(found, settings["warm_count"])
            np.savez(order["file"], allow_pickle=False, **rows)
            stage.done(
                sent_per_s=found.sent_per_s, kept=found.kept, asked=samples.count, sent=samples.sent,
                lost=samples.lost, duplicated=samples.duplicated, damaged=samples.damaged,
            )  # fmt: skip


if __name__ == "__main__":
    play_client(act)
