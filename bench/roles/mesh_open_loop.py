"""Requests on a schedule, sent whether or not earlier ones have been answered.

Request k is due at a random time drawn from a seed; its latency counts from then, so a member that stalls makes all
requests late that are due meanwhile, as with real users. `targets` is one cluster, and the mesh chooses the member; or
one cluster per member, and this caller draws one at random. For a seed, the due times, service times and draws are the
same in both cases.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import trio

import mesh
from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async

DRAIN_S_MAX = 60.0


@dataclass
class Samples:
    """Latencies of the replies, and the due times of requests without a reply."""

    latencies_ns: list[int] = field(default_factory=list)
    failed_due_ns: list[int] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)


async def run(stage: Stage) -> None:
    settings = stage.settings
    targets: list[str] = settings["targets"]
    async with join(settings) as node:
        for target in targets:
            await node.wait_members(target, count=settings["members"] // len(targets))
        stage.ready()
        async for order in stage.orders_async():
            rng = random.Random(order["seed"])
            samples = Samples()
            due_ns = time.perf_counter_ns()
            last_ns = due_ns + int(order["seconds"] * 1e9)
            async with trio.open_nursery() as nursery:
                while (due_ns := due_ns + draw_ns(rng, 1e9 / settings["rate_per_s"])) < last_ns:
                    demand_us = draw_ns(rng, settings["demand_us_mean"])
                    target = targets[rng.randrange(settings["members"]) % len(targets)]
                    await sleep_until(due_ns)
                    nursery.start_soon(ask, node, target, demand_us, due_ns, samples)
            end_ns = time.perf_counter_ns()
            late = [end_ns - failed_ns for failed_ns in samples.failed_due_ns]
            stage.done(
                latencies_ns=samples.latencies_ns + late,
                failed=len(late),
                errors=samples.errors,
            )


def draw_ns(rng: random.Random, mean: float) -> int:
    return int(rng.expovariate(1 / mean))


async def sleep_until(due_ns: int) -> None:
    """Sleep until `due_ns`, late by up to a millisecond, as trio's timers are. Both cases count that as latency."""
    wait_ns = due_ns - time.perf_counter_ns()
    if wait_ns > 0:
        await trio.sleep(wait_ns / 1e9)


async def ask(node: mesh.Node, target: str, demand_us: int, due_ns: int, samples: Samples) -> None:
    try:
        await node.request(target, demand_us.to_bytes(8, "little"), timeout=DRAIN_S_MAX)
    except mesh.MeshError as error:
        samples.failed_due_ns.append(due_ns)
        kind = type(error).__name__
        samples.errors[kind] = samples.errors.get(kind, 0) + 1
    else:
        samples.latencies_ns.append(time.perf_counter_ns() - due_ns)


if __name__ == "__main__":
    play_async(run)
