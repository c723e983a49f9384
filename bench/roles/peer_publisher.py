"""Publishes the ring to another broker, persistent and confirmed, through its best client."""

from __future__ import annotations

import time

from bench.peers import peer
from bench.roles.stage import Stage, play
from bench.sequence import Ring


def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"])
    with peer(settings["peer"]).publisher(settings["port"], settings["queue"]) as publisher:
        stage.ready()
        for order in stage.orders():
            payloads = ring.slice(order["start"], order["count"])
            start_ns = time.perf_counter_ns()
            publisher.publish(payloads)
            stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())


if __name__ == "__main__":
    play(run)
