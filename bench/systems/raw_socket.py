"""Protocol bytes over a socket: the floor of what a client library of that protocol can cost.

When the server ends a connection, further messages in both directions are lost. Nothing is raised here: the receiver
counts them as missing.
"""

from __future__ import annotations

import select
import socket
from abc import abstractmethod
from collections.abc import Sequence

from bench.loops.loop import Loop, drive

from .raw_frames import Frames
from .system import HOST, LoopName, Place, Received, send_at_once
from .topics import Connection, TopicSystem

RECEIVE_BYTES = 1 << 18
ANSWER_S_MAX = 20.0


class Stream:
    """A socket whose writes block and receive meanwhile: two peers that only wrote to each other would deadlock."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        send_at_once(connection)
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN | select.POLLOUT)
        self._parts: list[bytes] = []
        self._size, self._wanted = 0, 1
        self._frames: Frames | None = None
        self._busy = self.ended = False

    def follow(self, loop: Loop, frames: Frames, received: Received) -> None:
        """Treat everything received from now on as deliveries, and await `received` with their payloads."""
        self._frames, self._received = frames, received
        if not self.ended:
            loop.watch(self._socket.fileno(), self._receive)
        self._hand_over()

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self.ended:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                ((_, events),) = self._poll.poll()
                if events & ~select.POLLOUT:
                    self._read()
            except OSError:
                self.close()
        self._hand_over()

    def wait(self) -> None:
        """Wait until something has come, and hand it over. Raises OSError if nothing comes."""
        self._wait_answer()
        self._hand_over()

    def read_exactly(self, count: int) -> bytes:
        """Return that many bytes of an answer; only before `follow`. Raises OSError if they do not come."""
        while self._size < count:
            self._wait_answer()
        return self._use(count)

    def read_past(self, mark: bytes) -> bytes:
        """Return an answer up to and including the first `mark`. Raises OSError if it does not come."""
        while (found := b"".join(self._parts).find(mark)) < 0:
            self._wait_answer()
        return self._use(found + len(mark))

    def close(self) -> None:
        """Close the socket; an event loop forgets a closed descriptor by itself."""
        self.ended = True
        self._socket.close()

    def _receive(self) -> None:
        self._read()
        self._hand_over()

    def _read(self) -> None:
        if self.ended:
            return
        try:
            part = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self.close()
            return
        self._parts.append(part)
        self._size += len(part)

    def _wait_answer(self) -> None:
        if self.ended:
            raise ConnectionError(f"the server hung up after {b''.join(self._parts)!r}")
        if not select.select([self._socket], [], [], ANSWER_S_MAX)[0]:
            raise TimeoutError(f"no answer for {ANSWER_S_MAX:.0f} s")
        self._read()

    def _use(self, count: int) -> bytes:
        data = b"".join(self._parts)
        self._parts, self._size = [data[count:]], len(data) - count
        return data[:count]

    def _hand_over(self) -> None:
        """Hand over all complete payloads.

        `received` may write, and a write may receive: the inner call returns at once, and the loop of the outer call
        takes what has come.
        """
        if self._frames is None or self._busy:
            return
        self._busy = True
        try:
            while self._size >= self._wanted:
                data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts, self._size = [], 0
                payloads, used, self._wanted = self._frames.cut(data)
                if used < len(data):
                    self._parts.insert(0, data[used:])
                    self._size += len(data) - used
                if payloads:
                    drive(self._received(payloads))
        finally:
            self._busy = False


def dial(port: int) -> Stream:
    return Stream(socket.create_connection((HOST, port)))


class RawSystem(TopicSystem):
    loop: LoopName = "blocking"
    floor = True


class RawConnection(Connection):
    """A connection of a protocol that puts the same bytes before and after every payload."""

    def __init__(self, place: Place, loop: Loop) -> None:
        self.place, self._loop = place, loop
        self._around: dict[str, tuple[bytes, bytes]] = {}

    async def open(self) -> None:
        self.stream = dial(self.place.ports[0])
        self.greet()

    async def subscribe(self, topic: str, received: Received) -> None:
        self.stream.follow(self._loop, self.ask(topic), received)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Send all in one write."""
        if topic not in self._around:
            self._around[topic] = self.around(topic)
        head, tail = self._around[topic]
        parts = [head + payloads[0], *payloads[1:]]
        parts[-1] += tail
        self.stream.write((tail + head).join(parts))

    async def close(self) -> None:
        self.stream.close()

    @abstractmethod
    def greet(self) -> None:
        """Send what opens the connection, and wait for the answer."""

    @abstractmethod
    def ask(self, topic: str) -> Frames:
        """Subscribe, wait until the server has confirmed that, and return how its deliveries are framed."""

    @abstractmethod
    def around(self, topic: str) -> tuple[bytes, bytes]:
        """Return the bytes before and after a payload."""
