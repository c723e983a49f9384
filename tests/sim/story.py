"""A random run: load on every messaging pattern and faults of every kind, then no more faults; all from one seed."""

from __future__ import annotations

from random import Random

from mesh.protocol.interest import POLICIES

from .sim_node import Setup, SimNode
from .wire import OPEN
from .world import SMALL, World, every

TOPICS = ["a.b", "a.c", "b", "c.d.e"]
PATTERNS = ["a.*", "a.b", ">", "c.>", "b"]
FEW, MANY = 5, 20
FAULTS_S = 15.0


class Story:
    """One random run, started by `tell`; the invariants are those of `World`. Seeds that end in 0 have many nodes."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.nodes = MANY if seed % 10 == 0 else FEW
        self.world = World(seed, latency_s=self.rng.choice([(1e-4, 2e-3), (1e-3, 0.03)]))
        self.peace = False
        self.faults = 0

    def setup(self) -> Setup:
        """Return random settings: small limits that differ between nodes, and clocks that differ."""
        rng = self.rng
        settings = dict(SMALL)
        if rng.random() < 0.3:
            settings |= {"frame_bytes_max": 8 << 10, "chunk_bytes": 2 << 10}
        if rng.random() < 0.3:
            settings |= {"window_bytes": 32 << 10, "outbox_bytes": 64 << 10}
        return Setup(
            settings=settings, concurrency=rng.choice([1, 4, 16]),
            queue_max=rng.choice([2, 20]), wall_skew_s=rng.uniform(-120, 120),
        )  # fmt: skip

    def tell(self) -> World:
        world, rng = self.world, self.rng
        for _ in range(self.nodes):
            world.start(self.setup())
        for node in world.nodes[1:]:
            node.find(world.nodes[0])
        world.network.run_until(world.converged, 5.0, "linked from one seed")
        for node in world.nodes:
            self._subscribe(node)
        world.network.run(0.5)
        every(world.network, lambda: rng.expovariate(60), self._load)
        every(world.network, lambda: rng.expovariate(1.2), self._fault)
        world.network.run(FAULTS_S)
        self.peace = True
        world.finish()
        return world

    # Load

    def _subscribe(self, node: SimNode) -> None:
        rng = self.rng
        limit = rng.choice([1 << 10, 8 << 10, 64 << 10])
        self.world.topics.subscribe(
            node, rng.choice(PATTERNS), rng.choice(POLICIES), limit,
            rng.choice([0.0, 0.001, 0.02]),
        )  # fmt: skip

    def _load(self) -> None:
        world, rng = self.world, self.rng
        if self.peace:
            return
        running = [node for node in world.running() if not node.leaving]
        if not running:
            return
        node = rng.choice(running)
        what = rng.random()
        if what < 0.45:
            world.requests.random_request(node)
        elif what < 0.5:
            world.requests.gather(node)
        elif what < 0.8:
            world.topics.random_publish(node, TOPICS)
        elif what < 0.88:
            world.requests.broadcast(node)
        elif what < 0.98:
            world.tunnels.open(node, plain=rng.random() < 0.5)
        elif what < 0.99:
            self._subscribe(node)
        else:
            mine = [one for one in world.topics.readers if one.node is node and not one.closed]
            if mine:
                world.topics.unsubscribe(rng.choice(mine))

    # Faults

    def _fault(self) -> None:
        if self.peace:
            return
        self.faults += 1
        faults = [
            self._reset, self._reset, self._reset_all, self._kill, self._restart, self._freeze,
            self._block, self._cut, self._part, self._heal, self._join, self._leave,
        ]  # fmt: skip
        self.rng.choice(faults)()

    def _reset(self) -> None:
        network = self.world.network
        open_now = [one for one in network.connections if one.state == OPEN]
        if open_now:
            connection = self.rng.choice(open_now)
            names = " ".join(node.name for node in connection.ends)
            network.note("wire", f"reset lane {connection.dial.lane} {names}")
            network.reset(connection)

    def _reset_all(self) -> None:
        self.world.network.note("wire", "reset all")
        for connection in list(self.world.network.connections):
            self.world.network.reset(connection)

    def _victim(self) -> SimNode | None:
        running = self.world.running()
        return self.rng.choice(running) if len(running) > self.nodes // 2 + 1 else None

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.world.kill(victim)

    def _restart(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.world.kill(victim)
            delay_s = self.rng.choice([0.0, 0.01, 0.5, 3.0])
            self.world.network.after(delay_s, lambda: self._again(victim))

    def _again(self, victim: SimNode) -> None:
        new = self.world.restart(victim)
        self._introduce(new)

    def _introduce(self, new: SimNode) -> None:
        self._subscribe(new)
        self._seek(new)

    def _seek(self, new: SimNode) -> None:
        """Report seeds every now and then, as a finder does."""
        if new.dead:
            return
        others = [node for node in self.world.nodes if node is not new]
        if new.loop_runs and others:
            new.find(self.rng.choice(others))
        self.world.network.after(1.0, lambda: self._seek(new))

    def _join(self) -> None:
        if len(self.world.nodes) < 2 * self.nodes:
            self._introduce(self.world.start(self.setup()))

    def _leave(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.world.leave(victim)

    def _freeze(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.freeze()
            self.world.network.after(self.rng.choice([0.3, 2.5, 5.0, 20.0]), victim.resume)

    def _block(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.block()
            self.world.network.after(self.rng.choice([0.1, 2.0, 5.0, 10.0]), victim.resume)

    def _cut(self) -> None:
        one, other = self.rng.sample(self.world.nodes, 2)
        self.world.network.cut_path(one.host, other.host)

    def _part(self) -> None:
        hosts = [node.host for node in self.world.nodes]
        self.rng.shuffle(hosts)
        at = self.rng.randrange(1, len(hosts))
        for one in hosts[:at]:
            for other in hosts[at:]:
                self.world.network.cut_path(one, other)
                self.world.network.cut_path(other, one)
        self.world.network.after(self.rng.choice([0.5, 4.0, 9.0]), self.world.network.heal)

    def _heal(self) -> None:
        self.world.network.heal()
