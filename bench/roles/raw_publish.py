"""An XPUB with XPUB_NODROP: a full subscriber blocks the sender, so nothing is lost.

With `topics` 0 a message is its payload. Otherwise it has two parts, topic and payload, with the topics in turn.
"""

from __future__ import annotations

import time

import zmq

from bench.roles.raw_socket import bind_loopback
from bench.roles.stage import Stage, play
from bench.sequence import Ring


def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"], settings["ring_count"])
    topics = [f"bench.{index}".encode() for index in range(settings["topics"])]
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.xpub_nodrop = True
        socket.xpub_verboser = True
        stage.ready(endpoint=bind_loopback(socket))
        for order in stage.orders():
            if order["do"] == "wait_subscribers":
                for _ in range(order["count"]):
                    socket.recv()
                stage.done()
                continue
            start_ns = time.perf_counter_ns()
            publish(socket, ring, topics, order["start"], order["count"])
            stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())


def publish(
    socket: zmq.Socket[bytes], ring: Ring, topics: list[bytes], start: int, count: int
) -> None:
    send, send_parts, payloads = socket.send, socket.send_multipart, ring.payloads
    for sequence in range(start, start + count):
        payload = payloads[sequence % ring.count]
        if topics:
            send_parts((topics[sequence % len(topics)], payload))
        else:
            send(payload)


if __name__ == "__main__":
    play(run)
