"""A PUSH, one message per `send`: the floor that a stream of messages is compared with.

A blocking socket without an event loop and otherwise pyzmq's defaults: as fast as plain pyzmq gets.
"""

from __future__ import annotations

import time

import zmq

from bench.roles.raw_socket import dial_with_curve
from bench.roles.stage import Stage, play
from bench.sequence import Ring


def run(stage: Stage) -> None:
    ring = Ring(stage.settings["size_bytes"], stage.settings["ring_count"])
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        dial_with_curve(socket, stage.settings.get("curve"))
        socket.connect(stage.settings["endpoint"])
        stage.ready()
        for order in stage.orders():
            start_ns = time.perf_counter_ns()
            push(socket, ring, order["start"], order["count"])
            stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())


def push(socket: zmq.Socket[bytes], ring: Ring, start: int, count: int) -> None:
    send, payloads = socket.send, ring.payloads
    at = start % ring.count
    for _ in range(count):
        send(payloads[at])
        at += 1
        if at == ring.count:
            at = 0


if __name__ == "__main__":
    play(run)
