"""A ROUTER that counts by sequence what raw_load sends."""

from __future__ import annotations

import threading

import zmq

from bench.roles.raw_socket import bind_loopback
from bench.roles.stage import Stage, play
from bench.sequence import SEQUENCE_BYTES, Tally

SILENCE_MS_MAX = 2000


def run(stage: Stage) -> None:
    tally, settled = Tally(), threading.Event()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.rcvhwm = 0
        socket.rcvtimeo = SILENCE_MS_MAX
        thread = threading.Thread(target=count, args=(socket, tally, settled), daemon=True)
        thread.start()
        stage.ready(endpoint=bind_loopback(socket))
        for order in stage.orders():
            settled.set()
            thread.join()
            stage.done(**tally.report(order["sent"]))


def count(socket: zmq.Socket[bytes], tally: Tally, settled: threading.Event) -> None:
    """Count until the load has stopped and nothing has come for SILENCE_MS_MAX."""
    while True:
        try:
            _, payload = socket.recv_multipart()
        except zmq.Again:
            if settled.is_set():
                return
            continue
        tally.add(int.from_bytes(payload[:SEQUENCE_BYTES], "little"))


if __name__ == "__main__":
    play(run)
