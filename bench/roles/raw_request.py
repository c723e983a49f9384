"""Requests over raw pyzmq: REQ one at a time, or DEALER with a window of requests outstanding."""

from __future__ import annotations

import time

import zmq

from bench.roles.stage import Stage, play
from bench.sequence import Ring, report_of

SILENCE_MS_MAX = 5000


def run(stage: Stage) -> None:
    ring = Ring(stage.settings["size_bytes"])
    window: int = stage.settings["window"]
    with (
        zmq.Context() as context,
        context.socket(zmq.REQ if window == 1 else zmq.DEALER) as socket,
    ):
        socket.rcvtimeo = SILENCE_MS_MAX
        socket.connect(stage.settings["endpoint"])
        stage.ready()
        for order in stage.orders():
            payloads, replies, times_ns = ring.slice(0, order["count"]), list[bytes](), list[int]()
            start_ns = time.perf_counter_ns()
            if window == 1:
                one_at_a_time(socket, payloads, replies, times_ns)
            else:
                pipelined(socket, payloads, replies, window)
            end_ns = time.perf_counter_ns()
            report = report_of(ring, replies, order["count"])
            stage.done(start_ns=start_ns, end_ns=end_ns, times_ns=times_ns, **report)


def one_at_a_time(
    socket: zmq.Socket[bytes], payloads: list[bytes], replies: list[bytes], times_ns: list[int]
) -> None:
    clock = time.perf_counter_ns
    for payload in payloads:
        sent_ns = clock()
        socket.send(payload)
        replies.append(socket.recv())
        times_ns.append(clock() - sent_ns)


def pipelined(
    socket: zmq.Socket[bytes], payloads: list[bytes], replies: list[bytes], window: int
) -> None:
    for payload in payloads[:window]:
        socket.send(payload)
    for payload in payloads[window:]:
        replies.append(socket.recv())
        socket.send(payload)
    while len(replies) < len(payloads):
        replies.append(socket.recv())


if __name__ == "__main__":
    play(run)
