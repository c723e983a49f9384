"""Zenoh's wire protocol over TCP without Zenoh on either side: sessions of peers, with no router between them.

One side listens, as with Zenoh, and has a session with each peer that dials. Both declare which keys they want. Zenoh
itself passes payloads of 3,072 bytes and more through shared memory: for those this is no floor.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence

from bench.loops.loop import Loop

from .raw_socket import RawSystem, Stream, dial
from .system import HOST, Place, Received
from .topics import Connection
from .zenoh_batches import Batches, BatchFrames
from .zenoh_wire import (
    FINAL,
    ID_BYTES,
    INIT,
    INIT_ACK,
    KEY_ID,
    KIND_AND_ACK,
    LENGTH_BYTES,
    OPEN,
    OPEN_ACK,
    find_key,
    init,
    init_ack,
    open_ack,
    open_syn,
    put_head,
    read_init,
    subscribed,
)

COOKIE = b"\x00"
"""Carries no state: the connection does."""


class ZenohRaw(RawSystem):
    name = "zenoh-raw"
    client = "PUTs in batches of up to 64 KB over a socket on both sides, up to 500 in one write"

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Sessions:
        return Listener(place, loop) if first else Dialer(place, loop)


class Session:
    """One connection after its handshake."""

    def __init__(self, stream: Stream, batch_bytes_max: int, size_bytes: int) -> None:
        self._stream, self._batches = stream, Batches(batch_bytes_max)
        self._size_bytes = size_bytes
        self._declarations = b""

    def declare(self, messages: bytes) -> None:
        self._stream.write(self._batches.frame(messages))

    def wait_declared(self) -> None:
        """Wait until the other side has declared everything that it wanted before this session began."""
        while not self._declarations.endswith(FINAL):
            self._declared(read_batch(self._stream))

    def follow(self, loop: Loop, received: Received) -> None:
        head = put_head(KEY_ID, self._size_bytes)
        frames = BatchFrames(head, self._size_bytes, self._declared)
        self._stream.follow(loop, frames, received)

    def _declared(self, body: bytes) -> None:
        self._declarations += body

    def head(self, topic: str) -> bytes | None:
        """Return the head of messages put under `topic`, or None if the other side does not want it yet."""
        key_id = find_key(self._declarations, topic)
        return None if key_id is None else put_head(key_id, self._size_bytes)

    def send(self, head: bytes, payloads: Sequence[bytes]) -> None:
        for data in self._batches.puts(head, payloads):
            self._stream.write(data)

    def close(self) -> None:
        self._stream.close()


class Sessions(Connection):
    def __init__(self, place: Place, loop: Loop) -> None:
        self._port, self._size_bytes = place.ports[0], place.size_bytes
        self._loop = loop
        self._sessions: list[Session] = []
        self._puts: dict[str, tuple[Session, bytes]] = {}

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Send to the session that wants the topic. If none does yet, they are lost, which the receiver notices."""
        if topic not in self._puts:
            for session in self._sessions:
                if head := session.head(topic):
                    self._puts[topic] = session, head
        if topic in self._puts:
            session, head = self._puts[topic]
            session.send(head, payloads)

    async def close(self) -> None:
        for session in self._sessions:
            session.close()


class Dialer(Sessions):
    async def open(self) -> None:
        stream = dial(self._port)
        session = Session(stream, ask(stream), self._size_bytes)
        self._sessions.append(session)
        session.declare(FINAL)
        session.wait_declared()

    async def subscribe(self, topic: str, received: Received) -> None:
        (session,) = self._sessions
        session.declare(subscribed(topic))
        session.follow(self._loop, received)


class Listener(Sessions):
    async def open(self) -> None:
        self._listening = socket.create_server((HOST, self._port))

    async def subscribe(self, topic: str, received: Received) -> None:
        def accept() -> None:
            stream = Stream(self._listening.accept()[0])
            session = Session(stream, answer(stream), self._size_bytes)
            self._sessions.append(session)
            session.declare(subscribed(topic) + FINAL)
            session.follow(self._loop, received)

        self._loop.watch(self._listening.fileno(), accept)

    async def close(self) -> None:
        self._listening.close()
        await super().close()


def ask(stream: Stream) -> int:
    """Carry out the handshake of the dialling side, and return the longest batch that the other side accepts.

    Raises OSError if the other side does not answer, or otherwise than expected.
    """
    stream.write(init(secrets.token_bytes(ID_BYTES)))
    batch_bytes_max, cookie = read_init(read_batch(stream, INIT_ACK))
    stream.write(open_syn(cookie))
    read_batch(stream, OPEN_ACK)
    return batch_bytes_max


def answer(stream: Stream) -> int:
    """Carry out the handshake of the listening side, and return the longest batch that the other side accepts."""
    batch_bytes_max, _ = read_init(read_batch(stream, INIT))
    stream.write(init_ack(secrets.token_bytes(ID_BYTES), COOKIE))
    read_batch(stream, OPEN)
    stream.write(open_ack())
    return batch_bytes_max


def read_batch(stream: Stream, kind: int | None = None) -> bytes:
    """Read a batch, and return it without its length. Raises ConnectionError if it is not of `kind`."""
    size_bytes = int.from_bytes(stream.read_exactly(LENGTH_BYTES), "little")
    body = stream.read_exactly(size_bytes)
    if kind is not None and body[0] & KIND_AND_ACK != kind:
        raise ConnectionError(f"the other side answers {body[:100]!r}")
    return body


SYSTEMS = (ZenohRaw(),)
