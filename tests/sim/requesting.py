"""Requests and broadcasts of a simulated network, and a record of each.

A request carries its number and what its handler is to do. The record knows when the request was sent, where
it ran, how often its caller was woken, and how it ended.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from mesh.errors import LimitReached, MeshError, NodeClosed, NoMembers, Overloaded, RequestTimeout
from mesh.names import DEFAULT_ENDPOINT
from mesh.protocol.balancer import Candidate
from mesh.protocol.dispatch import Job
from mesh.protocol.peering import HEARSAY_S
from mesh.protocol.request import DONE, Pending

from .sim_node import FAIL, NEVER, REPLY, Plan, SimNode
from .wire import Network

ORDER = struct.Struct("<QIBI")
"""Number, handler's time in us, outcome, size of the reply."""
LATE_S = 0.1


@dataclass(slots=True, eq=False)
class Asked:
    """One request as its caller sees it; times are those of the network."""

    number: int
    caller: SimNode
    target: str
    asked_s: float
    deadline_s: float
    outcome_wanted: int
    reply_bytes: int
    pending: Pending | None = None
    ended_s: float | None = None
    wakes: int = 0
    gave_up: bool = False
    only: bytes = b""
    """The only member that it may go to; empty for any."""
    ran_at: list[SimNode] = field(default_factory=list)

    @property
    def idempotent(self) -> bool:
        return self.target.endswith("/twice")

    @property
    def outcome(self) -> bytes | MeshError | None:
        return self.pending.outcome if self.pending is not None else None

    def __repr__(self) -> str:
        ran = ",".join(node.name for node in self.ran_at)
        return (
            f"<request {self.number} {self.caller.name}->{self.target} at {self.asked_s:.3f} "
            f"due {self.deadline_s:.3f} ended {self.ended_s} as {self.outcome!r:.80} ran at [{ran}]>"
        )


