"""Hypothesis profiles: `mesh` has the same examples every time, `nightly` has more. And which tests share a process."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started by a script with `&`: the programs under test would inherit SIG_IGN, and ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "mesh", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", deadline=None, max_examples=20_000, stateful_step_count=200)
settings.load_profile(os.environ.get("MESH_HYPOTHESIS", "mesh"))

SPARK = "tests/spark/"
"""All tests here run in one process, as they share a Spark session, except those that do not need it."""
WITHOUT_SESSION = tuple(
    f"{SPARK}test_{name}.py" for name in ("cli_capture", "cluster", "replay_command", "task")
)
SHARED_SERVER = re.compile(r"tests/unit/bench/.*\[(activemq|rabbitmq)", re.IGNORECASE)
"""The cases of a module that share a server (tests/servers.py) run in one process, in which it starts once."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Group tests by path, as pytest 9.2 does not let xdist 3.8 see marks (pytest-xdist#1386)."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByTier(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(SPARK) and not nodeid.startswith(WITHOUT_SESSION):
                return SPARK
            if shared := SHARED_SERVER.match(nodeid):
                return f"{nodeid.partition('::')[0]}::{shared[1].lower()}"
            return str(super()._split_scope(nodeid))

    return ByTier(config, log)
