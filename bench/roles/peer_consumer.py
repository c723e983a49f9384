"""Consumes from another broker, checks every payload, acks many at once."""

from __future__ import annotations

import time

from bench.peers import peer
from bench.roles.stage import Stage, play
from bench.sequence import Follower, Ring


def run(stage: Stage) -> None:
    settings = stage.settings
    follower = Follower(Ring(settings["size_bytes"]))
    with peer(settings["peer"]).consumer(settings["port"], settings["queue"]) as consumer:
        stage.ready()
        for order in stage.orders():
            consumer.consume(order["count"], follower.take)
            sent = order["start"] + order["count"]
            stage.done(end_ns=time.perf_counter_ns(), reports=[follower.report(sent)])


if __name__ == "__main__":
    play(run)
