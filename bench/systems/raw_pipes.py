"""Protocols between two peers without a server, without their library on either side: a connection for each topic.

The receiving side listens, as with their libraries. Neither side waits for the other's greeting: two programs that dial
each other at the same time would deadlock, each in a call and not in its loop.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Sequence

from bench.loops.loop import Loop

from .nng import topic_ports
from .raw_frames import FixedFrames, GreetedFrames
from .raw_socket import RawSystem, Stream, dial
from .system import HOST, Place, Received
from .topics import Connection


class RawPipes(RawSystem):
    def ports(self, connections: int) -> int:
        return 1 + connections

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Pipes:
        return Pipes(place, loop, self)

    @abstractmethod
    def head(self, size_bytes: int) -> bytes:
        """Return the bytes before a payload of that size; after it there are none."""

    @abstractmethod
    def greeting(self, *, takes: bool) -> bytes:
        """Return the greeting of the receiving (`takes`) or of the sending side."""


class Pipes(Connection):
    def __init__(self, place: Place, loop: Loop, protocol: RawPipes) -> None:
        self._loop, self._ports, self._protocol = loop, topic_ports(place), protocol
        self._first_port = place.ports[0]
        self._head = protocol.head(place.size_bytes)
        self._size_bytes = place.size_bytes
        self._listening: list[socket.socket] = []
        self._taking: list[Stream] = []
        self._sending: dict[str, Stream] = {}

    async def open(self) -> None:
        return

    async def subscribe(self, topic: str, received: Received) -> None:
        listening = socket.create_server((HOST, self._port(topic)))
        self._listening.append(listening)

        def accept() -> None:
            stream = Stream(listening.accept()[0])
            self._taking.append(stream)
            self._greet(stream, received, takes=True)

        self._loop.watch(listening.fileno(), accept)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Send all in one write. If nobody listens yet, they are lost, which the receiver notices."""
        stream = self._sending.get(topic)
        if stream is None:
            try:
                stream = dial(self._port(topic))
            except ConnectionRefusedError:
                return
            self._greet(stream, nothing, takes=False)
            self._sending[topic] = stream
        head = self._head
        stream.write(head + head.join(payloads))

    def _greet(self, stream: Stream, received: Received, *, takes: bool) -> None:
        stream.write(self._protocol.greeting(takes=takes))
        frames = FixedFrames(self._head, self._size_bytes, 0)
        answer = self._protocol.greeting(takes=not takes)
        stream.follow(self._loop, GreetedFrames(answer, frames), received)

    def _port(self, topic: str) -> int:
        return self._ports.get(topic, self._first_port)

    async def close(self) -> None:
        for listening in self._listening:
            listening.close()
        for stream in (*self._taking, *self._sending.values()):
            stream.close()


async def nothing(payloads: Sequence[bytes]) -> None:
    """Receive on a sending side. Raises ValueError, as nothing may come there."""
    raise ValueError(f"{len(payloads)} payloads from a side that only takes")
