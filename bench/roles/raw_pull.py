"""A PULL that receives what raw_push sends and checks every payload."""

from __future__ import annotations

import time

import zmq

from bench.roles.raw_socket import bind_loopback, serve_with_curve
from bench.roles.stage import Stage, play
from bench.sequence import Follower, Ring

SILENCE_MS_MAX = 5000
CHUNK = 500
"""Payloads that are checked together; the last chunk of a run may be shorter."""


def run(stage: Stage) -> None:
    ring = Ring(stage.settings["size_bytes"], stage.settings["ring_count"])
    follower = Follower(ring)
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        serve_with_curve(socket, stage.settings.get("curve"))
        socket.rcvtimeo = SILENCE_MS_MAX
        stage.ready(endpoint=bind_loopback(socket))
        for order in stage.orders():
            pull(socket, follower, order["count"])
            sent = order["start"] + order["count"]
            stage.done(end_ns=time.perf_counter_ns(), reports=[follower.report(sent)])


def pull(socket: zmq.Socket[bytes], follower: Follower, count: int) -> None:
    """Receive `count` messages, or fewer if nothing comes for SILENCE_MS_MAX."""
    receive = socket.recv
    while count > 0:
        chunk: list[bytes] = []
        append = chunk.append
        try:
            for _ in range(min(CHUNK, count)):
                append(receive())
        except zmq.Again:
            count = 0
        count -= len(chunk)
        follower.take(chunk)


if __name__ == "__main__":
    play(run)
