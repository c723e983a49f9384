"""Several SUB sockets in one process; every payload of each is checked."""

from __future__ import annotations

import time
from contextlib import ExitStack

import zmq

from bench.roles.stage import Stage, play
from bench.sequence import Follower, Ring

SILENCE_MS_MAX = 5000
CHUNK = 500


class Reader:
    """One SUB socket and the check of what it has received."""

    def __init__(self, socket: zmq.Socket[bytes], ring: Ring) -> None:
        self.socket = socket
        self.follower = Follower(ring)

    def drain(self, count: int) -> int:
        """Receive what has arrived, at most `count` messages; return how many there were."""
        receive, chunk = self.socket.recv_multipart, list[bytes]()
        append = chunk.append
        try:
            for _ in range(min(count, CHUNK)):
                append(receive(zmq.DONTWAIT)[-1])
        except zmq.Again:
            pass
        self.follower.take(chunk)
        return len(chunk)


def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"], settings["ring_count"])
    with zmq.Context() as context, ExitStack() as stack:
        readers = []
        for _ in range(settings["subscribers"]):
            socket = stack.enter_context(context.socket(zmq.SUB))
            socket.connect(settings["endpoint"])
            socket.subscribe(b"")
            readers.append(Reader(socket, ring))
        stage.ready()
        for order in stage.orders():
            follow(readers, order["count"])
            sent = order["start"] + order["count"]
            stage.done(
                end_ns=time.perf_counter_ns(),
                reports=[reader.follower.report(sent) for reader in readers],
            )


def follow(readers: list[Reader], count: int) -> None:
    """Receive `count` messages on each socket, or fewer if none comes on any for SILENCE_MS_MAX."""
    left = dict.fromkeys(readers, count)
    poller = zmq.Poller()
    for reader in readers:
        poller.register(reader.socket, zmq.POLLIN)
    while left:
        taken = 0
        for reader in list(left):
            received = reader.drain(left[reader])
            taken += received
            left[reader] -= received
            if left[reader] == 0:
                del left[reader]
                poller.unregister(reader.socket)
        if left and not taken and not poller.poll(SILENCE_MS_MAX):
            return


if __name__ == "__main__":
    play(run)
