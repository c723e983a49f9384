"""Echo by a ROUTER with CURVE under trio, for raw_trio_request."""

from __future__ import annotations

import zmq

from bench.roles.raw_socket import bind_loopback, serve_with_curve
from bench.roles.raw_trio import received
from bench.roles.stage import Stage, play_async


async def run(stage: Stage) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        serve_with_curve(socket, stage.settings["curve"])
        stage.ready(endpoint=bind_loopback(socket))
        async for order in stage.orders_async():
            for _ in range(order["count"]):
                socket.send_multipart(await received(socket))
            stage.done()


if __name__ == "__main__":
    play_async(run)
