"""Children of a program with a node, by os.fork: they are told, they end, and do the program no harm."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.forking import GOT, STATUS

PATIENCE_S = 60
"""The program waits no longer than 10 s for its child."""


def run(how: str) -> tuple[dict[str, Any], str]:
    """What the program says, and what is on its stderr."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.forking", how], capture_output=True, timeout=PATIENCE_S,
        text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), ended.stderr


@pytest.mark.parametrize(
    ("how", "status", "told"),
    [
        ("leaves", 0, ""),
        ("exits", STATUS, ""),
        ("fails", 1, "LookupError: of the child"),
    ],
)
def test_a_forked_child_that_leaves_the_block_ends_there(how: str, status: int, told: str) -> None:
    """Found: it hung, for trio waits for what its parent gets."""
    said, stderr = run(how)
    assert said["status"] == status
    assert said["got"] == GOT, "its parent goes on"
    assert "a forked child leaves the block of a node" in stderr
    assert told in stderr


def test_every_verb_says_in_a_forked_child_that_it_is_one() -> None:
    """Found: what it published went nowhere, and other verbs hung."""
    said, _ = run("verbs")
    raised = json.loads(said["raised"])
    assert raised == dict.fromkeys(
        [
            "publish", "publish_nowait", "publish_many", "request", "gather", "broadcast",
            "subscribe", "open_tunnel", "durable call", "durable publish", "durable publisher",
            "durable consume",
        ],
        "NodeClosed",
    )  # fmt: skip
    assert said["got"] == GOT, "its parent goes on"
