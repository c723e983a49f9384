"""nng's wire ("SP over TCP") without nng on either side: eight bytes from both, then length and payload.

The side that takes listens, as with nng; there is no server between them.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from bench.loops.loop import Loop

from .nng import topic_ports
from .raw_frames import FixedFrames
from .raw_socket import RawSystem, Stream, dial
from .system import HOST, Place, Received
from .topics import Connection

PUSH, PULL = 80, 81
LENGTH_BYTES = 8


class NngRaw(RawSystem):
    name = "nng-raw"
    client = "PUSH to PULL, SP over a socket on both sides, up to 500 in one write"

    def ports(self, connections: int) -> int:
        return 1 + connections

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Pipes:
        return Pipes(place, loop)


class Pipes(Connection):
    def __init__(self, place: Place, loop: Loop) -> None:
        self._loop, self._ports = loop, topic_ports(place)
        self._first_port = place.ports[0]
        self._head = place.size_bytes.to_bytes(LENGTH_BYTES, "big")
        self._size_bytes = place.size_bytes
        self._listening: list[socket.socket] = []
        self._pulls: list[Stream] = []
        self._pushes: dict[str, Stream] = {}

    async def open(self) -> None:
        return

    async def subscribe(self, topic: str, received: Received) -> None:
        listening = socket.create_server((HOST, self._port(topic)))
        self._listening.append(listening)

        def accept() -> None:
            pull = Stream(listening.accept()[0])
            self._pulls.append(pull)
            greet(pull, PULL, PUSH)
            pull.follow(self._loop, FixedFrames(self._head, self._size_bytes, 0), received)

        self._loop.watch(listening.fileno(), accept)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """All of them in one write. Where nobody listens yet, they are lost, and soon seen to be."""
        push = self._pushes.get(topic)
        if push is None:
            try:
                push = dial(self._port(topic))
            except ConnectionRefusedError:
                return
            greet(push, PUSH, PULL)
            self._pushes[topic] = push
        head = self._head
        push.write(head + head.join(payloads))

    def _port(self, topic: str) -> int:
        return self._ports.get(topic, self._first_port)

    async def close(self) -> None:
        for listening in self._listening:
            listening.close()
        for stream in (*self._pulls, *self._pushes.values()):
            stream.close()


def greeting(protocol: int) -> bytes:
    return b"\x00SP\x00" + protocol.to_bytes(2, "big") + b"\x00\x00"


def greet(stream: Stream, own: int, other: int) -> None:
    """Raises ConnectionError: the other side speaks something else."""
    stream.write(greeting(own))
    answer = stream.read_exactly(len(greeting(other)))
    if answer != greeting(other):
        raise ConnectionError(f"the other side greets with {answer!r}")


SYSTEMS = (NngRaw(),)
