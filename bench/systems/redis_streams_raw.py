"""Redis streams without a client library: RESP2 over a socket, the same commands as through redis-py."""

from __future__ import annotations

from collections.abc import Sequence

from bench.loops.loop import Loop

from .raw_frames import Cut, Frames
from .raw_stored import RawConsumer, RawPublisher, RawStored
from .redis import PACKAGE, PROGRAM
from .redis_raw import END, command
from .redis_streams import FIELD, READ_COUNT, STREAM, server_that_syncs
from .system import UNREAD_BYTES_MAX, Command, Place, Received, not_installed

ID_BYTES_MAX = 64
"""Upper bound for an entry's id and the bytes around it."""
READ_HEAD = f"*1\r\n*2\r\n${len(STREAM)}\r\n{STREAM}\r\n*".encode()


class RedisStreamsRaw(RawStored):
    def __init__(self, *, each: bool = False) -> None:
        how = "one at a time" if each else "up to 500 in one write"
        client = f"XADD over a socket, {how}; XREAD of up to 500"
        super().__init__("redis-streams-raw", client, "batched fsync", each=each)

    def missing(self) -> str | None:
        return not_installed(program=PROGRAM, package=PACKAGE)

    def commands(self, place: Place) -> list[Command]:
        return [server_that_syncs(place)]

    def publisher(self, place: Place, loop: Loop, replied: Received | None) -> Appender:
        return Appender(place, loop, replied)

    def consumer(self, place: Place, loop: Loop, received: Received) -> Reader:
        return Reader(place, loop, received)


class Appender(RawPublisher):
    def greet(self) -> None:
        self.stream.write(command("PING"))
        self.stream.read_past(b"+PONG\r\n")

    def frames(self) -> NameFrames:
        return NameFrames()

    def around(self) -> tuple[bytes, bytes]:
        size_bytes = self.place.size_bytes
        kept = str(UNREAD_BYTES_MAX // size_bytes)
        words = ("XADD", STREAM, "MAXLEN", "~", kept, "*", FIELD.decode())
        return command(*words, size_bytes=size_bytes), END


class NameFrames(Frames):
    """The ids of added entries: a line with the length of each, and a line with the id."""

    def cut(self, data: bytes) -> Cut:
        used = data.rfind(END) + len(END)
        if used < len(END):
            return [], 0, len(data) + 1
        lines = data[:used].split(END)[:-1]
        if refused := [line for line in lines if line.startswith(b"-")]:
            raise ConnectionError(f"the server answers {refused[0]!r}")
        return [line for line in lines if not line.startswith(b"$")], used, 1


class Reader(RawConsumer):
    def greet(self) -> None:
        self.stream.write(command("PING"))
        self.stream.read_past(b"+PONG\r\n")

    def frames(self) -> EntryFrames:
        self._entries = EntryFrames(self.place.size_bytes)
        return self._entries

    def begin(self) -> None:
        """Ask for further entries; the server answers once there are some."""
        words = ("XREAD", "COUNT", str(READ_COUNT), "BLOCK", "0", "STREAMS", STREAM)
        self.stream.write(command(*words, self._entries.last))

    async def took(self, parts: Sequence[bytes]) -> None:
        if not self._entries.left:
            self.begin()
        await self.received(parts)


class EntryFrames(Frames):
    """Answers to XREAD: a count of entries, each with its id and one field.

    `left` is how many entries of the current answer are missing, `last` the id of the last answer's last entry.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        field = FIELD.decode()
        self._mark = f"\r\n*2\r\n${len(field)}\r\n{field}\r\n${size_bytes}\r\n".encode()
        self.left, self.last = 0, "0"

    def cut(self, data: bytes) -> Cut:
        payloads, at, size = list[bytes](), 0, len(data)
        while at < size:
            if not self.left:
                end = data.find(END, at + len(READ_HEAD))
                if end < 0:
                    return payloads, at, size - at + 1
                if not data.startswith(READ_HEAD, at):
                    raise ValueError(f"not a delivery: {data[at : at + 100]!r}")
                self.left = int(data[at + len(READ_HEAD) : end])
                at = end + len(END)
                continue
            found = data.find(self._mark, at, at + ID_BYTES_MAX + len(self._mark))
            if found < 0:
                if size - at >= ID_BYTES_MAX + len(self._mark):
                    raise ValueError(f"not a delivery: {data[at : at + 100]!r}")
                return payloads, at, size - at + 1
            start = found + len(self._mark)
            end = start + self._size_bytes + len(END)
            if end > size:
                return payloads, at, end - at
            payloads.append(data[start : end - len(END)])
            self.left -= 1
            if not self.left:
                self.last = data[at:found].rpartition(END)[2].decode()
            at = end
        return payloads, at, 1


SYSTEMS = (RedisStreamsRaw(), RedisStreamsRaw(each=True))
