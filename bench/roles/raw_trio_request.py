"""Requests one at a time by a DEALER with CURVE under trio: the cost of a request without the mesh's own part."""

from __future__ import annotations

import time

import zmq

from bench.roles.raw_socket import dial_with_curve
from bench.roles.raw_trio import received
from bench.roles.stage import Stage, play_async
from bench.sequence import Ring, report_of


async def run(stage: Stage) -> None:
    ring = Ring(stage.settings["size_bytes"])
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        dial_with_curve(socket, stage.settings["curve"])
        socket.connect(stage.settings["endpoint"])
        stage.ready()
        async for order in stage.orders_async():
            payloads, replies, times_ns = ring.slice(0, order["count"]), list[bytes](), list[int]()
            start_ns = time.perf_counter_ns()
            await one_at_a_time(socket, payloads, replies, times_ns)
            end_ns = time.perf_counter_ns()
            report = report_of(ring, replies, order["count"])
            stage.done(start_ns=start_ns, end_ns=end_ns, times_ns=times_ns, **report)


async def one_at_a_time(
    socket: zmq.Socket[bytes], payloads: list[bytes], replies: list[bytes], times_ns: list[int]
) -> None:
    clock = time.perf_counter_ns
    for payload in payloads:
        sent_ns = clock()
        socket.send(payload)
        replies += await received(socket)
        times_ns.append(clock() - sent_ns)


if __name__ == "__main__":
    play_async(run)
