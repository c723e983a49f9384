"""NATS without a client library: lines and payloads as in the protocol's documentation."""

from __future__ import annotations

from bench.loops.loop import Loop

from .nats import NatsSystem, server
from .raw_frames import LineFrames
from .raw_socket import RawConnection, RawSystem
from .system import Command, Place

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"tls_required":false,"lang":"bench"}\r\n'
END = b"\r\n"


class NatsRaw(NatsSystem, RawSystem):
    modules = ()
    name = "nats-raw"
    client = "PUB and MSG over a socket, up to 500 in one write"

    def commands(self, place: Place) -> list[Command]:
        return [server(place)]

    def connect(self, place: Place, loop: Loop, *, first: bool) -> NatsBytes:
        return NatsBytes(place, loop)


class NatsBytes(RawConnection):
    def greet(self) -> None:
        self.stream.read_past(END)
        self._ask(CONNECT)

    def ask(self, topic: str) -> LineFrames:
        self._ask(f"SUB {topic} 1\r\n".encode())
        size_bytes = self.place.size_bytes
        return LineFrames(delivery_head(topic, size_bytes), size_bytes, len(END), self._line)

    def around(self, topic: str) -> tuple[bytes, bytes]:
        return f"PUB {topic} {self.place.size_bytes}\r\n".encode(), END

    def _ask(self, words: bytes) -> None:
        self.stream.write(words + b"PING\r\n")
        self.stream.read_past(b"PONG\r\n")

    def _line(self, line: bytes) -> None:
        """Answer a PING, which the server first sends soon after the start."""
        if line == b"PING":
            self.stream.write(b"PONG\r\n")


def delivery_head(topic: str, size_bytes: int) -> bytes:
    return f"MSG {topic} 1 {size_bytes}\r\n".encode()


SYSTEMS = (NatsRaw(),)
