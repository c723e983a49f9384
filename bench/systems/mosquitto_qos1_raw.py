"""Mosquitto without a client library, QoS 1: every packet has an identifier and is acked with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.loops.loop import Loop

from .mosquitto import INFLIGHT, MosquittoSystem
from .mosquitto_raw import NUMBER_BYTES, MqttBytes, publish_head
from .raw_frames import Cut, FixedFrames, Frames
from .raw_socket import RawSystem
from .system import Place, Received

NUMBER_MAX = 0xFFFF
ANSWER, ANSWER_BYTES = b"\x40\x02", 4


class MosquittoQos1Raw(MosquittoSystem, RawSystem):
    name = "mosquitto-qos1-raw"
    client = (
        f"MQTT 3.1.1 packets over a socket, QoS 1, {INFLIGHT} unanswered, up to 500 in one write"
    )

    def connect(self, place: Place, loop: Loop, *, first: bool) -> AnsweredBytes:
        return AnsweredBytes(place, loop)


class AnsweredBytes(MqttBytes):
    qos = 1

    def __init__(self, place: Place, loop: Loop) -> None:
        super().__init__(place, loop)
        self._heads: dict[str, bytes] = {}
        self._number = self._unanswered = 0
        self._followed = self._subscribed = False

    async def subscribe(self, topic: str, received: Received) -> None:
        async def take(bodies: Sequence[bytes]) -> None:
            """Acks are sent first, as processing the payloads may take long."""
            self.stream.write(b"".join([ANSWER + body[:NUMBER_BYTES] for body in bodies]))
            await received([body[NUMBER_BYTES:] for body in bodies])

        self._followed = self._subscribed = True
        self.subscribe_to(topic)
        frames = NumberedFrames(topic, self.place.size_bytes, self._answered)
        self.stream.follow(self._loop, frames, take)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Send all payloads in one write, once few enough messages lack an ack.

        A connection that subscribes does not wait: it sends from its callback, and no more messages than it has
        received.
        """
        if not self._followed:
            self._followed = True
            self.stream.follow(self._loop, AnswerFrames(self._answered), nothing)
        self._wait(INFLIGHT - len(payloads))
        if topic not in self._heads:
            self._heads[topic] = publish_head(topic, self.place.size_bytes, self.qos)
        head, parts = self._heads[topic], list[bytes]()
        for payload in payloads:
            self._number = self._number % NUMBER_MAX + 1
            parts += (head, self._number.to_bytes(NUMBER_BYTES, "big"), payload)
        self._unanswered += len(payloads)
        self.stream.write(b"".join(parts))

    async def flush(self) -> None:
        self._wait(0)

    def _wait(self, count: int) -> None:
        while not self._subscribed and self._unanswered > count:
            self.stream.wait()

    def _answered(self) -> None:
        self._unanswered -= 1


async def nothing(payloads: Sequence[bytes]) -> None:
    """Receive for a connection without a subscription, to which only acks come."""
    assert not payloads, "only answers come"


class AnswerFrames(Frames):
    """Acks of publishes; `answered` is called for each."""

    def __init__(self, answered: Callable[[], None]) -> None:
        self._answered = answered

    def cut(self, data: bytes) -> Cut:
        used = len(data) - len(data) % ANSWER_BYTES
        for at in range(0, used, ANSWER_BYTES):
            if not data.startswith(ANSWER, at):
                raise ValueError(f"not an answer: {data[at : at + 100]!r}")
            self._answered()
        return [], used, ANSWER_BYTES


class NumberedFrames(FixedFrames):
    """Deliveries, with their identifiers before the payloads; between them, acks of own publishes."""

    def __init__(self, topic: str, size_bytes: int, answered: Callable[[], None]) -> None:
        super().__init__(publish_head(topic, size_bytes, qos=1), NUMBER_BYTES + size_bytes, 0)
        self._answered = answered

    def other(self, data: bytes, at: int) -> int:
        if not ANSWER.startswith(data[at : at + len(ANSWER)]):
            return super().other(data, at)
        if at + ANSWER_BYTES > len(data):
            return 0
        self._answered()
        return ANSWER_BYTES


SYSTEMS = (MosquittoQos1Raw(),)
