"""Requests of one cluster that wait for a member, or for room in an outbox to one: first come, first served.

Requests that were refused by the same members wait for the same others, so only the first of each such
group is looked at. That is done at every flush, so its cost must not depend on how many wait behind it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from .request import Pending


class WaitQueue:
    """Queue of these requests. The `full_nodes` of a request must not change while it is in here."""

    def __init__(self) -> None:
        self._groups: dict[frozenset[bytes], OrderedDict[Pending, int]] = {}
        """Each an OrderedDict: finding the first entry of a dict takes time for all removed before it."""
        self._arrivals = 0

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __contains__(self, pending: Pending) -> bool:
        return pending in self._groups.get(frozenset(pending.full_nodes), ())

    def add(self, pending: Pending) -> None:
        """Add a request at the end; one that is here already keeps its place."""
        self._arrivals += 1
        group = self._groups.setdefault(frozenset(pending.full_nodes), OrderedDict())
        group.setdefault(pending, self._arrivals)

    def remove(self, pending: Pending) -> None:
        key = frozenset(pending.full_nodes)
        del self._groups[key][pending]
        if not self._groups[key]:
            del self._groups[key]

    def group_heads(self) -> Iterator[Pending]:
        """Yield the first of each group, in the order in which they came. If the caller removes one, or moves it to
        the end, the next of its group follows."""
        heap = [(next(iter(group.values())), key) for key, group in self._groups.items()]
        heapify(heap)
        while heap:
            _, key = heappop(heap)
            pending = next(iter(self._groups[key]))
            yield pending
            group = self._groups.get(key)
            if group and next(iter(group)) is not pending:
                heappush(heap, (next(iter(group.values())), key))
