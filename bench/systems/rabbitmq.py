"""RabbitMQ and pika: transient messages without acks, a queue for each topic.

A queue is deleted with its last consumer, so a run finds no messages of the run before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from bench.loops.loop import Loop, drive

from .rabbitmq_server import RabbitMQSystem
from .system import HOST, LoopName, Place, Received
from .topics import Connection, TopicSystem

BUFFER_BYTES_MAX = 1 << 20
BUFFER_S = 0.001


class RabbitMQ(RabbitMQSystem, TopicSystem):
    name = "rabbitmq"
    client = "pika, AsyncioConnection, a callback for each message"
    module = "pika"
    loop: LoopName = "asyncio"

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Pika:
        return Pika(place)


class Pika(Connection):
    def __init__(self, place: Place) -> None:
        self._place = place
        self._answers = False

    async def open(self) -> None:
        self._connection, self._channel = await opened(self._place)

    async def subscribe(self, topic: str, received: Received) -> None:
        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            drive(received((body,)))

        self._answers = True
        await answered(self._channel.queue_declare, topic, auto_delete=True)
        await answered(self._channel.basic_consume, topic, take, auto_ack=True)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Publish, and wait for room in the write buffer.

        A connection that subscribes does not wait, as its callback cannot; it sends only answers.
        """
        publish = self._channel.basic_publish
        if self._connection.is_closed:
            return
        for payload in payloads:
            publish("", topic, payload)
        if not self._answers:
            await room(self._connection)

    async def flush(self) -> None:
        await room(self._connection, 0)

    async def close(self) -> None:
        if self._connection.is_open:
            self._connection.close()


async def opened(place: Place) -> tuple[Any, Any]:
    """Open a connection in the running loop, and a channel."""
    pika, adapter = import_module("pika"), import_module("pika.adapters.asyncio_connection")
    loop = asyncio.get_running_loop()
    opening = loop.create_future()
    adapter.AsyncioConnection(
        pika.ConnectionParameters(HOST, place.ports[0], heartbeat=0),
        on_open_callback=opening.set_result,
        on_open_error_callback=lambda _, error: opening.set_exception(error),
    )
    connection = await opening
    opening = loop.create_future()
    connection.channel(on_open_callback=opening.set_result)
    return connection, await opening


async def answered(call: Callable[..., Any], *words: Any, **settings: Any) -> Any:
    """Call a method of a channel and wait for its answer."""
    future = asyncio.get_running_loop().create_future()
    call(*words, **settings, callback=future.set_result)
    return await future


async def room(connection: Any, buffer_bytes: int = BUFFER_BYTES_MAX) -> None:
    """Wait until at most `buffer_bytes` wait in pika, which accepts any amount and has no public way to ask for it."""
    while connection.is_open:
        if connection._transport.get_write_buffer_size() <= buffer_bytes:
            return
        await asyncio.sleep(BUFFER_S)


SYSTEMS = (RabbitMQ(),)
