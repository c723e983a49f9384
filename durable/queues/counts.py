"""How many messages went through a queue or stream, and how many of them per second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Rates(NamedTuple):
    """Messages per second, over the last interval that has ended."""

    published: float = 0.0
    delivered: float = 0.0
    acked: float = 0.0


NO_RATES = Rates()


@dataclass(slots=True, eq=False)
class Counts:
    """Messages since the broker's start. Whoever keeps the time calls `sample` at intervals."""

    published: int = 0
    """Durable, and in the queue."""
    delivered: int = 0
    """To consumers or readers; again when they came back."""
    acked: int = 0
    rates: Rates = NO_RATES
    _then: tuple[int, int, int] = (0, 0, 0)

    def sample(self, elapsed_s: float) -> None:
        """An interval of so many seconds, more than 0, has ended."""
        now, then = (self.published, self.delivered, self.acked), self._then
        if now != then:
            self._then = now
            self.rates = Rates(
                *((new - old) / elapsed_s for new, old in zip(now, then, strict=True))
            )
        elif self.rates is not NO_RATES:
            self.rates = NO_RATES
