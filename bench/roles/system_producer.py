"""Publishes the ring as fast as the system accepts it."""

from __future__ import annotations

import time

from bench.loops import Loop
from bench.roles.stage import Stage
from bench.roles.system_client import orders, play_client
from bench.sequence import Ring, ring_count
from bench.systems.system import Place, System
from bench.systems.topics import knock

CHUNK = 500
"""Payloads that the client gets at once; how it sends them is up to the client."""


async def act(stage: Stage, system: System, place: Place, loop: Loop) -> None:
    producer, ring = (
        system.producer(place, loop),
        Ring(place.size_bytes, ring_count(1, place.size_bytes)),
    )
    await producer.setup()
    stage.ready()
    async for order in orders(stage, loop):
        if order["do"] == "knock":
            await producer.publish([knock(place.size_bytes)])
            await producer.flush()
            stage.done()
            continue
        start, end = order["start"], order["start"] + order["count"]
        start_ns = time.perf_counter_ns()
        # Sliced as needed, at a few ns per message: made ahead, the slices would count as the system's memory.
        for at in range(start, end, CHUNK):
            await producer.publish(ring.slice(at, min(CHUNK, end - at)))
        await producer.flush()
        stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())
    await producer.teardown()


if __name__ == "__main__":
    play_client(act)
