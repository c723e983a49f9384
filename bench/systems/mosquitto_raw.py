"""Mosquitto without a client library: MQTT 3.1.1 packets, QoS 0. A delivery has the same bytes as its publish."""

from __future__ import annotations

from bench.loops.loop import Loop

from .mosquitto import MosquittoSystem
from .raw_frames import FixedFrames, varint
from .raw_socket import RawConnection, RawSystem
from .system import Place

# Protocol level 4 (MQTT 3.1.1), clean session, no keep-alive, and an empty client id: the server makes one up.
CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
CONNECTED, SUBSCRIBED = b"\x20\x02\x00\x00", b"\x90\x03\x00\x01"
NUMBER_BYTES = 2
"""Size of a packet identifier, which only packets have that are acked."""


class MosquittoRaw(MosquittoSystem, RawSystem):
    name = "mosquitto-raw"
    client = "MQTT 3.1.1 packets over a socket, QoS 0, up to 500 in one write"

    def connect(self, place: Place, loop: Loop, *, first: bool) -> MqttBytes:
        return MqttBytes(place, loop)


class MqttBytes(RawConnection):
    qos = 0

    def greet(self) -> None:
        self._ask(CONNECT, CONNECTED)

    def subscribe_to(self, topic: str) -> None:
        qos = bytes([self.qos])
        self._ask(b"\x82" + counted(b"\x00\x01" + text(topic) + qos), SUBSCRIBED + qos)

    def ask(self, topic: str) -> FixedFrames:
        self.subscribe_to(topic)
        size_bytes = self.place.size_bytes
        return FixedFrames(publish_head(topic, size_bytes), size_bytes, 0)

    def around(self, topic: str) -> tuple[bytes, bytes]:
        return publish_head(topic, self.place.size_bytes), b""

    def _ask(self, packet: bytes, want: bytes) -> None:
        self.stream.write(packet)
        answer = self.stream.read_exactly(len(want))
        if answer != want:
            raise ConnectionError(f"the server answers {answer!r}")


def publish_head(topic: str, size_bytes: int, qos: int = 0) -> bytes:
    """Return a PUBLISH packet up to its identifier (QoS 1) or payload (QoS 0)."""
    name = text(topic)
    rest_bytes = len(name) + (NUMBER_BYTES if qos else 0) + size_bytes
    return bytes([0x30 | qos << 1]) + varint(rest_bytes) + name


def text(words: str) -> bytes:
    data = words.encode()
    return len(data).to_bytes(2, "big") + data


def counted(data: bytes) -> bytes:
    return varint(len(data)) + data


SYSTEMS = (MosquittoRaw(),)
