"""A scale at which the bench runs without measuring anything useful."""

from __future__ import annotations

from bench.plan import Scale


class Moments(Scale):
    """Seconds of measuring become fractions of a second."""

    def seconds(self, full: float) -> float:
        return full / 40
