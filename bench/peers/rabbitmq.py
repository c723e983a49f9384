"""RabbitMQ 3.10 and pika, whose SelectConnection is the one that can have many confirms outstanding."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.systems import rabbitmq_server

from .peer import ACK_COUNT, HOST, OUTSTANDING, SILENCE_S_MAX, Command

PROMISES = {
    "classic": "that it is on disk, one fsync for many",
    "quorum": "that the log of its only member is on disk, one fdatasync for many",
}
"""As strace saw 3.10.8: 7 fsync and 56 fdatasync for 5,000 messages, OUTSTANDING at a time."""
PERSISTENT = 2


@dataclass(frozen=True, slots=True)
class RabbitMQ:
    queue_type: str

    @property
    def name(self) -> str:
        return f"RabbitMQ {self.queue_type} queue, pika"

    @property
    def promise(self) -> str:
        return PROMISES[self.queue_type]

    def missing(self) -> str | None:
        return rabbitmq_server.missing("pika")

    def commands(self, directory: Path, ports: Sequence[int]) -> list[Command]:
        return rabbitmq_server.commands(directory, ports)

    @contextmanager
    def publisher(self, port: int, queue: str) -> Iterator[Publisher]:
        with connected(port) as (connection, channel):
            arguments = {"x-queue-type": self.queue_type}
            answered(connection, channel.queue_declare, queue, durable=True, arguments=arguments)
            yield Publisher(connection, channel, queue)

    @contextmanager
    def consumer(self, port: int, queue: str) -> Iterator[Consumer]:
        with connected(port) as (connection, channel):
            answered(connection, channel.basic_qos, prefetch_count=OUTSTANDING)
            yield Consumer(connection, channel, queue)


@contextmanager
def connected(port: int) -> Iterator[tuple[Any, Any]]:
    """A connection, whose loop runs only while somebody waits, and a channel."""
    pika = import_module("pika")

    def refused(_: Any, error: Exception) -> None:
        raise error

    connection = pika.SelectConnection(
        pika.ConnectionParameters(HOST, port, heartbeat=0),
        on_open_callback=lambda opened: opened.ioloop.stop(),
        on_open_error_callback=refused,
    )
    connection.ioloop.start()
    channel = connection.channel(on_open_callback=lambda _: connection.ioloop.stop())
    connection.ioloop.start()
    channel.add_on_close_callback(refused)
    yield connection, channel


def answered(connection: Any, call: Callable[..., Any], *words: Any, **settings: Any) -> None:
    """Make a call of a channel and wait for its answer."""
    call(*words, **settings, callback=lambda _: connection.ioloop.stop())
    connection.ioloop.start()


class Publisher:
    def __init__(self, connection: Any, channel: Any, queue: str) -> None:
        pika = import_module("pika")
        self._connection, self._channel, self._queue = connection, channel, queue
        self._properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        self._unconfirmed: OrderedDict[int, None] = OrderedDict()
        self._payloads: Iterator[bytes] = iter(())
        self._sent = 0
        answered(connection, channel.confirm_delivery, self._confirmed)

    def publish(self, payloads: Sequence[bytes]) -> None:
        self._payloads = iter(payloads)
        self._fill()
        self._connection.ioloop.start()

    def _fill(self) -> None:
        """Up to the window; the loop ends when everything is confirmed."""
        unconfirmed = self._unconfirmed
        while len(unconfirmed) < OUTSTANDING:
            payload = next(self._payloads, None)
            if payload is None:
                break
            self._sent += 1
            unconfirmed[self._sent] = None
            self._channel.basic_publish("", self._queue, payload, self._properties)
        if not unconfirmed:
            self._connection.ioloop.stop()

    def _confirmed(self, frame: Any) -> None:
        method, unconfirmed = frame.method, self._unconfirmed
        if method.NAME != "Basic.Ack":
            raise RuntimeError(f"RabbitMQ refused message {method.delivery_tag}")
        if method.multiple:
            while unconfirmed and next(iter(unconfirmed)) <= method.delivery_tag:
                unconfirmed.popitem(last=False)
        else:
            del unconfirmed[method.delivery_tag]
        if len(unconfirmed) <= OUTSTANDING // 2:
            self._fill()


class Consumer:
    def __init__(self, connection: Any, channel: Any, queue: str) -> None:
        self._connection, self._channel, self._queue = connection, channel, queue
        self._chunk: list[bytes] = []
        self._left = self._last_tag = 0
        self._take: Callable[[list[bytes]], None] = lambda _: None
        answered(connection, channel.basic_consume, queue, self._received)

    def consume(self, count: int, take: Callable[[list[bytes]], None]) -> None:
        """Ends with a question that is answered behind the last ack: so that has been worked off."""
        self._left, self._take = count, take
        loop, before = self._connection.ioloop, -1

        def watch() -> None:
            nonlocal before
            if self._left == before:
                loop.stop()
            before = self._left
            self._watch = loop.call_later(SILENCE_S_MAX, watch)

        watch()
        loop.start()
        loop.remove_timeout(self._watch)
        self._hand_over()
        answered(self._connection, self._channel.queue_declare, self._queue, passive=True)

    def _received(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._chunk.append(body)
        self._last_tag = method.delivery_tag
        self._left -= 1
        if len(self._chunk) == ACK_COUNT or self._left == 0:
            self._hand_over()
        if self._left == 0:
            self._connection.ioloop.stop()

    def _hand_over(self) -> None:
        chunk, self._chunk = self._chunk, []
        if chunk:
            self._take(chunk)
            self._channel.basic_ack(self._last_tag, multiple=True)
