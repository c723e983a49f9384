"""A driver without a network, for tests of its timers; in virtual time."""

from __future__ import annotations

from typing import Any, cast

from mesh.driver import Driver
from mesh.protocol.timers import Timers


class Ticking:
    """A core that has only timers."""

    def __init__(self) -> None:
        self.timers = Timers()

    def tick(self, now_s: float) -> None:
        self.timers.run(now_s)


def driving(core: Ticking) -> Driver:
    """Return a driver of `core`; its `_run_timers` has to be run as a task."""
    driver = Driver(cast("Any", None))
    driver.core = cast("Any", core)
    core.timers.on_earlier = driver._wake_earlier
    return driver
