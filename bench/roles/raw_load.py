"""A DEALER that sends numbered messages at a steady pace until it is told to stop."""

from __future__ import annotations

import threading
import time

import zmq

from bench.roles.stage import Stage, play
from bench.sequence import SEQUENCE_BYTES

BURST = 200
PAUSE_S = 0.001


class Load(threading.Thread):
    """The thread that owns the socket."""

    def __init__(self, endpoint: str, size_bytes: int) -> None:
        super().__init__(daemon=True)
        self._endpoint, self._rest = endpoint, bytes(size_bytes - SEQUENCE_BYTES)
        self._stopping, self._leaving = threading.Event(), threading.Event()
        self._sent = 0

    def run(self) -> None:
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            # No high-water mark: what the socket holds is sent after it has reconnected.
            socket.sndhwm = 0
            socket.linger = 0
            socket.connect(self._endpoint)
            while not self._stopping.is_set():
                for sequence in range(self._sent, self._sent + BURST):
                    socket.send(sequence.to_bytes(SEQUENCE_BYTES, "little") + self._rest)
                self._sent += BURST
                time.sleep(PAUSE_S)
            self._leaving.wait()

    def stop(self) -> int:
        """Stop sending and return how many were sent; the socket stays open, as what it holds must still be sent."""
        self._stopping.set()
        return self._sent

    def leave(self) -> None:
        self._leaving.set()
        self.join()


def run(stage: Stage) -> None:
    load = Load(stage.settings["endpoint"], stage.settings["size_bytes"])
    stage.ready()
    for order in stage.orders():
        if order["do"] == "load":
            load.start()
            stage.done()
        else:
            stage.done(sent=load.stop())
    load.stop()
    load.leave()


if __name__ == "__main__":
    play(run)
