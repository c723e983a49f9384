"""ActiveMQ without a client library: STOMP 1.2 frames. Deliveries carry numbers as text, so their lengths differ."""

from __future__ import annotations

from bench.loops.loop import Loop

from .activemq import ActiveMQSystem, destination
from .raw_frames import Cut, Frames
from .raw_socket import RawConnection, RawSystem
from .system import Place

DELIVERY, HEAD_END, FRAME_END = b"MESSAGE\n", b"\n\n", b"\0"


class ActiveMQRaw(ActiveMQSystem, RawSystem):
    name = "activemq-raw"
    client = "STOMP 1.2 frames over a socket, up to 500 in one write"

    def connect(self, place: Place, loop: Loop, *, first: bool) -> StompBytes:
        return StompBytes(place, loop)


class StompBytes(RawConnection):
    def greet(self) -> None:
        self._ask("CONNECT", "accept-version:1.2", "host:bench", "heart-beat:0,0")

    def ask(self, topic: str) -> DeliveryFrames:
        self._ask("SUBSCRIBE", "id:1", f"destination:{destination(topic)}", "ack:auto", "receipt:1")
        return DeliveryFrames(self.place.size_bytes)

    def around(self, topic: str) -> tuple[bytes, bytes]:
        size = f"content-length:{self.place.size_bytes}"
        return frame("SEND", f"destination:{destination(topic)}", size), FRAME_END

    def _ask(self, *lines: str) -> None:
        self.stream.write(frame(*lines) + FRAME_END)
        answer = self.stream.read_past(FRAME_END).lstrip(b"\n")
        if not answer.startswith((b"CONNECTED\n", b"RECEIPT\n")):
            raise ConnectionError(f"the server answers {answer!r}")


class DeliveryFrames(Frames):
    """A frame is lines, an empty line, the payload and a zero byte; between frames there may be line ends."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes

    def cut(self, data: bytes) -> Cut:
        payloads, at, size, size_bytes = list[bytes](), 0, len(data), self._size_bytes
        while at < size:
            if data[at] == HEAD_END[0]:
                at += 1
                continue
            start = data.find(HEAD_END, at) + len(HEAD_END)
            if start < len(HEAD_END):
                return payloads, at, size - at + 1
            if not data.startswith(DELIVERY, at):
                raise ValueError(f"not a delivery: {data[at : at + 100]!r}")
            end = start + size_bytes + len(FRAME_END)
            if end > size:
                return payloads, at, end - at
            payloads.append(data[start : start + size_bytes])
            at = end
        return payloads, at, 1


def frame(*lines: str) -> bytes:
    """Return a frame up to its body."""
    return "\n".join(lines).encode() + HEAD_END


SYSTEMS = (ActiveMQRaw(),)
