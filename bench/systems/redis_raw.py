"""Redis publish-subscribe without a client library: its protocol (RESP3) over a socket.

RESP3 because a connection that subscribes may publish there, too.
"""

from __future__ import annotations

from bench.loops.loop import Loop

from .raw_frames import LineFrames
from .raw_socket import RawConnection, RawSystem
from .redis import NO_FILES, NO_LIMIT, PACKAGE, PROGRAM, server
from .system import Command, Place, not_installed

END = b"\r\n"


class RedisRaw(RawSystem):
    name = "redis-raw"
    client = "PUBLISH over a socket, up to 500 in one write"

    def missing(self) -> str | None:
        return not_installed(program=PROGRAM, package=PACKAGE)

    def commands(self, place: Place) -> list[Command]:
        return [server(place, *NO_FILES, *NO_LIMIT)]

    def connect(self, place: Place, loop: Loop, *, first: bool) -> RedisBytes:
        return RedisBytes(place, loop)


class RedisBytes(RawConnection):
    def greet(self) -> None:
        self.stream.write(command("HELLO", "3"))
        # The answer ends with the list of modules, which is empty.
        self.stream.read_past(b"modules\r\n*0\r\n")

    def ask(self, topic: str) -> LineFrames:
        self.stream.write(command("SUBSCRIBE", topic))
        self.stream.read_past(b":1\r\n")
        size_bytes = self.place.size_bytes
        return LineFrames(delivery_head(topic, size_bytes), size_bytes, len(END), ignore)

    def around(self, topic: str) -> tuple[bytes, bytes]:
        return command("PUBLISH", topic, size_bytes=self.place.size_bytes), END


def command(*words: str, size_bytes: int | None = None) -> bytes:
    """Encode a command; with `size_bytes`, up to the head of one more argument of that size."""
    parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
    if size_bytes is not None:
        parts.append(f"${size_bytes}\r\n")
    return f"*{len(parts)}\r\n{''.join(parts)}".encode()


def delivery_head(topic: str, size_bytes: int) -> bytes:
    return f">3\r\n$7\r\nmessage\r\n${len(topic)}\r\n{topic}\r\n${size_bytes}\r\n".encode()


def ignore(line: bytes) -> None:
    """Ignore the reply to a PUBLISH of this connection: the count of receivers."""


SYSTEMS = (RedisRaw(),)
