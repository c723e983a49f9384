"""A bounded cache of two generations; when the young one is full, the old one is dropped as a whole.

An entry that was used since the last change of generations survives the next one, so a flood of new keys
does not evict the keys that are asked for all the time. A hit in the young generation reorders nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """A cache whose values have a total weight of at most `weight_max`; a value must not be None."""

    def __init__(self, weight_max: int, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self._half, self._weigh = max(1, weight_max // 2), weigh
        self.young: dict[K, V] = {}
        """The young generation, for hot loops: look here first, then call `get`. It is always the same dict object."""
        self._old: dict[K, V] = {}
        self._weight = 0

    def get(self, key: K) -> V | None:
        found = self.young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, value: V) -> None:
        """Add a value; a value heavier than half of `weight_max` is not kept."""
        weight = self._weigh(value)
        if weight > self._half:
            return
        if self._weight + weight > self._half:
            self._old = dict(self.young)
            self.young.clear()
            self._weight = 0
        self.young[key] = value
        self._weight += weight

    def clear(self) -> None:
        self.young.clear()
        self._old.clear()
        self._weight = 0
