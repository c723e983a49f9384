"""Requests of one cluster that wait for a member, or for room on the way to one: first come, first served.

Requests that were refused by the same members wait for the same ones, so of each such group only the
first is looked at. That happens at every flush, however many wait behind it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from .request import Pending


class Line:
    """What a request has in `full` must not change while it stands here."""

    def __init__(self) -> None:
        self._groups: dict[frozenset[bytes], OrderedDict[Pending, int]] = {}
        """Ordered: of a dict, finding the first costs what has left before it."""
        self._came = 0

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __contains__(self, pending: Pending) -> bool:
        return pending in self._groups.get(frozenset(pending.full), ())

    def add(self, pending: Pending) -> None:
        """At the end; one that is here already keeps its place."""
        self._came += 1
        group = self._groups.setdefault(frozenset(pending.full), OrderedDict())
        group.setdefault(pending, self._came)

    def remove(self, pending: Pending) -> None:
        key = frozenset(pending.full)
        del self._groups[key][pending]
        if not self._groups[key]:
            del self._groups[key]

    def firsts(self) -> Iterator[Pending]:
        """The first of each group, as they came. Behind one that is removed meanwhile, or goes to the end,
        the next follows."""
        heap = [(next(iter(group.values())), key) for key, group in self._groups.items()]
        heapify(heap)
        while heap:
            _, key = heappop(heap)
            pending = next(iter(self._groups[key]))
            yield pending
            group = self._groups.get(key)
            if group and next(iter(group)) is not pending:
                heappush(heap, (next(iter(group.values())), key))
