"""A scale on which benches run without measuring anything."""

from __future__ import annotations

from bench.plan import Scale


class Moments(Scale):
    """A fraction of a second where seconds are measured."""

    def seconds(self, full: float) -> float:
        return full / 40
