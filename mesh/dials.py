"""The connections that this node has opened: at most one per socket and address, never reconnected.

When one ends, libzmq's I/O thread first reports it, and then makes its socket end every dial to that
address. A dial made in between would end, too, so the address stays occupied until `is_released`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import zmq

from security.keys import ClusterKeys

from .errors import ConfigError
from .protocol.instructions import Dial
from .protocol.lane import Conn
from .zmq_socket import NOBLOCK, SNDMORE, ZmqSocket


@dataclass(slots=True, eq=False)
class Dialled:
    """One connection that we have dialled."""

    conn: int
    socket: ZmqSocket
    rid: bytes
    endpoint: str
    descriptor: int | None = None
    """Its file descriptor; None until it has connected."""
    denied: bool | None = None
    """None: its handshake has not failed. Else whether it failed because of a key."""
    has_ended: bool = False
    """It has ended, but libzmq may still be about to end other dials to the address."""

    def is_released(self) -> bool:
        """Return whether libzmq has finished with it, so that it ends no later dial to the address."""
        self.socket.readable()  # Makes libzmq process commands from its I/O thread.
        try:
            self.socket.raw.send(self.rid, SNDMORE | NOBLOCK)
        except zmq.ZMQError:
            return True
        # A message that was begun must be completed; it is delivered nowhere.
        self.socket.raw.send(b"", NOBLOCK)
        return False


class Dials:
    """All present dials."""

    def __init__(self) -> None:
        self._by_conn: dict[Conn, Dialled] = {}
        self._by_rid: dict[bytes, Dialled] = {}
        self._by_endpoint: dict[tuple[ZmqSocket, str], Dialled] = {}

    def __len__(self) -> int:
        return len(self._by_conn)

    def by_conn(self, conn: Conn) -> Dialled | None:
        return self._by_conn.get(conn)

    def by_rid(self, rid: bytes) -> Dialled | None:
        return self._by_rid.get(rid)

    def by_endpoint(self, socket: ZmqSocket, endpoint: str) -> Dialled | None:
        return self._by_endpoint.get((socket, endpoint))

    def connect(self, socket: ZmqSocket, dial: Dial, endpoint: str) -> bool:
        """Dial. Return False if the address is invalid, or already dialled: then this peer cannot be there."""
        if (socket, endpoint) in self._by_endpoint:
            return False
        raw, rid = socket.raw, b"\x01" + struct.pack("<Q", dial.conn)
        raw.setsockopt(zmq.CURVE_SERVERKEY, dial.server.public)
        raw.setsockopt(zmq.CURVE_PUBLICKEY, dial.client.public)
        raw.setsockopt(zmq.CURVE_SECRETKEY, secret_of(dial.client))
        raw.setsockopt(zmq.CONNECT_ROUTING_ID, rid)
        raw.setsockopt(zmq.IPV6, int("[" in endpoint))
        try:
            raw.connect(endpoint)
        except zmq.ZMQError:
            return False
        self.add(Dialled(dial.conn, socket, rid, endpoint))
        return True

    def add(self, dialled: Dialled) -> None:
        self._by_conn[dialled.conn] = self._by_rid[dialled.rid] = dialled
        self._by_endpoint[dialled.socket, dialled.endpoint] = dialled

    def forget(self, dialled: Dialled) -> None:
        """Forget a dial; does nothing if it is forgotten already."""
        if self._by_conn.pop(dialled.conn, None) is not None:
            del self._by_rid[dialled.rid], self._by_endpoint[dialled.socket, dialled.endpoint]


def secret_of(keys: ClusterKeys) -> bytes:
    """Return the secret half. Raises ConfigError if we do not have it."""
    if keys.secret is None:
        raise ConfigError(f"no secret key of cluster {keys.cluster!r}")
    return keys.secret
