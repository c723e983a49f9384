"""ZeroMQ through pyzmq, without the mesh: the reference of every comparison.

DEALER to ROUTER for requests, PUSH to PULL at full throttle; the answering or receiving side binds. Packed: up to
PACKED_COUNT payloads in one message. CURVE: encrypted as the mesh's links are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import zmq
import zmq.utils.z85 as z85

from bench.loops import Loop
from bench.loops.loop import drive
from bench.roles.raw_socket import dial_with_curve, serve_with_curve

from .system import HOST, Place, Received, System
from .topics import knock, until_answered

PACKED_COUNT = 64
HIGH_WATER = 10_000
"""High-water mark of each side, in payloads."""
LINGER_MS = 10_000
HANDED_ON = 500


class ZeroMQ(System):
    loop = "blocking"

    def __init__(self, *, packed: bool = False, curve: bool = False) -> None:
        self._packed, self._curve = packed, curve
        self.latency = not packed
        self.name = "zeromq" + "-packed" * packed + "-curve" * curve
        how = f"{PACKED_COUNT} payloads a message" if packed else "a payload a message"
        self.client = f"pyzmq, {how}{', CURVE' * curve}"

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Dealer:
        return Dealer(self._socket(place, loop, zmq.DEALER), place, loop, replied)

    def responder(self, place: Place, loop: Loop) -> Router:
        return Router(self._socket(place, loop, zmq.ROUTER))

    def producer(self, place: Place, loop: Loop) -> Push:
        return Push(self._socket(place, loop, zmq.PUSH), packed=self._packed)

    def consumer(self, place: Place, loop: Loop, received: Received) -> Pull:
        if self._packed:
            received = unpacked(received, place.size_bytes)
        return Pull(self._socket(place, loop, zmq.PULL), received)

    def _socket(self, place: Place, loop: Loop, kind: int) -> Socket:
        keys = curve_keys(place.secret) if self._curve else None
        return Socket(place, loop, kind, keys, HIGH_WATER // (PACKED_COUNT if self._packed else 1))


class Socket:
    """A socket that connects or binds; `watch` passes on whole messages, as many as are there."""

    def __init__(
        self, place: Place, loop: Loop, kind: int, keys: dict[str, str] | None, high_water: int
    ) -> None:
        self._place, self._loop, self._keys = place, loop, keys
        # One I/O thread for all sockets of a process, as pyzmq's documentation suggests.
        self.raw: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        for side in (zmq.SNDHWM, zmq.RCVHWM):
            self.raw.setsockopt(side, high_water)
        self.raw.setsockopt(zmq.LINGER, LINGER_MS)

    def dial(self) -> None:
        dial_with_curve(self.raw, self._keys)
        self.raw.connect(f"tcp://{HOST}:{self._place.ports[0]}")

    def listen(self) -> None:
        serve_with_curve(self.raw, self._keys)
        self.raw.bind(f"tcp://{HOST}:{self._place.ports[0]}")

    def watch(self, received: Received, *, routed: bool = False) -> None:
        """Await `received` with messages; if `routed`, with the parts of each message.

        The descriptor is edge-triggered, so each time everything that has arrived is taken.
        """
        self._received, self._routed = received, routed
        self._loop.watch(int(self.raw.fileno()), self.drain)

    def drain(self) -> None:
        receive, messages = self.raw.recv, list[bytes]()
        add, received = messages.append, self._received
        try:
            if self._routed:
                while True:
                    drive(received(self.raw.recv_multipart(zmq.NOBLOCK)))
            while True:
                for _ in range(HANDED_ON):
                    add(receive(zmq.NOBLOCK))
                drive(received(messages))
                messages.clear()
        except zmq.Again:
            if messages:
                drive(received(messages))

    def close(self) -> None:
        self.raw.close()


class Dealer:
    def __init__(self, socket: Socket, place: Place, loop: Loop, replied: Received) -> None:
        self._socket, self._place, self._loop, self._replied = socket, place, loop, replied
        self._answered = False

    async def setup(self) -> None:
        """Connect, and knock until there is an answer. Raises TimeoutError if there is none."""
        self._socket.dial()
        self._socket.watch(self._received)
        knocking = partial(self.request, knock(self._place.size_bytes))
        await until_answered(self._loop, knocking, lambda: self._answered)

    async def _received(self, payloads: Sequence[bytes]) -> None:
        self._answered = True
        await self._replied(payloads)

    async def request(self, payload: bytes) -> None:
        self._socket.raw.send(payload)
        # A send also processes what has arrived, and the descriptor does not signal that again.
        self._socket.drain()

    async def teardown(self) -> None:
        self._socket.close()


class Router:
    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def setup(self) -> None:
        self._socket.listen()
        self._socket.watch(self._answer, routed=True)

    async def _answer(self, message: Sequence[bytes]) -> None:
        self._socket.raw.send_multipart(message)

    async def teardown(self) -> None:
        self._socket.close()


class Push:
    def __init__(self, socket: Socket, *, packed: bool) -> None:
        self._socket, self._packed = socket, packed

    async def setup(self) -> None:
        self._socket.dial()

    async def publish(self, payloads: Sequence[bytes]) -> None:
        send = self._socket.raw.send
        if self._packed:
            for first in range(0, len(payloads), PACKED_COUNT):
                send(b"".join(payloads[first : first + PACKED_COUNT]))
        else:
            for payload in payloads:
                send(payload)

    async def flush(self) -> None:
        return

    async def teardown(self) -> None:
        self._socket.close()


class Pull:
    def __init__(self, socket: Socket, received: Received) -> None:
        self._socket, self._received = socket, received

    async def setup(self) -> None:
        self._socket.listen()
        self._socket.watch(self._received)

    async def settle(self) -> None:
        return

    async def teardown(self) -> None:
        self._socket.close()


def unpacked(received: Received, size_bytes: int) -> Received:
    """Return a `received` that splits packed messages into payloads of `size_bytes`."""

    async def receive(frames: Sequence[bytes]) -> None:
        await received([
            frame[at : at + size_bytes]
            for frame in frames
            for at in range(0, len(frame), size_bytes)
        ])  # fmt: skip

    return receive


def curve_keys(secret: str) -> dict[str, str]:
    """Return a key pair for each side, the same in every process that knows the secret."""
    # Imported here, as systems without encryption do not need it.
    from nacl.public import PrivateKey

    keys = {}
    for side in ("server", "client"):
        private = PrivateKey.from_seed(f"{side} {secret}".encode().rjust(32)[-32:])
        keys[f"{side}_secret"] = z85.encode(bytes(private)).decode()
        keys[f"{side}_public"] = z85.encode(bytes(private.public_key)).decode()
    return keys


SYSTEMS = (ZeroMQ(), ZeroMQ(packed=True), ZeroMQ(curve=True))
