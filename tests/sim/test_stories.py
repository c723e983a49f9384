"""Random load and faults of every kind from a seed. `MESH_SIM_SEED=n` repeats one."""

from __future__ import annotations

import os
from random import SystemRandom

import pytest

from .story import Story


@pytest.mark.parametrize("given", [45, 64, 84, 157, 183, 237, 259, None], ids=str)
def test_story(given: int | None) -> None:
    """Seeds that once found something, and one nobody has heard yet."""
    fresh = SystemRandom().randrange(1 << 32) if given is None else given
    seed = int(os.environ.get("MESH_SIM_SEED") or fresh)
    try:
        Story(seed).tell()
    except BaseException:
        print(f"repeat with: MESH_SIM_SEED={seed} pytest tests/sim/test_stories.py")
        raise
