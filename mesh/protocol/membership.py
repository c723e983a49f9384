"""Who is here: the state of every node this one has had a link with.

    (new) ──linked──> ALIVE <──heard── STALLED      loop silent, path alive: out of rotation, links kept
                      │  ^ └─silent 3 s──^
             path lost│  │linked
                      v  │
                   SUSPECT ──silent 3 s more──> DEAD     a refused dial after a disconnect: at once
     any ──goodbye──> LEFT

Liveness has two voices: the path (libzmq's I/O thread answers heartbeats even while the event loop
is blocked) and the loop (its own heartbeat on the control lane). This node's own lag is no evidence
against others: `shift` moves every clock by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..names import short


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
"""Every change there is; `watch` reports it as its new state, and `joined` before all."""
GONE = (State.DEAD, State.LEFT)
GONE_MAX = 1_000
"""The dead and the gone that are remembered; a command line is a node, too, that comes and leaves."""


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
        """The first of its clusters: the one it names itself by."""
        return self.clusters[0]

    def __repr__(self) -> str:
        return f"<Member {short(self.node)} of {','.join(self.clusters)} {self.state.value}>"


@dataclass(frozen=True, slots=True)
class Change:
    """`kind` is joined, alive (again), stalled, suspect, dead or left."""

    kind: str
    member: Member
    reason: str = ""


class Membership:
    """Feeds on what links report, tells `changed` about every transition."""

    def __init__(
        self, *, stalled_s: float, suspect_grace_s: float, dead_after_s: float,
        changed: Callable[[Change], None], forget_s: float = 600.0, gone_max: int = GONE_MAX,
    ) -> None:  # fmt: skip
        """
        Args:
            stalled_s: loop silence that makes a member stalled.
            suspect_grace_s: how long a lost path may take to come back unnoticed.
            dead_after_s: from a lost path to dead.
            forget_s: how long the dead and the gone are remembered.
            gone_max: how many of them; those who went first are forgotten.
        """
        self._stalled_s, self._grace_s, self._dead_s = stalled_s, suspect_grace_s, dead_after_s
        self._changed, self._forget_s, self._gone_max = changed, forget_s, gone_max
        self.members: dict[bytes, Member] = {}
        self._gone: dict[bytes, None] = {}
        """Of them, in the order in which they went."""

    def of_cluster(self, cluster: str | None) -> Iterable[Member]:
        """Members of `cluster`, None: of any, that have not left and are not dead."""
        return (
            member
            for member in self.members.values()
            if (cluster is None or cluster in member.clusters) and member.state not in GONE
        )

    def linked(
        self, node: bytes, clusters: tuple[str, ...], endpoints: tuple[str, ...], now_s: float
    ) -> Member:
        """A link to the node is up, for the first time or again."""
        member = self.members.get(node)
        if member is None or member.state is State.LEFT:
            self._gone.pop(node, None)
            member = self.members[node] = Member(node, clusters, endpoints, heard_s=now_s)
            self._changed(Change("joined", member))
            return member
        member.clusters, member.endpoints = clusters, endpoints
        member.heard_s, member.path_lost_s = now_s, None
        self._move(member, State.ALIVE, "link is up")
        return member

    def heard(self, member: Member, now_s: float) -> None:
        """The member's event loop said something."""
        member.heard_s = now_s
        if member.state is State.STALLED:
            self._move(member, State.ALIVE, "its event loop runs again")

    def path_lost(self, node: bytes, now_s: float) -> None:
        member = self.members.get(node)
        if member is not None and member.path_lost_s is None:
            member.path_lost_s = now_s

    def path_back(self, node: bytes, now_s: float) -> None:
        member = self.members.get(node)
        if member is not None:
            member.path_lost_s, member.heard_s = None, now_s
            self._move(member, State.ALIVE, "path is back")

    def gone(self, node: bytes, state: State, reason: str) -> None:
        """It said goodbye (LEFT), or there is proof that it is not there (DEAD)."""
        member = self.members.get(node)
        if member is not None:
            self._move(member, state, reason)

    def forget(self, node: bytes) -> None:
        self.members.pop(node, None)
        self._gone.pop(node, None)

    def shift(self, lag_s: float, now_s: float) -> None:
        """This node was not running for `lag_s`: nobody could have been heard in that time.

        What has waited for it may have been read already: nobody was heard later than now.
        """
        for member in self.members.values():
            member.heard_s = min(member.heard_s + lag_s, now_s)
            if member.path_lost_s is not None:
                member.path_lost_s = min(member.path_lost_s + lag_s, now_s)

    def tick(self, now_s: float) -> None:
        """Draw the conclusions that time alone allows. Call a few times a second."""
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
                    self._move(member, State.DEAD, f"no path for {silence_s:.1f} s")
                elif silence_s >= self._grace_s:
                    self._move(member, State.SUSPECT, f"no path for {silence_s:.1f} s")
            elif now_s - member.heard_s >= self._stalled_s:
                silence_s = now_s - member.heard_s
                self._move(member, State.STALLED, f"its event loop is silent for {silence_s:.1f} s")

    def _move(self, member: Member, state: State, reason: str) -> None:
        if (member.state, state) not in TRANSITIONS:
            return  # It is so already; LEFT is for ever; a suspect one is no less than stalled.
        member.state, member.reason, member.gone_s = state, reason, None
        self._gone.pop(member.node, None)
        if state in GONE:
            self._gone[member.node] = None
        self._changed(Change(state.value, member, reason))
        if len(self._gone) > self._gone_max:
            self.forget(next(iter(self._gone)))
