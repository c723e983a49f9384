"""Mosquitto and gmqtt: asyncio."""

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
"""MQTT 3.1.1, as all clients here."""
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
        # What a connection misses while it is made again is lost, and is to be seen.
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
        """From a callback it cannot wait for room, and only answers are sent there."""
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
        """gmqtt takes as much as it is given, and has no public word for how much it holds."""
        transport = self._client._connection._transport
        while not transport.is_closing():
            if transport.get_write_buffer_size() <= buffer_bytes:
                return
            await asyncio.sleep(BUFFER_S)


SYSTEMS = (MosquittoGmqtt(),)
