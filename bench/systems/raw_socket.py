"""Protocol bytes over a socket: what a client library of that protocol comes down to.

A connection that the server ends loses what was to come and what is sent from then on. That is
counted where it does not arrive, so nothing is raised here.
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
    """Writes wait, and read meanwhile: two that only write would stand still for ever."""

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
        """From now on everything that comes is taken for deliveries."""
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
        """Until something came, which is handed over. Raises OSError: nothing does."""
        self._wait_answer()
        self._hand_over()

    def read_exactly(self, count: int) -> bytes:
        """Of an answer, before deliveries are followed. Raises OSError: there is none."""
        while self._size < count:
            self._wait_answer()
        return self._use(count)

    def read_past(self, mark: bytes) -> bytes:
        """Of an answer, to the end of the first `mark`. Raises OSError: there is none."""
        while (found := b"".join(self._parts).find(mark)) < 0:
            self._wait_answer()
        return self._use(found + len(mark))

    def close(self) -> None:
        """An event loop forgets a descriptor that is closed."""
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
        """Who is handed something may write, and that may read: it is for the round after."""
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
    """Of a protocol in which every payload has the same bytes before and behind it."""

    def __init__(self, place: Place, loop: Loop) -> None:
        self.place, self._loop = place, loop
        self._around: dict[str, tuple[bytes, bytes]] = {}

    async def open(self) -> None:
        self.stream = dial(self.place.ports[0])
        self.greet()

    async def subscribe(self, topic: str, received: Received) -> None:
        self.stream.follow(self._loop, self.ask(topic), received)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """All of them in one write."""
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
        """Say what comes first, and wait for the answer."""

    @abstractmethod
    def ask(self, topic: str) -> Frames:
        """Subscribe, and wait until the server knows of it: what its deliveries are like."""

    @abstractmethod
    def around(self, topic: str) -> tuple[bytes, bytes]:
        """What stands before and behind a payload."""