class RequestBook:
    """Every request and broadcast ever made in one network."""

    def __init__(self, network: Network, rng: Random) -> None:
        self._network, self._rng = network, rng
        self.asked: list[Asked] = []
        self.refused = 0
        self._lost: list[tuple[float, Asked]] = []
        """Requests whose only member is gone, each with the time by which the caller must have been told."""
        self.broadcasts: dict[int, int] = {}
        """By number: how many members a broadcast was sent to."""
        self.heard: dict[tuple[int, bytes], int] = {}
        self.on_end: Callable[[Asked], None] = lambda _asked: None

    def ask(
        self, caller: SimNode, target: str, *, timeout_s: float = 2.0, delay_s: float = 0.001,
        outcome: int = REPLY, size: int = 0, reply_size: int = 0, only: Candidate | None = None,
    ) -> Asked:  # fmt: skip
        """Send a request as Node.request does, but without a task."""
        network = self._network
        number = len(self.asked)
        payload = ORDER.pack(number, int(delay_s * 1e6), outcome, reply_size) + bytes(size)
        one = Asked(
            number,
            caller,
            target,
            network.now_s,
            network.now_s + timeout_s,
            outcome,
            reply_size,
            only=only.node if only is not None else b"",
        )
        self.asked.append(one)

        def wake() -> None:
            one.wakes += 1
            one.ended_s = network.now_s
            caller.later("tasks", lambda: self.on_end(one))

        limit_s = caller.now_s + timeout_s
        try:
            one.pending = caller.core.request(
                target, payload, now_s=caller.now_s, deadline_s=limit_s, expires_s=limit_s,
                wake=wake, only=only,
            )  # fmt: skip
        except (NodeClosed, LimitReached):
            self.refused += 1
            self.asked.pop()
            return one
        candidate = one.pending.candidate
        if candidate is not None and candidate.link.outstanding == 1:
            caller.flush()
        else:
            caller.wake_pump()
        return one

    def give_up(self, one: Asked) -> None:
        """End a request as if its caller's scope were cancelled."""
        if one.pending is not None and one.pending.state != DONE and one.caller.loop_runs:
            one.gave_up = True
            one.caller.core.patterns.requests.cancel(one.pending)
            one.caller.flush()

    def random_request(self, caller: SimNode, cluster: str = "x") -> Asked:
        """Send a random request: the handler takes some time, fails or never replies; sizes vary; some are given up."""
        rng = self._rng
        endpoint = rng.choice(
            ["", "", "/twice", "/closed"] if rng.random() < 0.2 else ["", "/twice"]
        )
        one = self.ask(
            caller, cluster + endpoint,
            timeout_s=rng.choice([0.05, 0.5, 2.0, 5.0]),
            delay_s=rng.choice([0.0, 0.001, 0.01, 0.2]) * rng.uniform(0.5, 2),
            outcome=rng.choices([REPLY, FAIL, NEVER], [90, 5, 5])[0],
            size=_size(rng), reply_size=_size(rng),
        )  # fmt: skip
        if rng.random() < 0.05:
            caller.later("tasks", lambda: self.give_up(one), delay_s=rng.uniform(0, 0.1))
        return one

    def gather(self, caller: SimNode, cluster: str = "x") -> None:
        """Send a request to each known member, as Node.gather does; sometimes all of them are given up."""
        rng, rotation = self._rng, caller.core.rotation
        timeout_s, gives_up = rng.choice([0.05, 0.5, 2.0]), rng.random() < 0.1
        target, size = cluster + rng.choice(["", "/twice"]), _size(rng)
        for _, link in rotation.linked(cluster):
            one = self.ask(
                caller, target, timeout_s=timeout_s, delay_s=rng.choice([0.001, 0.2]),
                outcome=rng.choices([REPLY, FAIL, NEVER], [90, 5, 5])[0], size=size,
                only=rotation.candidate(link, cluster),
            )  # fmt: skip
            if gives_up:
                caller.later("tasks", lambda one=one: self.give_up(one), delay_s=0.01)  # type: ignore[misc]

    def broadcast(self, caller: SimNode, cluster: str = "x") -> None:
        if caller.core.closing:
            return
        number = len(self.broadcasts)
        payload = ORDER.pack(number, 100, REPLY, 0) + bytes(_size(self._rng) // 8)
        told = caller.core.patterns.broadcast(cluster, DEFAULT_ENDPOINT, payload)
        self.broadcasts[number] = told
        caller.flush()

    def serve(self, node: SimNode, job: Job) -> Plan:
        number, delay_us, outcome, reply_size = ORDER.unpack_from(job.payload)
        if not job.reply:
            key = (number, node.id)
            self.heard[key] = self.heard.get(key, 0) + 1
            return Plan(delay_us / 1e6)
        self.asked[number].ran_at.append(node)
        return Plan(delay_us / 1e6, outcome, make_reply(number, node, reply_size))

    def link_broke(self, node: bytes, peer: bytes) -> None:
        # If others report that the node has left, its own goodbye is awaited for this long.
        due_s = self._network.now_s + HEARSAY_S
        asked = [one for one in self.asked if one.only == peer and one.caller.id == node]
        self._lost += [(due_s, one) for one in asked]

    # Invariants

    def check_now(self) -> None:
        """Check what must hold at any moment: no request lasts longer than its deadline and LATE_S."""
        now_s = self._network.now_s
        for due_s, one in self._lost:
            told = one.wakes or one.caller.dead or now_s <= due_s
            assert told or one.caller.was_paused(one.asked_s, now_s), (
                f"its one member is gone: {one}"
            )
        self._lost = [(due_s, one) for due_s, one in self._lost if now_s <= due_s]
        for one in self.asked:
            late = now_s > one.deadline_s + LATE_S
            if one.wakes == 0 and late and not one.caller.dead and not one.gave_up:
                assert one.caller.was_paused(one.asked_s, now_s), f"never ended: {one}"

    def check_end(self) -> None:
        """Check what must hold for every request in the end."""
        for one in self.asked:
            if one.caller.dead and one.wakes == 0:
                continue
            assert one.wakes == 1, f"ended {one.wakes} times: {one}"
            assert one.ended_s is not None
            paused = one.caller.was_paused(one.asked_s, one.ended_s)
            assert paused or one.ended_s <= one.deadline_s + LATE_S, f"ended late: {one}"
            self._check_outcome(one)
        self._check_broadcasts()

    def _check_outcome(self, one: Asked) -> None:
        outcome = one.outcome
        assert one.idempotent or len(one.ran_at) <= 1, f"ran twice: {one}"
        assert not one.target.endswith("/closed") or not one.ran_at, f"not allowed, and ran: {one}"
        if one.only:
            assert [node.id for node in one.ran_at] in ([], [one.only]), f"somebody else: {one}"
            assert not isinstance(outcome, NoMembers), f"it was there: {one}"
        if isinstance(outcome, bytes):
            replies = [make_reply(one.number, node, one.reply_bytes) for node in one.ran_at]
            assert outcome in replies, f"a reply nobody gave: {one}"
            return
        if one.gave_up:
            return
        assert isinstance(outcome, MeshError), f"ended with nothing: {one}"
        if not getattr(outcome, "maybe_executed", False):
            assert not one.ran_at, f"said to be not executed: {one}"
        if isinstance(outcome, Overloaded):
            assert outcome.tried == 1 or (outcome.tried > 1 and not one.only), f"{one}"
        if isinstance(outcome, RequestTimeout):
            assert one.ended_s is not None
            assert one.ended_s >= one.deadline_s - 1e-6, f"timed out early: {one}"

    def _check_broadcasts(self) -> None:
        for (number, node), times in self.heard.items():
            assert times == 1, f"broadcast {number} ran {times} times at {node.hex()[:8]}"
        for number, told in self.broadcasts.items():
            ran = sum(1 for heard, _ in self.heard if heard == number)
            assert ran <= told, f"broadcast {number} was told to {told} and ran at {ran}"

    def failures(self) -> list[Asked]:
        """Return the requests that ended with an error other than the one asked for."""
        return [
            one
            for one in self.asked
            if one.outcome_wanted == REPLY and not isinstance(one.outcome, bytes)
        ]


def make_reply(number: int, node: SimNode, size: int) -> bytes:
    return ORDER.pack(number, 0, 0, size) + node.id + bytes(size)


def _size(rng: Random) -> int:
    """Return a size: mostly small, sometimes of several frames."""
    return rng.choices(
        [0, rng.randrange(200), rng.randrange(6_000), rng.randrange(60_000)], [4, 4, 2, 1]
    )[0]
