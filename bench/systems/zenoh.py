"""Zenoh through eclipse-zenoh, peer to peer: no router, multicast off; a slow reader makes writers wait.

By default payloads of 3,072 bytes and more go through shared memory; zenoh-tcp shows what two hosts would get.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from bench.loops import Loop

from .system import HOST, Place, Received, not_installed
from .threads import Receiving
from .topics import Connection, TopicSystem


class Zenoh(TopicSystem):
    loop = "blocking"

    def __init__(self, name: str, *, shared_memory: bool) -> None:
        self.name, self._shared_memory = name, shared_memory
        self.client = "eclipse-zenoh, put, a subscriber's channel"
        if not shared_memory:
            self.client += ", no shared memory"

    def missing(self) -> str | None:
        return not_installed(modules=("zenoh",))

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Session:
        return Session(place, first=first, shared_memory=self._shared_memory)


class Session(Connection):
    def __init__(self, place: Place, *, first: bool, shared_memory: bool) -> None:
        self._address, self._first = f"tcp/{HOST}:{place.ports[0]}", first
        self._shared_memory = shared_memory
        self._receiving = Receiving()
        self._publishers: dict[str, Any] = {}

    async def open(self) -> None:
        self._zenoh: Any = import_module("zenoh")
        config = self._zenoh.Config()
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("transport/shared_memory/enabled", json.dumps(self._shared_memory))
        if self._first:
            config.insert_json5("listen/endpoints", json.dumps([self._address]))
        else:
            # By default every peer would listen, on all addresses.
            config.insert_json5("listen/endpoints", "[]")
            config.insert_json5("connect/endpoints", json.dumps([self._address]))
        self._session = self._zenoh.open(config)

    async def subscribe(self, topic: str, received: Received) -> None:
        subscriber = self._session.declare_subscriber(topic)

        def samples() -> Iterator[Sequence[bytes]]:
            for sample in subscriber:
                yield (sample.payload.to_bytes(),)

        self._receiving.start(samples, received)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        publisher = self._publishers.get(topic)
        if publisher is None:
            block = self._zenoh.CongestionControl.BLOCK
            publisher = self._session.declare_publisher(topic, congestion_control=block)
            self._publishers[topic] = publisher
        put = publisher.put
        for payload in payloads:
            put(payload)

    async def close(self) -> None:
        self._receiving.end()
        self._session.close()


SYSTEMS = (Zenoh("zenoh", shared_memory=True), Zenoh("zenoh-tcp", shared_memory=False))
