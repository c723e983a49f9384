"""One simulated process: a real core, and a driver like mesh/driver.py's on a simulated transport.

    frozen    SIGSTOP: the kernel keeps what arrives, nothing is answered, timers are late
    blocked   the event loop hangs: libzmq's thread runs, so paths stay up and frames wait
    dead      kill -9: connections end, dials are refused

Events that wait while the node does not run are delivered in a random order that keeps the order within each source:
frames of one connection, monitor events, the clock, tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import NoReturn, cast

from mesh.config import MeshConfig
from mesh.driver import GOODBYE_S, Driver
from mesh.node import Node
from mesh.protocol.carrying import carry_out
from mesh.protocol.core import Core
from mesh.protocol.dispatch import Dispatcher, Endpoint, Job
from mesh.protocol.identity import Identity
from mesh.protocol.membership import Change
from mesh.protocol.timers import Timer
from mesh.protocol.topics import TopicStream
from mesh.protocol.tunnel import TunnelEnd
from security.announcement import Endpoint as Place
from security.keyring import Keyring, NetworkKeyring

from .transport import SimTransport
from .wire import Network

SECRET = b"the secret of simulated networks"
EPOCH_US = 1_700_000_000_000_000
REPLY, FAIL, NEVER = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What a handler does with one job."""

    delay_s: float = 0.001
    outcome: int = REPLY
    reply: bytes = b""


@dataclass(slots=True)
class Hooks:
    """Callbacks of the workload for events of a node."""

    serve: Callable[[SimNode, Job], Plan] = lambda _node, _job: Plan()
    opened: Callable[[SimNode, TunnelEnd, str], None] = lambda *_: None
    freed: Callable[[SimNode], None] = lambda _node: None
    link_down: Callable[[SimNode, bytes], None] = lambda *_: None


@dataclass(slots=True)
class Setup:
    """Settings of a node. Its endpoints are `default`, `twice` (idempotent) and `closed` (allows nobody)."""

    clusters: tuple[str, ...] = ("x",)
    settings: dict[str, float | int] = field(default_factory=dict)
    concurrency: int = 8
    queue_max: int = 64
    wall_skew_s: float = 0.0
    keyring: Keyring | None = None
    addresses: tuple[str, ...] = ()


