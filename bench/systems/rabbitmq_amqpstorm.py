"""RabbitMQ and amqpstorm, which uses threads. Its consumers poll every 10 ms while there are no messages."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.loops.loop import Loop, drive

from .rabbitmq_server import RabbitMQSystem
from .system import HOST, LoopName, Place, Received
from .topics import Connection, TopicSystem

USER = "guest"


class RabbitMQStorm(RabbitMQSystem, TopicSystem):
    name = "rabbitmq-amqpstorm"
    client = "amqpstorm, a thread that consumes, a callback for each message"
    module = "amqpstorm"
    loop: LoopName = "blocking"
    latency = False

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Storm:
        return Storm(place)


class Storm(Connection):
    def __init__(self, place: Place) -> None:
        self._place = place

    async def open(self) -> None:
        self._connection = import_module("amqpstorm").Connection(
            HOST, USER, USER, port=self._place.ports[0], heartbeat=0
        )
        self._channel = self._connection.channel()

    async def subscribe(self, topic: str, received: Received) -> None:
        def take(body: bytes, channel: Any, method: Any, properties: Any) -> None:
            drive(received((body,)))

        channel = self._connection.channel()
        channel.queue.declare(topic, auto_delete=True)
        channel.basic.consume(take, topic, no_ack=True)

        def consume() -> None:
            """Consume until either side closes the connection; messages missed from then on count as lost."""
            try:
                channel.start_consuming(to_tuple=True, auto_decode=False)
            except import_module("amqpstorm").AMQPError:
                return

        threading.Thread(target=consume, daemon=True).start()

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        publish = self._channel.basic.publish
        for payload in payloads:
            publish(payload, topic)

    async def close(self) -> None:
        self._connection.close()


SYSTEMS = (RabbitMQStorm(),)
