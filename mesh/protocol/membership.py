"""Membership: the state of every node that this one has had a link with.

    (new) ──linked──> ALIVE <──heard── STALLED      loop silent, path alive: out of rotation, links kept
                      │  ^ └─silent 3 s──^
             path lost│  │linked
                      v  │
                   SUSPECT ──silent 3 s more──> DEAD     a refused dial after a disconnect: at once
     any ──goodbye──> LEFT

Liveness has two sources: the path (libzmq's I/O thread answers heartbeats even while the event loop
is blocked) and the loop (its own heartbeat on the control lane). A lag of this node's own loop is no
evidence against others: `shift` moves all times by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..names import short_id


class State(StrEnum):
    ALIVE = "alive"
    STALLED = "stalled"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"


TRANSITIONS = frozenset({
    (State.ALIVE, State.STALLED),
    (State.ALIVE, State.SUSPECT),
    (State.ALIVE, State.DEAD),
    (State.ALIVE, State.LEFT),
    (State.STALLED, State.ALIVE),
    (State.STALLED, State.SUSPECT),
    (State.STALLED, State.DEAD),
    (State.STALLED, State.LEFT),
    (State.SUSPECT, State.ALIVE),
    (State.SUSPECT, State.DEAD),
    (State.SUSPECT, State.LEFT),
    (State.DEAD, State.ALIVE),
    (State.DEAD, State.LEFT),
})  # fmt: skip
"""All changes of state. `watch` reports each by its new state, and `joined` before any of them."""
GONE = (State.DEAD, State.LEFT)
GONE_MAX = 1_000
"""Most members that are remembered although they are dead or have left; every run of the command `mesh` is a node
that joins and leaves."""


@dataclass(slots=True, eq=False)
class Member:
    """A node as this one sees it. Read-only for users."""

    node: bytes
    clusters: tuple[str, ...]
    endpoints: tuple[str, ...] = ()
    state: State = State.ALIVE
    reason: str = ""
    heard_s: float = 0.0
    path_lost_s: float | None = None
    gone_s: float | None = None
    """Since when it is known to be dead or to have left."""

    @property
    def cluster(self) -> str:
        """The first of its clusters, by which it is named."""
        return self.clusters[0]

    def __repr__(self) -> str:
        return f"<Member {short_id(self.node)} of {','.join(self.clusters)} {self.state.value}>"


@dataclass(frozen=True, slots=True)
class Change:
    """`kind` is joined, alive (again), stalled, suspect, dead or left."""

    kind: str
    member: Member
    reason: str = ""


class Membership:
    """Derives the states from what links report; calls `changed` for every transition."""

    def __init__(
        self, *, stalled_s: float, suspect_grace_s: float, dead_after_s: float,
        changed: Callable[[Change], None], forget_s: float = 600.0, gone_max: int = GONE_MAX,
    ) -> None:  # fmt: skip
        """
        Args:
            stalled_s: seconds of silence of its loop that make a member stalled.
            suspect_grace_s: seconds that a lost path may take to come back before the member is suspect.
            dead_after_s: seconds from a lost path to dead.
            forget_s: seconds for which dead members, and those that left, are remembered.
            gone_max: most of them that are remembered; those that went first are forgotten.
        """
        self._stalled_s, self._grace_s, self._dead_s = stalled_s, suspect_grace_s, dead_after_s
        self._changed, self._forget_s, self._gone_max = changed, forget_s, gone_max
        self.members: dict[bytes, Member] = {}
        self._gone: dict[bytes, None] = {}
        """Nodes of members that are dead or have left, those that went first in front."""

    def members_of(self, cluster: str | None) -> Iterable[Member]:
        """Return the members of `cluster` (None: of all clusters) that are not dead and have not left."""
        return (
            member
            for member in self.members.values()
            if (cluster is None or cluster in member.clusters) and member.state not in GONE
        )

    def linked(
        self, node: bytes, clusters: tuple[str, ...], endpoints: tuple[str, ...], now_s: float
    ) -> Member:
        """Note that a link to the node is up, for the first time or again; return its member."""
        member = self.members.get(node)
        if member is None or member.state is State.LEFT:
            self._gone.pop(node, None)
            member = self.members[node] = Member(node, clusters, endpoints, heard_s=now_s)
            self._changed(Change("joined", member))
            return member
        member.clusters, member.endpoints = clusters, endpoints
        member.heard_s, member.path_lost_s = now_s, None
        self._transition(member, State.ALIVE, "link is up")
        return member

    def heard(self, member: Member, now_s: float) -> None:
        """Note that a frame came from the member, so its event loop runs."""
        member.heard_s = now_s
        if member.state is State.STALLED:
            self._transition(member, State.ALIVE, "its event loop is running again")

    def path_lost(self, node: bytes, now_s: float) -> None:
        member = self.members.get(node)
        if member is not None and member.path_lost_s is None:
            member.path_lost_s = now_s

    def path_back(self, node: bytes, now_s: float) -> None:
        member = self.members.get(node)
        if member is not None:
            member.path_lost_s, member.heard_s = None, now_s
            self._transition(member, State.ALIVE, "path is back")

    def gone(self, node: bytes, state: State, reason: str) -> None:
        """Note that the node has left (LEFT), or that its link was given up (DEAD)."""
        member = self.members.get(node)
        if member is not None:
            self._transition(member, state, reason)

    def forget(self, node: bytes) -> None:
        self.members.pop(node, None)
        self._gone.pop(node, None)

    def shift(self, lag_s: float, now_s: float) -> None:
        """Move all times forward by `lag_s`, in which this node did not run and so could hear nobody.

        Frames that waited meanwhile may have been read already, so no time becomes later than now.
        """
        for member in self.members.values():
            member.heard_s = min(member.heard_s + lag_s, now_s)
            if member.path_lost_s is not None:
                member.path_lost_s = min(member.path_lost_s + lag_s, now_s)

    def tick(self, now_s: float) -> None:
        """Make the transitions that follow from time alone. Call a few times a second."""
        for member in list(self.members.values()):
            if member.state in GONE:
                if member.gone_s is None:
                    member.gone_s = now_s
                elif now_s - member.gone_s >= self._forget_s:
                    self.forget(member.node)
                continue
            if member.path_lost_s is not None:
                silence_s = now_s - member.path_lost_s
                if silence_s >= self._dead_s:
                    self._transition(member, State.DEAD, f"no path for {silence_s:.1f} s")
                elif silence_s >= self._grace_s:
                    self._transition(member, State.SUSPECT, f"no path for {silence_s:.1f} s")
            elif now_s - member.heard_s >= self._stalled_s:
                silence_s = now_s - member.heard_s
                self._transition(
                    member, State.STALLED, f"its event loop has been silent for {silence_s:.1f} s"
                )

    def _transition(self, member: Member, state: State, reason: str) -> None:
        if (member.state, state) not in TRANSITIONS:
            return  # No change; or from LEFT, which is final; or from SUSPECT to STALLED, which is less.
        member.state, member.reason, member.gone_s = state, reason, None
        self._gone.pop(member.node, None)
        if state in GONE:
            self._gone[member.node] = None
        self._changed(Change(state.value, member, reason))
        if len(self._gone) > self._gone_max:
            self.forget(next(iter(self._gone)))
