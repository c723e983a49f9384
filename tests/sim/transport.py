"""The transport of one simulated process: like mesh/zmq_transport.py, on the simulated wire.

    core ──send, dial, hang up──> SimTransport ──> wire
    wire ──kernel: bytes or the end──> SimTransport ──hear──> core, once its loop runs

The end of an accepted connection may go unnoticed until the next send, as with a ROUTER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.protocol.instructions import Dial, ProbeResult
from mesh.protocol.lane import Conn

from .wire import ACCEPTOR, CONNECTING, DIALLER, Connection, Network

if TYPE_CHECKING:
    from .sim_node import SimNode


class SimTransport:
    """The transport; first the methods that the node calls, then those that the wire calls."""

    def __init__(self, network: Network, node: SimNode) -> None:
        self._network, self._node = network, node
        self.backlog: list[Connection] = []
        """Connections accepted by the kernel while the loop did not run."""
        self._kernel: list[tuple[Connection, int, bytes | None]] = []
        self._ended: list[tuple[Connection, int, bool]] = []
        """Ends that came while the process was frozen; libzmq notices them when it runs again."""
        self._by_conn: dict[Conn, Connection] = {}
        self._by_endpoint: dict[tuple[int, str], Connection] = {}
        self._ignored: set[Conn] = set()
        self._accepted = 0

    # The node

    def send(self, conn: Conn, frame: bytes) -> bool:
        connection = self._by_conn.get(conn)
        if connection is None:
            return isinstance(conn, int)
        if connection.state == CONNECTING:
            connection.early.append(frame)
        else:
            side = DIALLER if isinstance(conn, int) else ACCEPTOR
            self._network.transmit(connection, side, frame)
        return True

    def dial(self, dial: Dial) -> None:
        node = self._node
        if (dial.lane, dial.endpoint) in self._by_endpoint:
            node.later("tasks", lambda: node.core.lost(dial.conn, node.now_s))
            return
        connection = self._network.dial(node, dial)
        self._by_conn[dial.conn] = self._by_endpoint[dial.lane, dial.endpoint] = connection

    def hang_up(self, conn: Conn) -> None:
        if isinstance(conn, bytes):  # A ROUTER cannot close one accepted connection.
            self._ignored.add(conn)
            return
        connection = self._by_conn.get(conn)
        if connection is not None:
            self._forget(connection)
            self._network.close(connection, DIALLER, graceful=self._node.rng.random() < 0.5)

    def probe(self, endpoint: str, node_id: bytes) -> None:
        node = self._node

        def answer(found: ProbeResult) -> None:
            core = node.core
            node.hear("tasks", lambda: core.probed(node_id, endpoint, found, node.now_s))

        self._network.probe(node, endpoint, answer)

    def close(self, *, graceful: bool) -> None:
        """End all connections of the process."""
        for connection in list(self._network.connections):
            for side in connection.sides:
                if connection.ends[side] is self._node:
                    self._network.close(connection, side, graceful=graceful)

    def thaw(self) -> None:
        """Process what the kernel has kept, as libzmq's thread does."""
        kernel, self._kernel = self._kernel, []
        for connection, side, item in kernel:
            self.kernel(connection, side, item)
        ended, self._ended = self._ended, []
        for connection, side, denied in ended:
            self.ended(connection, side, denied=denied)

    def answer_backlog(self) -> None:
        """Complete the connections that only the kernel had accepted."""
        network = self._network
        backlog, self.backlog = self.backlog, []
        for connection in backlog:
            network.after(network.latency_s(), lambda one=connection: network.establish(one))  # type: ignore[misc]

    # The wire

    def accepted(self, connection: Connection) -> bytes:
        """Name an accepted connection."""
        self._accepted += 1
        name = b"%s#%d" % (self._node.name.encode(), self._accepted)
        self._by_conn[name] = connection
        return name

    def kernel(self, connection: Connection, side: int, item: bytes | None) -> None:
        """Take bytes, or the end of the stream (None), that have reached this machine."""
        node = self._node
        if node.dead:
            return
        if node.frozen:
            self._kernel.append((connection, side, item))
            return
        if not connection.known[side]:
            return
        if item is None:
            self._network.ended_at(connection, side)
            self.ended(connection, side)
            return
        conn = connection.names[side]
        user = connection.user if side == ACCEPTOR else None
        node.hear((connection, side), lambda: self._received(conn, user, item))

    def ended(self, connection: Connection, side: int, *, denied: bool = False) -> None:
        """Take the end of a connection, as libzmq has noticed it."""
        node = self._node
        if node.dead:
            return
        if node.frozen:
            self._ended.append((connection, side, denied))
            return
        if side == DIALLER:
            conn = connection.dial.conn
            if conn in self._by_conn:
                node.hear("monitor", lambda: self._lost(connection, conn, denied=denied))
            return
        ended = connection.names[ACCEPTOR]
        self._by_conn.pop(ended, None)
        if node.rng.random() < 0.8:  # Otherwise only the next send finds out.
            node.hear("monitor", lambda: node.core.check_inbound([ended], node.now_s))

    # Heard by the core

    def _received(self, conn: Conn, user: str | None, frame: bytes) -> None:
        if conn in self._ignored or (user is None and conn not in self._by_conn):
            return
        self._node.core.received(conn, user, frame, self._node.now_s)

    def _lost(self, connection: Connection, conn: Conn, *, denied: bool) -> None:
        if conn in self._by_conn:
            self._forget(connection)
            self._node.core.lost(conn, self._node.now_s, denied=denied)

    def _forget(self, connection: Connection) -> None:
        dial = connection.dial
        self._by_conn.pop(dial.conn, None)
        self._by_endpoint.pop((dial.lane, dial.endpoint), None)
