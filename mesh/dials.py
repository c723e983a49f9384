"""Connections that this node has opened: at most one per socket and address, never reconnected.

When one ends, libzmq's I/O thread reports that first and then has its socket end every dial to that
address. One that was made in between would end, too, so the address stays taken until `let_go`.
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
    """One connection that we have asked for."""

    conn: int
    socket: ZmqSocket
    rid: bytes
    endpoint: str
    descriptor: int | None = None
    """Once it has connected."""
    denied: bool | None = None
    """Its handshake has failed: whether for a key."""
    ends: bool = False
    """It has ended, and libzmq may not have let go of it."""

    def let_go(self) -> bool:
        """Whether libzmq is done with it: nothing that it has asked for is still to come."""
        self.socket.readable()  # Takes in what it has asked for.
        try:
            self.socket.raw.send(self.rid, SNDMORE | NOBLOCK)
        except zmq.ZMQError:
            return True
        self.socket.raw.send(b"", NOBLOCK)  # Begun, it has to be ended, and goes nowhere.
        return False


class Dials:
    """Those that there are."""

    def __init__(self) -> None:
        self._of_conn: dict[Conn, Dialled] = {}
        self._of_rid: dict[bytes, Dialled] = {}
        self._of_endpoint: dict[tuple[ZmqSocket, str], Dialled] = {}

    def __len__(self) -> int:
        return len(self._of_conn)

    def of(self, conn: Conn) -> Dialled | None:
        return self._of_conn.get(conn)

    def of_rid(self, rid: bytes) -> Dialled | None:
        return self._of_rid.get(rid)

    def at(self, socket: ZmqSocket, endpoint: str) -> Dialled | None:
        return self._of_endpoint.get((socket, endpoint))

    def connect(self, socket: ZmqSocket, dial: Dial, endpoint: str) -> bool:
        """False: there is one already, so another node is there and this one cannot be; or it is no address."""
        if (socket, endpoint) in self._of_endpoint:
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
        self._of_conn[dialled.conn] = self._of_rid[dialled.rid] = dialled
        self._of_endpoint[dialled.socket, dialled.endpoint] = dialled

    def forget(self, dialled: Dialled) -> None:
        """Again: nothing."""
        if self._of_conn.pop(dialled.conn, None) is not None:
            del self._of_rid[dialled.rid], self._of_endpoint[dialled.socket, dialled.endpoint]


def secret_of(keys: ClusterKeys) -> bytes:
    """Raises ConfigError: it is not ours to have."""
    if keys.secret is None:
        raise ConfigError(f"no secret key of cluster {keys.cluster!r}")
    return keys.secret
