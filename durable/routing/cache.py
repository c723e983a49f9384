"""A bounded memory of answers: two generations, of which the older is forgotten at once.

What was used since the last change of generations survives the next one, so no flood of new keys
drives out what is asked for all the time; and nothing is reordered when an answer is found.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Answers that weigh at most `weight_max` together; None cannot be one."""

    def __init__(self, weight_max: int, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self._half, self._weigh = max(1, weight_max // 2), weigh
        self.young: dict[K, V] = {}
        """For readers in a hurry: look here first, then ask `get`. The dict stays the same one."""
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
        """Remember; an answer that is heavier than half of everything is not kept."""
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
