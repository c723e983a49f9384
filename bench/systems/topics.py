"""Systems that carry payloads under topics: all four clients are made from one kind of connection.

All connections send requests under one topic; the number of a request tells which connection sent it. Each connection
has a topic of its own for replies.
"""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from bench.loops import Loop

from .system import Place, Received, System

REQUESTS, MESSAGES = "requests", "messages"
KNOCK_NS, LOOK_NS = 50_000_000, 2_000_000
"""How long to wait for the answer to a knock, and how often to check: 25 connections knock one after the other."""
KNOCKS_MAX = 200
_number_of = struct.Struct("<q").unpack_from


def reply_topic(connection: int) -> str:
    return f"replies{connection}"


def knock(size_bytes: int) -> bytes:
    """Return a knock: a payload of the size of a request, with number -1, which no request has."""
    return b"\xff" * 8 + bytes(size_bytes - 8)


async def until_answered(
    loop: Loop, send: Callable[[], Awaitable[None]], answered: Callable[[], bool]
) -> None:
    """Send a knock repeatedly until there is an answer. Raises TimeoutError after KNOCKS_MAX."""
    for _ in range(KNOCKS_MAX):
        await send()
        knocked_ns = time.perf_counter_ns()
        while time.perf_counter_ns() - knocked_ns < KNOCK_NS:
            await loop.until(time.perf_counter_ns() + LOOK_NS)
            if answered():
                return
    raise TimeoutError(f"no answer to {KNOCKS_MAX} knocks")


class Connection(ABC):
    """One connection of a client, independent of how the client waits."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def subscribe(self, topic: str, received: Received) -> None:
        """Await `received` with payloads in the order received; return when the system knows of the subscription."""

    @abstractmethod
    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Send in order; return when there is room for more."""

    async def flush(self) -> None:
        """Wait until everything has left this process."""
        return

    @abstractmethod
    async def close(self) -> None: ...


class TopicSystem(System):
    @abstractmethod
    def connect(self, place: Place, loop: Loop, *, first: bool) -> Connection:
        """Make a connection. `first`: that of the responder or consumer, which exists before the others."""

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> TopicRequester:
        return TopicRequester(self.connect(place, loop, first=False), place, loop, number, replied)

    def responder(self, place: Place, loop: Loop) -> TopicResponder:
        return TopicResponder(self.connect(place, loop, first=True), place)

    def producer(self, place: Place, loop: Loop) -> TopicProducer:
        return TopicProducer(self.connect(place, loop, first=False))

    def consumer(self, place: Place, loop: Loop, received: Received) -> TopicConsumer:
        return TopicConsumer(self.connect(place, loop, first=True), received)


class TopicRequester:
    def __init__(
        self, connection: Connection, place: Place, loop: Loop, number: int, replied: Received
    ) -> None:
        self._connection, self._place, self._loop = connection, place, loop
        self._number, self._replied = number, replied
        self._answered = False

    async def setup(self) -> None:
        """Connect, and knock until there is an answer: only then do both sides know of each other.

        Raises:
            TimeoutError: nobody answered.
        """
        await self._connection.open()
        await self._connection.subscribe(reply_topic(self._number), self._received)
        # A knock's number does not tell its connection, so each knock is answered to all connections.
        await until_answered(self._loop, self._knock, lambda: self._answered)

    async def _knock(self) -> None:
        await self._connection.send(REQUESTS, [knock(self._place.size_bytes)])
        await self._connection.flush()

    async def _received(self, payloads: Sequence[bytes]) -> None:
        self._answered = True
        await self._replied(payloads)

    async def request(self, payload: bytes) -> None:
        await self._connection.send(REQUESTS, [payload])

    async def teardown(self) -> None:
        await self._connection.close()


class TopicResponder:
    def __init__(self, connection: Connection, place: Place) -> None:
        self._connection = connection
        self._topics = [reply_topic(number) for number in range(place.connections)]

    async def setup(self) -> None:
        await self._connection.open()
        await self._connection.subscribe(REQUESTS, self._answer)

    async def _answer(self, payloads: Sequence[bytes]) -> None:
        topics, send = self._topics, self._connection.send
        if len(topics) == 1:
            await send(topics[0], payloads)
            return
        for payload in payloads:
            (number,) = _number_of(payload)
            if number >= 0:
                await send(topics[number % len(topics)], [payload])
                continue
            for topic in topics:
                await send(topic, [payload])

    async def teardown(self) -> None:
        await self._connection.close()


class TopicProducer:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def setup(self) -> None:
        await self._connection.open()

    async def publish(self, payloads: Sequence[bytes]) -> None:
        await self._connection.send(MESSAGES, payloads)

    async def flush(self) -> None:
        await self._connection.flush()

    async def teardown(self) -> None:
        await self._connection.close()


class TopicConsumer:
    def __init__(self, connection: Connection, received: Received) -> None:
        self._connection, self._received = connection, received

    async def setup(self) -> None:
        await self._connection.open()
        await self._connection.subscribe(MESSAGES, self._received)

    async def settle(self) -> None:
        return

    async def teardown(self) -> None:
        await self._connection.close()
