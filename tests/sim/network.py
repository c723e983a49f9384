"""A whole network in one process, in virtual time: real cores and keys, simulated connections.

A connection delivers in order with latency; a reset loses what is in flight, both ways, and both
ends learn of it: the dialler at once, the acceptor when it next sends. A frozen node does nothing
and its peers lose their path to it after 3 s, as ZMTP heartbeats would tell them. One seed, one
story: `log` is the same line for line whenever a seed is run again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from mesh.config import MeshConfig
from mesh.protocol.core import Core, Identity
from mesh.protocol.dispatch import Dispatcher, Endpoint, Job
from mesh.protocol.instructions import Dial, Hangup, Probe
from mesh.protocol.lane import Conn
from mesh.protocol.membership import Change
from mesh.protocol.tunnel import TunnelEnd
from security.announcement import Endpoint as Place
from security.keyring import NetworkKeyring

SECRET = b"the secret of simulated networks"
HEARTBEAT_TIMEOUT_S = 3.0
EPOCH_US = 1_700_000_000_000_000


@dataclass(eq=False)
class Connection:
    """One connection: `ends[0]` dialled, `ends[1]` accepted; `names` are what they call it."""

    ends: tuple[SimNode, SimNode]
    names: tuple[int, bytes]
    user: str
    open: bool = True
    arrives_s: list[float] = field(default_factory=lambda: [0.0, 0.0])


class Network:
    """The clock, the wire, and everybody on it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_s = 0.0
        self.log: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.nodes: list[SimNode] = []
        self.listening: dict[str, SimNode] = {}
        self.cut: set[tuple[str, str]] = set()
        self.connections: list[Connection] = []

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._order), event))

    def run(self, for_s: float) -> None:
        """Let virtual time pass."""
        until_s = self.now_s + for_s
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        self.now_s = until_s

    def run_until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Let time pass until something holds; return how long that took. Fails after `within_s`."""
        start_s = self.now_s
        while not condition():
            assert self.now_s - start_s < within_s, f"not within {within_s} s"
            self.run(0.01)
        return self.now_s - start_s

    def note(self, node: SimNode, text: str) -> None:
        self.log.append(f"{self.now_s:.6f} {node.name} {text}")

    def latency_s(self) -> float:
        return self.rng.uniform(0.0001, 0.002)

    def parted(self, one: SimNode, other: SimNode) -> bool:
        return (one.name, other.name) in self.cut or (other.name, one.name) in self.cut

    def reset(self, connection: Connection) -> None:
        """RST: in flight is lost, both ends learn."""
        if not connection.open:
            return
        connection.open = False
        self.connections.remove(connection)
        dialler, acceptor = connection.ends
        self.after(
            self.latency_s(), lambda: dialler.hear(lambda: dialler.lost(connection.names[0]))
        )
        self.after(self.latency_s(), lambda: acceptor.hear(acceptor.inbound_lost))


class SimNode:
    """One node: a core, and a driver like the real one."""

    def __init__(
        self, network: Network, name: str, cluster: str, *, handler_s: float = 0.001
    ) -> None:
        self.network, self.name, self.cluster = network, name, cluster
        self.handler_s = handler_s
        self.dead = self.frozen = self.blocked = False
        self._waiting: list[Callable[[], None]] = []
        self._open: dict[Conn, Connection] = {}
        self._early: dict[int, list[bytes]] = {}
        self._accepted = count()
        self._tick_at_s = float("inf")
        self.executed: list[bytes] = []
        self.changes: list[tuple[float, str, str]] = []
        self.tunnels: list[TunnelEnd] = []
        self.keyring = NetworkKeyring([SECRET])
        rng = Random(network.rng.getrandbits(64))
        config = MeshConfig(clusters=(cluster,))
        identity = Identity(node=rng.randbytes(16), incarnation=self.wall_us(), host=b"one host")
        self.core = Core(
            identity, config, self.keyring, self, rng, self.wall_us,
            idempotent=(f"{cluster}/twice",),
        )  # fmt: skip
        self.core.patterns.dispatchers[cluster] = Dispatcher(
            cluster, {"default": Endpoint(), "twice": Endpoint(idempotent=True)},
            {"default": Endpoint()}, concurrency=8, queue_max=32, queue_bytes_max=1 << 20,
            start=self._start, touched=self.core.touch,
        )  # fmt: skip
        self.core.timers.sooner = self._schedule_tick
        network.nodes.append(self)
        keys = [*self.keyring.door(), *self.keyring.own(cluster)]
        self.places = [
            Place(f"tcp://127.0.0.1:{10_000 + 2 * len(network.nodes) + at}", pair.key_id)
            for at, pair in enumerate(keys)
        ]
        for place in self.places:
            network.listening[place.uri] = self
        self.core.announce(self.places, network.now_s)
        self.settle()

    def wall_us(self) -> int:
        return EPOCH_US + int(self.network.now_s * 1e6)

    def seed(self, uri: str) -> None:
        """Look there now and every 5 s, as the finder of static seeds does."""
        self.hear(lambda: self.core.found(uri, b"", self.network.now_s))
        if not self.dead:
            self.network.after(5.0, lambda: self.seed(uri))

    # The shell

    def opened(self, end: TunnelEnd, cluster: str, endpoint: str) -> str | None:
        self.tunnels.append(end)
        return None

    def changed(self, change: Change) -> None:
        self.changes.append((self.network.now_s, change.kind, change.member.node.hex()))
        self.network.note(self, f"{change.kind} {change.member.node.hex()[:8]} {change.reason}")

    def announced(self, raw: bytes) -> None:
        pass

    def freed(self) -> None:
        pass

    def grew(self) -> None:
        pass

    def log(self, text: str) -> None:
        self.network.note(self, text)

    def _start(self, job: Job) -> None:
        self.executed.append(job.payload)
        dispatcher = self.core.patterns.dispatchers[self.cluster]

        def finish() -> None:
            if job.cancelled or not job.reply:
                dispatcher.finished(job, self.network.now_s)
            else:
                dispatcher.replied(job, b"re:" + job.payload, self.network.now_s)

        delay_s = self.handler_s * self.network.rng.uniform(0.5, 1.5)
        self.network.after(delay_s, lambda: self.hear(finish))

    # Time and faults

    def hear(self, event: Callable[[], None]) -> None:
        """Something happens to this node: now, when it thaws, or never."""
        if self.dead:
            return
        if self.frozen or self.blocked:
            self._waiting.append(event)
            return
        event()
        self.settle()

    def _schedule_tick(self) -> None:
        due_s = self.core.timers.due_s()
        if due_s is not None and due_s < self._tick_at_s:
            self._tick_at_s = due_s
            self.network.after(max(0.0, due_s - self.network.now_s), self._tick)

    def _tick(self) -> None:
        self._tick_at_s = float("inf")
        if self.dead:
            return
        self.hear(lambda: self.core.tick(self.network.now_s))
        if not self._waiting:
            self._schedule_tick()

    def kill(self) -> None:
        self.dead = True
        self.network.note(self, "killed")
        for place in self.places:
            self.network.listening.pop(place.uri, None)
        for connection in list(self.network.connections):
            if self in connection.ends:
                self.network.reset(connection)

    def freeze(self) -> None:
        """SIGSTOP: nothing runs, and after three heartbeats the peers' paths are lost."""
        self.frozen = True

        def silent() -> None:
            for connection in list(self.network.connections):
                if self.frozen and self in connection.ends:
                    self.network.reset(connection)

        self.network.after(HEARTBEAT_TIMEOUT_S, silent)

    def thaw(self) -> None:
        self.frozen = self.blocked = False
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self.hear(event)
        self._schedule_tick()

    def leave(self) -> None:
        self.core.drain()
        self.core.leave(self.network.now_s)
        self.settle()
        self.network.after(0.1, self.kill)

    # The transport

    def lost(self, conn: Conn, *, denied: bool = False) -> None:
        self._open.pop(conn, None)
        self._early.pop(conn, None)  # type: ignore[call-overload]
        self.core.lost(conn, self.network.now_s, denied=denied)

    def inbound_lost(self) -> None:
        self.core.inbound_lost(self.network.now_s)

    def settle(self) -> None:
        core, at = self.core, 0
        core.flush()
        while at < len(core.out):
            item = core.out[at]
            at += 1
            if isinstance(item, tuple):
                self._send(*item)
            elif isinstance(item, Dial):
                self._dial(item)
            elif isinstance(item, Hangup):
                self._hang_up(item.conn)
            else:
                self._probe(item)
            if at == len(core.out):
                core.flush()
        core.out.clear()

    def _send(self, conn: Conn, frame: bytes) -> None:
        if isinstance(conn, int) and conn in self._early:
            self._early[conn].append(frame)
            return
        connection = self._open.get(conn)
        if connection is None or not connection.open:
            if isinstance(conn, bytes) or connection is not None:
                self._open.pop(conn, None)
                self.core.lost(conn, self.network.now_s)
            return
        side = 0 if connection.ends[0] is self and connection.names[0] == conn else 1
        network = self.network
        arrives_s = max(connection.arrives_s[side], network.now_s + network.latency_s())
        connection.arrives_s[side] = arrives_s
        other, name = connection.ends[1 - side], connection.names[1 - side]
        user = connection.user if side == 0 else None

        def arrive() -> None:
            if connection.open and not network.parted(self, other):
                other.hear(lambda: other.receive(connection, name, user, frame))

        network.after(arrives_s - network.now_s, arrive)

    def receive(self, connection: Connection, conn: Conn, user: str | None, frame: bytes) -> None:
        if self._open.get(conn) is connection:
            self.core.received(conn, user, frame, self.network.now_s)

    def _dial(self, dial: Dial) -> None:
        self._early[dial.conn] = []
        self.network.after(3 * self.network.latency_s(), lambda: self._connect(dial))

    def _connect(self, dial: Dial) -> None:
        network = self.network
        if self.dead or dial.conn not in self._early:
            return
        other = network.listening.get(dial.endpoint)
        if other is None:
            self.hear(lambda: self.lost(dial.conn))
            return
        if other.frozen or other.blocked or network.parted(self, other):
            return  # No answer: the core gives up by itself.
        user = other.keyring.admit(dial.client.public)
        keys = {place.uri: place.key_id for place in other.places}
        if user is None or keys[dial.endpoint] != dial.server.key_id:
            self.hear(lambda: self.lost(dial.conn, denied=True))
            return
        name = b"%d" % next(other._accepted)
        connection = Connection((self, other), (dial.conn, name), user)
        network.connections.append(connection)
        self._open[dial.conn] = other._open[name] = connection
        for frame in self._early.pop(dial.conn):
            self._send(dial.conn, frame)

    def _hang_up(self, conn: Conn) -> None:
        self._early.pop(conn, None)  # type: ignore[call-overload]
        connection = self._open.pop(conn, None)
        if connection is not None and isinstance(conn, int):
            self.network.reset(connection)

    def _probe(self, probe: Probe) -> None:
        network = self.network

        def answer() -> None:
            refused = probe.endpoint not in network.listening
            self.hear(lambda: self.core.probed(probe.node, network.now_s, refused=refused))

        network.after(network.latency_s(), answer)

    def knows(self, cluster: str) -> set[bytes]:
        """Members that may take a request now."""
        return {one.node for one in self.core.rotation.of_cluster(cluster)}
