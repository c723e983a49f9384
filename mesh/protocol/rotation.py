"""Members that may take a request now, by cluster: those alive whose link has a connection for both lanes."""

from __future__ import annotations

from .balancer import Candidate
from .link import Link
from .membership import Member, Membership, State

LISTS_MAX = 1000
"""Most clusters whose lists are kept between changes: a program may ask for ever new names."""


class Rotation:
    """Candidates per cluster, kept current by the core; lists are rebuilt only after a change."""

    def __init__(self, membership: Membership, links: dict[bytes, Link]) -> None:
        self._membership, self._links = membership, links
        self._candidates: dict[tuple[bytes, str], Candidate] = {}
        self._lists: dict[str, list[Candidate]] = {}
        self._present: tuple[str, ...] | None = None

    def invalidate(self) -> None:
        """Discard all lists, because a member or a link has changed."""
        self._lists.clear()
        self._present = None

    def candidates(self, cluster: str) -> list[Candidate]:
        """Return the members that may take a request; the list must not be modified."""
        found = self._lists.get(cluster)
        if found is None:
            if len(self._lists) >= LISTS_MAX:
                self._lists.clear()
            found = self._lists[cluster] = [
                self.candidate(link, cluster)
                for member, link in self.linked(cluster)
                if member.state is State.ALIVE and link.connected
            ]
        return found

    def linked(self, cluster: str) -> list[tuple[Member, Link]]:
        """Return all members with a link, also those whose path is lost at the moment."""
        return [
            (member, link)
            for member in self._membership.members_of(cluster)
            if (link := self._links.get(member.node)) is not None and link.up
        ]

    def present(self) -> tuple[str, ...]:
        """Clusters that have members now, whether they may take a request or not; sorted."""
        if self._present is None:
            members = self._membership.members_of(None)
            self._present = tuple(sorted({one for member in members for one in member.clusters}))
        return self._present

    def candidate(self, link: Link, cluster: str) -> Candidate:
        """Return the balancer's record of one linked member."""
        candidate = self._candidates.get((link.peer, cluster))
        if candidate is None or candidate.link is not link:
            candidate = self._candidates[link.peer, cluster] = Candidate(link.peer, link)
        return candidate

    def update_loads(self, node: bytes, loads: dict[str, int]) -> None:
        """Take from a member's heartbeat how long its queues are, by cluster."""
        for cluster, queue in loads.items():
            candidate = self._candidates.get((node, cluster))
            if candidate is not None:
                candidate.observe_heartbeat(queue)

    def forget(self, node: bytes) -> None:
        for key in [key for key in self._candidates if key[0] == node]:
            del self._candidates[key]
        self._lists.clear()
