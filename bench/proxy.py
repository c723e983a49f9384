"""A TCP proxy that resets its connections on command.

    client --> listen endpoint | proxy | --> target endpoint

`reset` sends RST both ways, so neither end sees an orderly close and data in transit is lost, as when a middlebox drops
a long connection or a cable is pulled.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass, field

import trio

CHUNK_BYTES = 1 << 18
LINGER_ZERO = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class Connection:
    """A client's connection, and the proxy's own connection to the target."""

    client: trio.socket.SocketType
    target: trio.socket.SocketType
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def reset(self) -> None:
        """Close both with RST; their two `_pump` tasks end."""
        for socket in (self.client, self.target):
            with contextlib.suppress(OSError):
                socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, LINGER_ZERO)
            socket.close()
        self.scope.cancel()


class Proxy:
    """Forwards to `target` (host, port) from a port of its own; `serve` runs it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._connections: set[Connection] = set()
        self.accepted = 0
        self.forwarded_bytes = 0
        """Since the last reset, in both directions."""

    async def serve(
        self,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        *,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Forward until cancelled. `task_status` gets the port that the proxy listens on."""
        with trio.socket.socket() as listener:
            listener.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
            await listener.bind(listen)
            listener.listen()
            async with trio.open_nursery() as nursery:
                task_status.started(listener.getsockname()[1])
                while True:
                    client, _ = await listener.accept()
                    self.accepted += 1
                    nursery.start_soon(self._forward, client)

    def saw(self, data: bytes) -> None:
        """Called with all forwarded data; a subclass may override it."""

    def reset(self) -> int:
        """Reset every connection and return how many there were."""
        connections, self._connections = self._connections, set()
        for connection in connections:
            connection.reset()
        self.forwarded_bytes = 0
        return len(connections)

    async def _forward(self, client: trio.socket.SocketType) -> None:
        with client, trio.socket.socket() as target:
            connection = Connection(client, target)
            try:
                await target.connect(self._target)
            except OSError:
                return  # Nothing listens there: the client sees its connection close, as it would without the proxy.
            for socket in (client, target):
                socket.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
            self._connections.add(connection)
            try:
                with connection.scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._pump, client, target, connection.scope)
                        nursery.start_soon(self._pump, target, client, connection.scope)
            finally:
                self._connections.discard(connection)

    async def _pump(
        self,
        source: trio.socket.SocketType,
        sink: trio.socket.SocketType,
        both: trio.CancelScope,
    ) -> None:
        """Forward until `source` ends: an orderly end is passed on, an error ends both directions."""
        try:
            while data := await source.recv(CHUNK_BYTES):
                self.forwarded_bytes += len(data)
                self.saw(data)
                view = memoryview(data)
                while view:
                    view = view[await sink.send(view) :]
            sink.shutdown(trio.socket.SHUT_WR)
        except (OSError, trio.ClosedResourceError):
            both.cancel()