class SimNode:
    """A simulated node. It implements the core's Shell; its transport calls `hear` for incoming events."""

    def __init__(self, network: Network, name: str, setup: Setup, hooks: Hooks) -> None:
        self.network, self.name, self.setup, self.hooks = network, name, setup, hooks
        self.host = name.partition("'")[0]
        self.dead = self.frozen = self.blocked = self.leaving = False
        self.paused_s: list[tuple[float, float]] = []
        """(start, end) of times when it did not run, in network time; the last one may have no end yet."""
        self._waiting: dict[Hashable, list[Callable[[], None]]] = {}
        self._tick_at_s = inf
        self._pump_due = False
        self.changes: list[tuple[float, Change]] = []
        self.rng = Random(network.rng.getrandbits(64))
        self._offset_s = float(self.rng.randrange(1, 1 << 16))
        self.keyring = setup.keyring or NetworkKeyring([SECRET])
        self.transport = SimTransport(network, self)
        self._make_core()
        network.nodes.append(self)
        self._listen()

    def __repr__(self) -> str:
        return f"<{self.name} {self.id.hex()[:8]}>"

    def _make_core(self) -> None:
        setup = self.setup
        config = MeshConfig(clusters=setup.clusters, **setup.settings)  # type: ignore[arg-type]
        self.id = self.rng.randbytes(16)
        identity = Identity(node=self.id, incarnation=self.wall_us(), host=b"one host")
        names = {"default": Endpoint(), "twice": Endpoint(idempotent=True)}
        endpoints = {**names, "closed": Endpoint(allow=frozenset())}
        self.core = core = Core(
            identity, config, self.keyring, self, self.rng, self.wall_us,
            idempotent=tuple(f"{cluster}/twice" for cluster in setup.clusters),
        )  # fmt: skip
        core.timers.on_earlier = self._schedule_tick
        for cluster in setup.clusters:
            core.patterns.dispatchers[cluster] = Dispatcher(
                cluster, endpoints, {"default": Endpoint()}, concurrency=setup.concurrency,
                queue_max=setup.queue_max, queue_bytes_max=1 << 20,
                start=lambda job, cluster=cluster: self._start(cluster, job),  # type: ignore[misc]
                request_flush=core.request_flush,
            )  # fmt: skip
            core.patterns.tunnels.endpoints[cluster] = {"plain": Endpoint(), "any": Endpoint()}
        self.node = Node(cast("Driver", self), config)

    def _listen(self) -> None:
        network = self.network
        pairs = [*self.keyring.door()]
        for cluster in self.setup.clusters:
            pairs += self.keyring.own(cluster)
        uris = self.setup.addresses or tuple(
            f"tcp://127.0.0.1:{10_000 + 16 * len(network.nodes) + at}" for at in range(len(pairs))
        )
        self.addresses = uris
        self.public_at = {uri: pair.public for uri, pair in zip(uris, pairs, strict=True)}
        for uri in uris:
            assert uri not in network.listening, "address in use"
            network.listening[uri] = self
            network.hosts[uri] = self.host
        self.places = [Place(uri, pair.key_id) for uri, pair in zip(uris, pairs, strict=True)]
        network.note(self.name, f"starts as {self.id.hex()[:8]}")
        self.core.announce(self.places, self.now_s)
        self.flush()

    # Clocks

    @property
    def now_s(self) -> float:
        """This node's own monotonic clock, with an arbitrary start."""
        return self.network.now_s + self._offset_s

    def wall_us(self) -> int:
        return EPOCH_US + int((self.network.now_s + self.setup.wall_skew_s) * 1e6)

    def _schedule_tick(self) -> None:
        due_s = self.core.timers.due_s()
        if due_s < self._tick_at_s:
            self._tick_at_s = due_s
            self.network.at(due_s - self._offset_s, lambda: self._wake(due_s))

    def _wake(self, due_s: float) -> None:
        if self._tick_at_s == due_s:
            self.hear("clock", lambda: self._tick(due_s))

    def _tick(self, due_s: float) -> None:
        self._tick_at_s = inf
        self.core.tick(max(self.now_s, due_s))  # A rounding error must not make it early.
        self._schedule_tick()

    # Shell

    def opened(self, end: TunnelEnd, cluster: str, endpoint: str) -> None:
        self.hooks.opened(self, end, endpoint)

    def member_changed(self, change: Change) -> None:
        self.changes.append((self.network.now_s, change))
        who = change.member.node
        self.network.note(self.name, f"{change.kind} {who.hex()[:8]} {change.reason}")
        if change.kind in ("dead", "left"):
            self.hooks.link_down(self, who)

    def announced(self, raw: bytes) -> None:
        pass

    def streams_freed(self, streams: Sequence[TopicStream]) -> None:
        self.later("tasks", lambda: self.hooks.freed(self))

    def audience_grew(self) -> None:
        pass

    def log(self, text: str) -> None:
        self.network.note(self.name, text)

    def _start(self, cluster: str, job: Job) -> None:
        """Run a handler as mesh/workers.py does: the deadline and the caller's cancellation end it."""
        plan = self.hooks.serve(self, job)
        dispatcher = self.core.patterns.dispatchers[cluster]
        left_s = float("inf") if job.deadline_s is None else job.deadline_s - self.now_s
        over = False

        def end() -> None:
            nonlocal over
            if over:
                return
            over, job.cancel = True, None
            late = job.deadline_s is not None and self.now_s >= job.deadline_s
            if job.cancelled or late or not job.reply:
                dispatcher.expired += late
                dispatcher.finished(job, self.now_s)
            elif plan.outcome == REPLY:
                dispatcher.replied(job, plan.reply, self.now_s)
            else:
                dispatcher.raised(job, "planned", "as planned", self.now_s)

        job.cancel = lambda: self.later("tasks", end)
        delay_s = plan.delay_s if plan.outcome != NEVER else float("inf")
        assert min(delay_s, left_s) < float("inf"), "a handler without end"
        self.later("tasks", end, delay_s=min(delay_s, max(left_s, 0.0)))

    # Driver

    def later(self, source: Hashable, event: Callable[[], None], *, delay_s: float = 0.0) -> None:
        """Run a step of a task, now or after a sleep."""
        self.network.after(delay_s, lambda: self.hear(source, event))

    def hear(self, source: Hashable, event: Callable[[], None]) -> None:
        """Deliver an event to this node: now, when it runs again, or never if it is dead."""
        if self.dead:
            return
        if not self.loop_runs:
            self._waiting.setdefault(source, []).append(event)
            return
        event()
        self.flush()

    def wake_pump(self) -> None:
        if not self._pump_due:
            self._pump_due = True
            self.later("tasks", self._pump)

    def check_thread(self) -> None:
        """Nothing to check: there is only one thread."""

    def end_if_forked(self) -> None:
        """It is never forked."""

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self.core.timers.call_at(self.now_s + seconds, lambda _now_s: call())

    def within(self, seconds: float) -> NoReturn:
        """Not used, as there are no tasks."""
        raise NotImplementedError

    def append_first(self, stream: TopicStream, payload: bytes, size_bytes: int) -> None:
        stream.payloads.append(payload)
        stream.size_bytes = size_bytes
        self.core.patterns.publisher.mark_dirty(stream)
        self.schedule_flush()

    def schedule_flush(self) -> None:
        self.wake_pump()

    def _pump(self) -> None:
        self._pump_due = False

    def flush(self) -> None:
        """Flush the core and carry out all its instructions, including those that follow from them."""
        carry_out(self.core, self.transport, lambda: self.now_s)

    # Faults

    @property
    def io_runs(self) -> bool:
        return not (self.dead or self.frozen)

    @property
    def loop_runs(self) -> bool:
        return not (self.dead or self.frozen or self.blocked)

    def kill(self, *, graceful: bool = False) -> None:
        """kill -9, or the exit after a goodbye."""
        self.network.note(self.name, "killed" if not graceful else "exits")
        self._pause()
        self.dead = True
        for uri in self.addresses:
            self.network.listening.pop(uri, None)
        self.transport.close(graceful=graceful)
        self.network.hearing_changed()

    def leave(self) -> None:
        """Leave as Driver.leave does: finish what runs, say goodbye, exit."""
        self.leaving = True
        self.network.note(self.name, "leaves")
        self.core.drain()
        self.flush()
        self._drained(self.now_s + self.core.config.drain_s)

    def _drained(self, until_s: float) -> None:
        if self.core.is_busy() and self.now_s < until_s:
            self.later("tasks", lambda: self._drained(until_s), delay_s=0.01)
            return
        self.core.leave(self.now_s)
        self.flush()
        self._goodbye(self.now_s + GOODBYE_S)

    def _goodbye(self, until_s: float) -> None:
        if not self.core.goodbye_acked() and self.now_s < until_s:
            self.later("tasks", lambda: self._goodbye(until_s), delay_s=0.002)
        else:
            self.kill(graceful=True)

    def freeze(self) -> None:
        self.network.note(self.name, "SIGSTOP")
        self._pause()
        self.frozen = True
        self.network.hearing_changed()

    def block(self) -> None:
        self.network.note(self.name, "loop blocked")
        self._pause()
        self.blocked = True

    def _pause(self) -> None:
        if self.loop_runs:
            self.paused_s.append((self.network.now_s, float("inf")))

    def resume(self) -> None:
        """Run again after SIGCONT or a blocked loop: deliver what has waited, in a possible order."""
        if self.dead or self.loop_runs:
            return
        self.network.note(self.name, "runs again")
        self.paused_s[-1] = (self.paused_s[-1][0], self.network.now_s)
        was_frozen, self.frozen, self.blocked = self.frozen, False, False
        if was_frozen:
            self.blocked = True  # libzmq's thread reads first; its events wait for the loop.
            self.transport.thaw()
            self.blocked = False
        self.network.hearing_changed()
        waiting, self._waiting = self._waiting, {}
        sources = list(waiting)
        while sources:
            source = self.rng.choice(sources)
            self.hear(source, waiting[source].pop(0))
            if not waiting[source]:
                sources.remove(source)
        self.transport.answer_backlog()

    def was_paused(self, from_s: float, to_s: float) -> bool:
        """Return whether it did not run at some moment of that time."""
        return any(start < to_s and end > from_s for start, end in self.paused_s)

    # For tests

    def rotation(self, cluster: str = "x") -> set[bytes]:
        """Return the members that may take a request now."""
        return {one.node for one in self.core.rotation.candidates(cluster)}

    def find(self, *seeds: SimNode) -> None:
        """Report the seeds' addresses, as a finder does."""
        for seed in seeds:
            self.core.found(seed.addresses[0], b"", self.now_s)
        self.flush()
