"""Echo over raw pyzmq: REP, or ROUTER for a caller with many requests outstanding."""

from __future__ import annotations

import zmq

from bench.roles.raw_socket import bind_loopback
from bench.roles.stage import Stage, play


def run(stage: Stage) -> None:
    kind = zmq.REP if stage.settings["window"] == 1 else zmq.ROUTER
    with zmq.Context() as context, context.socket(kind) as socket:
        stage.ready(endpoint=bind_loopback(socket))
        for order in stage.orders():
            for _ in range(order["count"]):
                if kind == zmq.REP:
                    socket.send(socket.recv())
                else:
                    socket.send_multipart(socket.recv_multipart())
            stage.done()


if __name__ == "__main__":
    play(run)
