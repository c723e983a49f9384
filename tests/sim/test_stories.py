"""Random load and faults of every kind from a seed. `make sim SEED=n` repeats one."""

from __future__ import annotations

import os
from random import SystemRandom

import pytest

from .story import Story

SEEDS = [45, 64, 84, 157, 183, 237, 259, 20]
"""Seeds that once found something, and a story of many nodes."""
GIVEN = os.environ.get("MESH_SIM_SEED")


@pytest.mark.parametrize("seed", [int(GIVEN)] if GIVEN else [*SEEDS, None], ids=str)
def test_story(seed: int | None) -> None:
    """`None`: one that nobody has heard yet."""
    seed = SystemRandom().randrange(1 << 32) if seed is None else seed
    try:
        Story(seed).tell()
    except BaseException:
        print(f"repeat with: make sim SEED={seed}")
        raise
