"""Seeds: addresses that finders name, with nothing else known of them.

    named ──> asked: INTRODUCE ──> answered: the node there is known; asked again once it is gone
                        └─ lost ──> the next key that may answer there ──> all were tried: asked later

A finder names its addresses again every few seconds; meanwhile a seed is asked again with a backoff.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from security.keys import ClusterKeys

from .hello import CLOCK
from .link import Link
from .roster import Roster
from .timers import Timers

MISSES_MAX = 8
"""Attempts with a backoff: they take half a minute or more, by when finders have named the seed again."""
SEEDS_MAX = 1024
STALE_S = 300.0
"""A seed that was not named for so many seconds may be forgotten: finders repeat themselves far sooner, so none of
them names it any more."""
OWN_ANSWER_PAUSE_S = 15.0
"""Seconds for which an address at which this node itself answered is not asked again."""
REFUSED_CLOCK = "refused by a seed that has another time"
REASON_MAX = 40
"""Characters of a refusal's reason that are logged: those of hello.py are shorter."""


@dataclass(slots=True, eq=False)
class Seed:
    """One address; `tries` chooses among the keys that may answer there."""

    endpoint: str
    tries: int = 0
    awaits_answer: bool = False
    """Whether it has been asked and has not answered yet."""
    own_answer_s: float = -math.inf
    """When this node itself answered there. There may be others as well, behind the address of a load balancer."""
    node: bytes = b""
    """The node that answered there last."""
    named_s: float = 0.0
    """When a finder named it last."""
    misses: int = 0
    """Failed attempts since a node last answered there, or since that node was lost."""


class Introducer(Protocol):
    """What seeds need of the dialler."""

    def client_keys(self) -> tuple[ClusterKeys, ...]: ...
    def backoff_s(self, failures: int) -> float: ...
    def introduce(
        self, owner: Seed, endpoint: str, server: ClusterKeys, client: ClusterKeys, now_s: float
    ) -> object: ...


class LinkTable(Protocol):
    """What seeds need of peering: the links, and whether it is closing, so that there will be no more."""

    closing: bool
    links: dict[bytes, Link]


class Seeds:
    """Seeds of one node. For each that was given to `introducer`, it calls `answered`, `failed` or `refused`."""

    def __init__(
        self, roster: Roster, timers: Timers, introducer: Introducer, peering: LinkTable
    ) -> None:
        self._roster, self._timers = roster, timers
        self._introducer, self._peering = introducer, peering
        self._seeds: dict[str, Seed] = {}
        """By endpoint, in the order in which they were named last."""

    def found(self, endpoint: str, now_s: float) -> None:
        """Ask at an address that a finder has named which nodes there are."""
        seed = self._seeds.pop(endpoint, None)
        if seed is None:
            if len(self._seeds) >= SEEDS_MAX and not self._make_room(now_s):
                refusal = f"seeds over {SEEDS_MAX}"
                self._roster.refusals.count(refusal, f"{refusal}: {endpoint} is ignored")
                return
            seed = Seed(endpoint)
        self._seeds[endpoint], seed.named_s = seed, now_s
        self._ask(seed, now_s)

    def _make_room(self, now_s: float) -> bool:
        """Forget the seed named longest ago, if it is stale: where nodes come and go, so do their addresses."""
        oldest = next(iter(self._seeds.values()))
        stale = now_s - oldest.named_s >= STALE_S and not oldest.awaits_answer
        if stale:
            del self._seeds[oldest.endpoint]
        return stale

    def _ask(self, seed: Seed, now_s: float) -> None:
        ours = now_s - seed.own_answer_s < OWN_ANSWER_PAUSE_S
        if seed.awaits_answer or ours or seed.node in self._peering.links or self._peering.closing:
            return
        key_pairs = self._key_pairs()
        server, client = key_pairs[seed.tries % len(key_pairs)]
        seed.tries += 1
        seed.awaits_answer = True
        self._introducer.introduce(seed, seed.endpoint, server, client, now_s)

    def _key_pairs(self) -> list[tuple[ClusterKeys, ClusterKeys]]:
        """Return all that can be tried at a seed: pairs of a key that may answer there, and one of ours."""
        servers = self._roster.keyring.introduction_keys()
        return [(server, client) for client in self._introducer.client_keys() for server in servers]

    def silent_endpoints(self) -> list[str]:
        """Return addresses at which nobody answered when they were last asked, or whose node is gone."""
        links, seeds = self._peering.links, self._seeds.values()
        return [seed.endpoint for seed in seeds if seed.misses and seed.node not in links]

    def silent_among(self, endpoints: Iterable[str], *, each: bool) -> list[str]:
        """Return those of these addresses that do not answer. Addresses above SEEDS_MAX are not asked.

        Args:
            each: whether a node should answer at each. Otherwise one that answers is enough, and none is returned.
                This node itself may be among those listed, and its answer says nothing of the others.
        """
        silent = {*self.silent_endpoints()}
        if each:
            return [one for one in endpoints if one in silent]
        known = [self._seeds[one] for one in endpoints if one in self._seeds]
        asked = [seed.endpoint for seed in known if seed.own_answer_s == -math.inf]
        return asked if silent.issuperset(asked) else []

    def ask_later_for(self, node: bytes, now_s: float) -> None:
        """Ask later at seeds that led to this node, which is gone or cannot be reached: another one may answer there
        soon, such as the same program, restarted."""
        for seed in self._seeds.values():
            if seed.node == node and not seed.misses:
                self._ask_later(seed, now_s)

    def _ask_later(self, seed: Seed, now_s: float) -> None:
        """Ask again with a backoff, so without waiting until a finder names the seed again."""
        seed.misses += 1
        if seed.misses <= MISSES_MAX:
            delay_s = self._introducer.backoff_s(seed.misses - 1)
            self._timers.call_at(now_s + delay_s, lambda now: self._ask(seed, now))

    def answered(self, seed: Seed, node: bytes, now_s: float, *, ours: bool) -> None:
        """Note that `node` has answered; empty: one that is not wanted. `ours`: it is this node itself."""
        seed.own_answer_s = now_s if ours else -math.inf
        seed.node, seed.misses = node, 0

    def failed(self, seed: Seed, now_s: float) -> None:
        """Note that the connection was lost before an answer: try the next key, or ask later."""
        seed.awaits_answer = False
        if seed.tries % len(self._key_pairs()):
            self._ask(seed, now_s)
        else:
            self._ask_later(seed, now_s)

    def refused(self, seed: Seed, reason: str, now_s: float) -> None:
        """Note that the node there does not accept our announcement. It may do so later, once a clock has been set."""
        seed.awaits_answer = False
        kind, why = "refused by a seed", f"seed {seed.endpoint} refused us: {reason[:REASON_MAX]!r}"
        if reason == CLOCK:
            kind, why = (
                REFUSED_CLOCK,
                f"the clock of seed {seed.endpoint} differs from ours: set both clocks",
            )
        self._roster.refusals.count(kind, why)
        self._ask_later(seed, now_s)
