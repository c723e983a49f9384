"""Protocols of two ends and no server, without their library on either: a connection for each topic.

The side that takes listens, as with their libraries.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Sequence

from bench.loops.loop import Loop

from .nng import topic_ports
from .raw_frames import FixedFrames
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
        """What stands before a payload of that size. Behind it nothing does."""

    @abstractmethod
    def greet(self, stream: Stream, *, takes: bool) -> None:
        """Begin as either side. Raises ConnectionError: the other side speaks something else."""


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
            self._protocol.greet(stream, takes=True)
            stream.follow(self._loop, FixedFrames(self._head, self._size_bytes, 0), received)

        self._loop.watch(listening.fileno(), accept)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """All of them in one write. Where nobody listens yet, they are lost, and soon seen to be."""
        stream = self._sending.get(topic)
        if stream is None:
            try:
                stream = dial(self._port(topic))
            except ConnectionRefusedError:
                return
            self._protocol.greet(stream, takes=False)
            self._sending[topic] = stream
        head = self._head
        stream.write(head + head.join(payloads))

    def _port(self, topic: str) -> int:
        return self._ports.get(topic, self._first_port)

    async def close(self) -> None:
        for listening in self._listening:
            listening.close()
        for stream in (*self._taking, *self._sending.values()):
            stream.close()


def expect(stream: Stream, wanted: bytes) -> None:
    """Raises ConnectionError: the other side begins with something else."""
    found = stream.read_exactly(len(wanted))
    if found != wanted:
        raise ConnectionError(f"the other side greets with {found!r}")
