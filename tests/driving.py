"""A driver without a network, for what waits by its timers; in virtual time."""

from __future__ import annotations

from typing import Any, cast

from mesh.driver import Driver
from mesh.protocol.timers import Timers


class Ticking:
    """A core that has timers and nothing else."""

    def __init__(self) -> None:
        self.timers = Timers()

    def tick(self, now_s: float) -> None:
        self.timers.run(now_s)


def driving(core: Ticking) -> Driver:
    """It keeps time in its `_keep_time`."""
    driver = Driver(cast("Any", None))
    driver.core = cast("Any", core)
    core.timers.sooner = driver._sooner
    return driver
