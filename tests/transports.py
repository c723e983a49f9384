"""A transport whose sockets are in memory, where nothing takes time: a message has arrived when it is sent."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import zmq

from mesh.config import MeshConfig
from mesh.zmq_socket import ZmqSocket
from mesh.zmq_transport import ZmqTransport
from security.keyring import Keyring


class InMemory:
    """Base class of the transport's receiver; the end of the block closes all sockets."""

    def __init__(self, keyring: Keyring) -> None:
        config = MeshConfig(clusters=("databases",), zeroconf=False)
        self.transport = ZmqTransport(config, keyring)
        self.transport._receiver = self  # type: ignore[assignment]
        self._sockets = self.transport._sockets

    def router(self, address: str) -> ZmqSocket:
        """Return one of its sockets, bound to `address`."""
        socket = self.transport._router()
        socket.raw.bind(address)
        return socket

    def send(self, address: str, name: bytes, frames: int, frame: bytes) -> None:
        """Connect a peer of this name, which sends `frame` as often as `frames` says."""
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
