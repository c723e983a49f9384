"""nng (the successor of nanomsg, with the same wire protocol) through pynng: PUSH to PULL, a socket for each topic.

The receiving side listens. It blocks in a thread, which is pynng's fastest way to receive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from bench.loops import Loop

from .system import HOST, Place, Received, not_installed
from .threads import Receiving
from .topics import Connection, TopicSystem, reply_topic

BUFFERED = 8000
"""Buffer of a socket in messages; the most that nng allows."""


class Nng(TopicSystem):
    name = "nng"
    client = "pynng, a message at a time"
    loop = "blocking"

    def missing(self) -> str | None:
        return not_installed(modules=("pynng",))

    def ports(self, connections: int) -> int:
        return 1 + connections

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Pipes:
        return Pipes(place)


def topic_ports(place: Place) -> dict[str, int]:
    """Return the ports of the reply topics, which have one each; all other topics share the first port."""
    return {reply_topic(number): port for number, port in enumerate(place.ports[1:])}


class Pipes(Connection):
    def __init__(self, place: Place) -> None:
        self._ports = topic_ports(place)
        self._first_port = place.ports[0]
        self._receiving = Receiving()
        self._pulls: list[Any] = []
        self._pushes: dict[str, Any] = {}

    async def open(self) -> None:
        self._nng: Any = import_module("pynng")

    async def subscribe(self, topic: str, received: Received) -> None:
        pull = self._nng.Pull0(listen=self._address(topic), recv_buffer_size=BUFFERED)
        self._pulls.append(pull)

        def messages() -> Iterator[Sequence[bytes]]:
            while True:
                yield (pull.recv(),)

        self._receiving.start(messages, received)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        push = self._pushes.get(topic)
        if push is None:
            address = self._address(topic)
            push = self._nng.Push0(dial=address, send_buffer_size=BUFFERED)
            self._pushes[topic] = push
        for payload in payloads:
            push.send(payload)

    def _address(self, topic: str) -> str:
        return f"tcp://{HOST}:{self._ports.get(topic, self._first_port)}"

    async def close(self) -> None:
        self._receiving.end()
        for socket in (*self._pulls, *self._pushes.values()):
            socket.close()


SYSTEMS = (Nng(),)
