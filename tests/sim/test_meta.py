"""The simulation is itself tested: one seed tells one story, and broken links do not pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mesh.protocol.lane import Lane

from .story import Story


def test_one_seed_tells_the_same_story_in_every_process() -> None:
    """Also where strings hash otherwise."""
    code = "from tests.sim.story import Story; print(Story(11).tell().network.digest())"
    elsewhere = [
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": salt},
        ).stdout.strip()
        for salt in ("1", "2")
    ]  # fmt: skip
    assert elsewhere == [Story(11).tell().network.digest()] * 2


def forgetful(self: Lane, _expects: int) -> list[bytes]:
    """Nothing is sent again."""
    self.unacked.clear()
    self.unacked_bytes = 0
    return []


def miserly(_self: Lane, _through: int) -> bool:
    """No acknowledgement is ever taken: credit does not come back."""
    return False


@pytest.mark.parametrize(("name", "mutant"), [("resume", forgetful), ("acknowledge", miserly)])
def test_a_broken_lane_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, name: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(Lane, name, mutant)
    with pytest.raises(AssertionError):
        for seed in range(12, 18):
            Story(seed).tell()
