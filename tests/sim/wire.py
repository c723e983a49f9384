"""The wire of a simulated network: virtual time, TCP-like connections, and their faults.

    dial ──SYN──> refused | no answer (cut, SIGSTOP) | backlog (loop blocked) | denied | OPEN
    OPEN: two FIFO streams with latency. A cut path holds bytes until it heals; an end that hears
    nothing for 3 s ends the connection, as ZMTP heartbeats do; a reset loses what is in flight.

A seed always gives the same run: every event has a time and a number, and `log`, with its running checksum of
all frames, is the same line for line. `digest` is a hash of the whole log.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from mesh.protocol.instructions import Dial, ProbeResult

if TYPE_CHECKING:
    from .sim_node import SimNode

HEARTBEAT_TIMEOUT_S, HEARTBEAT_S = 3.0, 1.0
HANDSHAKE_S = 1.0
PROBE_S = 1.0
BYTES_PER_S = 200e6
DIALLER, ACCEPTOR = 0, 1
CONNECTING, OPEN, ENDED = "connecting", "open", "ended"


class Stream:
    """One direction of a connection. `held`: frames stopped by a cut path, which TCP will send again."""

    __slots__ = ("arrives_s", "generation", "held")

    def __init__(self) -> None:
        self.arrives_s = 0.0
        self.generation = 0
        self.held: list[bytes | None] = []

    def drop(self) -> None:
        self.generation += 1
        self.held.clear()


class Connection:
    """One TCP connection. `known[side]`: whether the transport of that end still considers it open."""

    def __init__(self, dialler: SimNode, dial: Dial) -> None:
        self.ends: list[SimNode] = [dialler]
        self.dial = dial
        self.names: tuple[int, bytes] = (dial.conn, b"")
        self.user = ""
        self.state = CONNECTING
        self.known = [True, False]
        self.early: list[bytes] = []
        self.streams = (Stream(), Stream())
        self.deaf_since_s: list[float | None] = [None, None]
        self.broken = False
        """Reset: nothing gets through any more, whether or not the ends have noticed."""

    @property
    def sides(self) -> range:
        """The existing ends: only the dialler's until the connection is accepted."""
        return range(len(self.ends))


