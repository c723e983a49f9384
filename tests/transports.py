"""A transport whose sockets are in memory, where nothing takes time: what is sent has come."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import zmq

from mesh.config import MeshConfig
from mesh.zmq_socket import ZmqSocket
from mesh.zmq_transport import ZmqTransport
from security.keyring import Keyring


class InMemory:
    """Base of its Receiver; for as long as the block lasts."""

    def __init__(self, keyring: Keyring) -> None:
        config = MeshConfig(clusters=("databases",), zeroconf=False)
        self.transport = ZmqTransport(config, keyring)
        self.transport._receiver = self  # type: ignore[assignment]
        self._sockets = self.transport._sockets

    def router(self, address: str) -> ZmqSocket:
        """One of its sockets, there."""
        socket = self.transport._router()
        socket.raw.bind(address)
        return socket

    def send(self, address: str, name: bytes, frames: int, frame: bytes) -> None:
        """Somebody of this name connects, and sends so many."""
        raw = self.transport._context.socket(zmq.DEALER)
        self._sockets.append(ZmqSocket(raw))
        raw.setsockopt(zmq.SNDHWM, 0)
        raw.setsockopt(zmq.ROUTING_ID, name)
        raw.connect(address)
        for _ in range(frames):
            raw.send(frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for socket in self._sockets:
            socket.close()
        self.transport._context.term()
