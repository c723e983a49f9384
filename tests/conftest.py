"""Hypothesis profiles: `ci` is what CI runs (the same examples every time), `nightly` digs deeper."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "mesh", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", deadline=None, max_examples=20_000, stateful_step_count=200)
settings.load_profile(os.environ.get("MESH_HYPOTHESIS", "mesh"))