class Network:
    """The clock, the wire and all nodes on it."""

    def __init__(self, seed: int, *, latency_s: tuple[float, float] = (0.0001, 0.002)) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.latency_range_s = latency_s
        self.now_s = 0.0
        self.log: list[str] = []
        self._frames = self._frames_crc = 0
        self.nodes: list[SimNode] = []
        self.listening: dict[str, SimNode] = {}
        self.hosts: dict[str, str] = {}
        """The host of every address that was ever used; it answers for a process that is gone."""
        self.cut: dict[tuple[str, str], None] = {}
        self.connections: dict[Connection, None] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    # Time

    def at(self, at_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (max(at_s, self.now_s), next(self._order), event))

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        self.at(self.now_s + delay_s, event)

    def run(self, for_s: float) -> None:
        """Let virtual time pass."""
        until_s = self.now_s + for_s
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, event = heapq.heappop(heap)
            event()
        self.now_s = until_s

    def run_until(self, condition: Callable[[], bool], within_s: float, what: str = "") -> float:
        """Let time pass until `condition` holds; return how long that took, in s."""
        start_s = self.now_s
        while not condition():
            assert self.now_s - start_s < within_s, f"not within {within_s} s: {what}"
            self.run(0.01)
        return self.now_s - start_s

    def note(self, who: str, text: str) -> None:
        self.log.append(f"{self.now_s:.6f} {who} {text} [{self._frames} {self._frames_crc:08x}]")

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.log).encode()).hexdigest()

    def latency_s(self) -> float:
        return self.rng.uniform(*self.latency_range_s)

    # Paths

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self.cut

    def cut_path(self, sender: str, receiver: str) -> None:
        """From now on nothing from host `sender` reaches host `receiver`."""
        self.cut[sender, receiver] = None
        self.note("wire", f"cut {sender} -> {receiver}")
        self.hearing_changed()

    def heal(self) -> None:
        """Every path works again; what TCP kept arrives a little later."""
        if not self.cut:
            return
        self.cut.clear()
        self.note("wire", "heal")
        self.hearing_changed()
        for connection in self.connections:
            for side in (DIALLER, ACCEPTOR):
                if connection.streams[side].held:
                    delay_s = self.rng.uniform(0.01, 0.4)
                    self.after(delay_s, self._flusher(connection, side))

    def _flusher(self, connection: Connection, side: int) -> Callable[[], None]:
        def flush() -> None:
            stream = connection.streams[side]
            sender, receiver = connection.ends[side], connection.ends[1 - side]
            if self.is_cut(sender.host, receiver.host):
                return
            held, stream.held = stream.held, []
            for item in held:
                receiver.transport.kernel(connection, 1 - side, item)

        return flush

    def hearing_changed(self) -> None:
        """Called when a path or a process has changed: start the timeouts of ends that hear nothing now."""
        for connection in list(self.connections):
            self._hearing_of(connection)

    def _hearing_of(self, connection: Connection) -> None:
        if connection.state != OPEN:
            return
        for side in (DIALLER, ACCEPTOR):
            here, there = connection.ends[side], connection.ends[1 - side]
            hears = there.io_runs and not self.is_cut(there.host, here.host)
            if hears or not here.io_runs:
                connection.deaf_since_s[side] = None
            elif connection.known[side] and connection.deaf_since_s[side] is None:
                connection.deaf_since_s[side] = self.now_s
                delay_s = HEARTBEAT_TIMEOUT_S + self.rng.uniform(0, 0.9 * HEARTBEAT_S)
                self.after(delay_s, self._listener(connection, side, self.now_s))

    def _listener(self, connection: Connection, side: int, since_s: float) -> Callable[[], None]:
        def timeout() -> None:
            node = connection.ends[side]
            if connection.known[side] and connection.deaf_since_s[side] == since_s:
                self.close(connection, side, graceful=False)
                node.transport.ended(connection, side)

        return timeout

    # Connections

    def dial(self, node: SimNode, dial: Dial) -> Connection:
        connection = Connection(node, dial)
        self.connections[connection] = None
        self.after(self.latency_s(), lambda: self._syn(connection))
        timeout_s = HANDSHAKE_S + self.rng.uniform(0, 0.01)
        self.after(timeout_s, lambda: self._refuse(connection))
        return connection

    def _refuse(self, connection: Connection, *, denied: bool = False) -> None:
        if connection.state == CONNECTING:
            connection.state, connection.known = ENDED, [False, False]
            self.connections.pop(connection, None)
            connection.ends[DIALLER].transport.ended(connection, DIALLER, denied=denied)

    def _parted(self, one: str, other: str) -> bool:
        return self.is_cut(one, other) or self.is_cut(other, one)

    def _syn(self, connection: Connection) -> None:
        endpoint = connection.dial.endpoint
        host = self.hosts.get(endpoint)
        if connection.state != CONNECTING or host is None:
            return
        if self._parted(connection.ends[DIALLER].host, host):
            return
        listener = self.listening.get(endpoint)
        if listener is None:
            self.after(self.latency_s(), lambda: self._refuse(connection))
        elif not listener.loop_runs:  # The kernel accepts it; ZAP gets no answer.
            listener.transport.backlog.append(connection)
        else:
            self.after(2 * self.latency_s(), lambda: self.establish(connection))

    def establish(self, connection: Connection) -> None:
        """Complete the handshake and the admission of a connection, or refuse it."""
        dial, dialler = connection.dial, connection.ends[DIALLER]
        listener = self.listening.get(dial.endpoint)
        if connection.state != CONNECTING or not dialler.io_runs:
            return
        if listener is None:
            self._refuse(connection)
            return
        if not listener.loop_runs:
            listener.transport.backlog.append(connection)
            return
        if self._parted(dialler.host, listener.host):
            return
        user = listener.keyring.admit(dial.client.public)
        if user is None or listener.public_at[dial.endpoint] != dial.server.public:
            self._refuse(connection, denied=True)
            return
        connection.state, connection.user = OPEN, user
        connection.known[ACCEPTOR] = True
        connection.ends.append(listener)
        connection.names = (dial.conn, listener.transport.accepted(connection))
        early, connection.early = connection.early, []
        for frame in early:
            self.transmit(connection, DIALLER, frame)
        self._hearing_of(connection)

    def transmit(self, connection: Connection, side: int, item: bytes | None) -> None:
        """Send a frame, or None for the end of the stream."""
        if connection.broken:
            return
        stream = connection.streams[side]
        size = len(item) if item is not None else 0
        arrives_s = max(stream.arrives_s, self.now_s + self.latency_s()) + size / BYTES_PER_S
        stream.arrives_s = arrives_s
        generation = stream.generation
        sender, receiver = connection.ends[side], connection.ends[1 - side]

        def arrive() -> None:
            if generation != stream.generation:
                return
            if stream.held or self.is_cut(sender.host, receiver.host):
                stream.held.append(item)
                return
            if item is not None:
                self._frames += 1
                self._frames_crc = crc32(item, self._frames_crc)
            receiver.transport.kernel(connection, 1 - side, item)

        self.at(arrives_s, arrive)

    def close(self, connection: Connection, side: int, *, graceful: bool) -> None:
        """Close one end. Unless `graceful`, frames in flight from it are lost."""
        if connection.state == CONNECTING:
            connection.state, connection.known = ENDED, [False, False]
            self.connections.pop(connection, None)
            return
        if not connection.known[side]:
            return
        connection.known[side] = False
        connection.streams[1 - side].drop()
        if not graceful:
            connection.streams[side].drop()
        if connection.known[1 - side]:
            self.transmit(connection, side, None)
        self._maybe_over(connection)

    def ended_at(self, connection: Connection, side: int) -> None:
        """Record that one end has noticed the end of the connection."""
        connection.known[side] = False
        self._maybe_over(connection)

    def _maybe_over(self, connection: Connection) -> None:
        if connection.known == [False, False]:
            connection.state = ENDED
            self.connections.pop(connection, None)

    def reset(self, connection: Connection) -> None:
        """Reset with RST: frames in flight are lost both ways; both ends notice a little later."""
        if connection.state != OPEN or connection.broken:
            return
        connection.broken = True
        for side in (DIALLER, ACCEPTOR):
            connection.streams[side].drop()
            if connection.known[side]:
                self.after(self.latency_s(), self._ender(connection, side))

    def _ender(self, connection: Connection, side: int) -> Callable[[], None]:
        return lambda: connection.ends[side].transport.kernel(connection, side, None)

    # Probes

    def probe(self, node: SimNode, endpoint: str, answer: Callable[[ProbeResult], None]) -> None:
        """Find out what a connection to `endpoint` would meet, and pass it to `answer`."""
        host = self.hosts.get(endpoint, "")

        def arrive() -> None:
            if self._parted(node.host, host):
                self.after(PROBE_S, lambda: answer(ProbeResult.SILENT))
            else:
                found = ProbeResult.LISTENS if endpoint in self.listening else ProbeResult.REFUSED
                self.after(self.latency_s(), lambda: answer(found))

        self.after(self.latency_s(), arrive)
