"""The floors of systems that store: a publisher with confirms and a consumer, each over a socket of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from bench.loops.loop import Loop, drive

from .raw_frames import Frames
from .raw_socket import dial
from .stored import StoredSystem
from .system import LoopName, Place, Promise, Received

OUTSTANDING = 2000
"""Publishes without a confirm, as many as through the libraries."""


class RawStored(StoredSystem):
    loop: LoopName = "blocking"
    floor = True

    def __init__(self, name: str, client: str, promise: Promise, *, each: bool) -> None:
        super().__init__(name, client, promise, each=each)
        self.outstanding = 1 if each else OUTSTANDING

    @abstractmethod
    def publisher(self, place: Place, loop: Loop, replied: Received | None) -> RawPublisher:
        """Make a publisher. `replied` is called with confirmed payloads under an open load; None at full throttle."""

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> RawPublisher:
        return self.publisher(place, loop, replied)

    def producer(self, place: Place, loop: Loop) -> RawPublisher:
        publisher = self.publisher(place, loop, None)
        publisher.outstanding = self.outstanding
        return publisher


class _Client(ABC):
    def __init__(self, place: Place, loop: Loop) -> None:
        self.place, self._loop = place, loop

    async def setup(self) -> None:
        self.stream = dial(self.place.ports[0])
        self.greet()
        self.stream.follow(self._loop, self.frames(), self.took)
        self.begin()

    async def teardown(self) -> None:
        self.stream.close()

    @abstractmethod
    def greet(self) -> None:
        """Open the connection and wait for the answers; afterwards the queue or stream exists."""

    @abstractmethod
    def frames(self) -> Frames:
        """Return how everything received from then on is framed."""

    @abstractmethod
    async def took(self, parts: Sequence[bytes]) -> None:
        """Take what `frames` has cut."""

    def begin(self) -> None:
        """Called once the stream is followed."""
        return


class RawPublisher(_Client):
    """Publishes under an open load or at full throttle; confirms come in the order of the publishes."""

    outstanding = OUTSTANDING

    def __init__(self, place: Place, loop: Loop, replied: Received | None) -> None:
        super().__init__(place, loop)
        self._replied = replied
        self._unconfirmed: deque[bytes] = deque()
        self._around: tuple[bytes, bytes] | None = None

    async def request(self, payload: bytes) -> None:
        self._write([payload])

    async def publish(self, payloads: Sequence[bytes]) -> None:
        """Publish; as many in one write as may be outstanding."""
        for at in range(0, len(payloads), self.outstanding):
            some = payloads[at : at + self.outstanding]
            self._wait(self.outstanding - len(some))
            self._write(some)

    async def flush(self) -> None:
        self._wait(0)

    async def took(self, parts: Sequence[bytes]) -> None:
        payloads = [self._unconfirmed.popleft() for _ in range(self.confirmed(parts))]
        if self._replied:
            drive(self._replied(payloads))

    def confirmed(self, parts: Sequence[bytes]) -> int:
        """Return how many more are confirmed. Raises OSError if the server refuses one."""
        return len(parts)

    @abstractmethod
    def around(self) -> tuple[bytes, bytes]:
        """Return the bytes before and after a payload."""

    def bodies(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        """Return what is sent between them for each payload."""
        return payloads

    def _write(self, payloads: Sequence[bytes]) -> None:
        if self._around is None:
            self._around = self.around()
        head, tail = self._around
        self._unconfirmed.extend(payloads)
        bodies = self.bodies(payloads)
        parts = [head + bodies[0], *bodies[1:]]
        parts[-1] += tail
        self.stream.write((tail + head).join(parts))

    def _wait(self, count: int) -> None:
        """Wait until at most `count` are unconfirmed. Raises OSError if no confirm comes."""
        while len(self._unconfirmed) > count:
            self.stream.wait()


class RawConsumer(_Client):
    def __init__(self, place: Place, loop: Loop, received: Received) -> None:
        super().__init__(place, loop)
        self.received = received

    async def settle(self) -> None:
        return
