"""Redis publish-subscribe through redis-py with hiredis. A slow subscriber is not cut off.

Pipelined: many commands share one write and one wait for the replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from bench.loops import Loop

from .redis_pipelines import Pipelines, execute
from .system import HOST, Command, Place, Promise, Received, not_installed
from .threads import Receiving
from .topics import Connection, TopicSystem

PROGRAM, PACKAGE = "redis-server", "redis-server"
MODULES = ("redis", "hiredis")
NO_FILES = ("--save", "", "--appendonly", "no")
NO_LIMIT = ("--client-output-buffer-limit", "pubsub 0 0 0")
"""By default a subscriber is cut off when it is 32 MB behind. Turned off: the limit is not what is measured."""


def server(place: Place, *settings: str) -> Command:
    """Return the server's command: in the foreground, on loopback, with its files in the bench's directory."""
    return Command([
        PROGRAM, "--bind", HOST, "--port", str(place.ports[0]), "--dir", place.directory, *settings,
    ])  # fmt: skip


class Redis(TopicSystem):
    loop = "blocking"
    promise: Promise = "memory"

    def __init__(self, *, pipelined: bool = False) -> None:
        self._pipelined = pipelined
        self.latency = pipelined
        self.name = "redis-pipelined" if pipelined else "redis"
        self.client = f"redis-py, hiredis, {'pipelines' if pipelined else 'a command at a time'}"

    def missing(self) -> str | None:
        return not_installed(program=PROGRAM, package=PACKAGE, modules=MODULES)

    def commands(self, place: Place) -> list[Command]:
        return [server(place, *NO_FILES, *NO_LIMIT)]

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Channels:
        return Channels(place, pipelined=self._pipelined)


class Channels(Connection):
    def __init__(self, place: Place, *, pipelined: bool) -> None:
        self._port, self._pipelined = place.ports[0], pipelined
        self._receiving = Receiving()
        self._subscribed: list[Any] = []

    async def open(self) -> None:
        self._client: Any = import_module("redis").Redis(HOST, self._port)
        self._client.ping()
        # If pipelined, single messages leave together with those sent meanwhile.
        self._pipelines = Pipelines(import_module("redis").Redis(HOST, self._port), lambda _: None)

    async def subscribe(self, topic: str, received: Received) -> None:
        subscribed = self._client.pubsub(ignore_subscribe_messages=True)
        subscribed.subscribe(topic)
        subscribed.get_message(timeout=1)
        self._subscribed.append(subscribed)

        def messages() -> Iterator[Sequence[bytes]]:
            for message in subscribed.listen():
                yield (message["data"],)

        self._receiving.start(messages, received)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        if not self._pipelined:
            publish = self._client.publish
            for payload in payloads:
                publish(topic, payload)
        elif len(payloads) > 1:
            execute(self._client, [("PUBLISH", topic, payload) for payload in payloads])
        else:
            self._pipelines.put(("PUBLISH", topic, payloads[0]))

    async def close(self) -> None:
        self._receiving.end()
        self._pipelines.close()
        self._client.close()


SYSTEMS = (Redis(), Redis(pipelined=True))
