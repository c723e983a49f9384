"""Mosquitto and gmqtt, an asyncio client."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.loops.loop import Loop, drive

from .mosquitto import MosquittoSystem
from .system import HOST, LoopName, Place, Received
from .topics import Connection

BUFFER_BYTES_MAX = 1 << 20
BUFFER_S = 0.001
VERSION = 4
"""MQTT 3.1.1, as for all clients here."""
ANSWER_S_MAX = 60.0


class MosquittoGmqtt(MosquittoSystem):
    name = "mosquitto-gmqtt"
    client = "gmqtt, QoS 0, MQTT 3.1.1, a callback for each message"
    modules = ("gmqtt",)
    loop: LoopName = "asyncio"

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Gmqtt:
        return Gmqtt(place)


class Gmqtt(Connection):
    def __init__(self, place: Place) -> None:
        self._place = place
        self._answers = False

    async def open(self) -> None:
        self._client = import_module("gmqtt").Client(f"bench-{secrets.token_hex(8)}")
        # No reconnecting: messages missed meanwhile are lost, and must be counted as lost.
        self._client.set_config({"reconnect_retries": 0})
        await self._client.connect(HOST, self._place.ports[0], version=VERSION)

    async def subscribe(self, topic: str, received: Received) -> None:
        def take(client: Any, name: str, payload: bytes, qos: int, properties: Any) -> int:
            drive(received((payload,)))
            return 0

        subscribed = asyncio.Event()
        self._client.on_message = take
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._answers = True
        self._client.subscribe(topic, 0)
        await asyncio.wait_for(subscribed.wait(), ANSWER_S_MAX)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Publish, and wait for room in the write buffer.

        A connection that subscribes does not wait, as its callback cannot; it sends only answers.
        """
        publish = self._client.publish
        for payload in payloads:
            publish(topic, payload)
        if not self._answers:
            await self._room(BUFFER_BYTES_MAX)

    async def flush(self) -> None:
        await self._room(0)

    async def close(self) -> None:
        await self._client.disconnect()

    async def _room(self, buffer_bytes: int) -> None:
        """Wait until at most `buffer_bytes` wait in gmqtt, which takes any amount and has no public way to ask for it."""
        transport = self._client._connection._transport
        while not transport.is_closing():
            if transport.get_write_buffer_size() <= buffer_bytes:
                return
            await asyncio.sleep(BUFFER_S)


SYSTEMS = (MosquittoGmqtt(),)
