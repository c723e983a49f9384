"""Children of a program with a node, by os.fork: they are told, they end, and do the program no harm."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.forking import GOT, STATUS

BLOCKS = ["node", "subscription", "tunnel", "consumer", "reader", "publisher"]

PATIENCE_S = 60
"""The program waits no longer than 10 s for its child."""


def run(how: str, block: str) -> tuple[dict[str, Any], str]:
    """What the program says, and what is on its stderr."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.forking", how, block], capture_output=True, timeout=PATIENCE_S,
        text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["got"] == GOT, f"its parent goes on: {ended.stderr}"
    return said, ended.stderr


@pytest.mark.parametrize(
    ("how", "block", "status", "told"),
    [
        *(("leaves", block, 0, "") for block in BLOCKS),
        *(("exits", block, STATUS, "") for block in ("node", "consumer")),
        *(("fails", block, 1, "LookupError: of the child") for block in ("node", "consumer")),
    ],
)
def test_a_forked_child_that_leaves_a_block_ends_there(
    how: str, block: str, status: int, told: str
) -> None:
    """Found: it hung, for trio waits for what its parent gets."""
    said, stderr = run(how, block)
    assert said["status"] == status, stderr
    assert "a forked child left the block of a node" in stderr
    assert told in stderr


@pytest.mark.parametrize(("how", "block"), [("waits", "node"), ("leaves", "nursery")])
def test_a_forked_child_that_waits_ends_there(how: str, block: str) -> None:
    """Found: other tasks had their turn in it, and took what its parent waited for, or called libzmq and hung."""
    said, stderr = run(how, block)
    assert said["status"] == 1, stderr
    assert "a forked child waited in, or finished, its task (__main__.main)" in stderr


def test_every_verb_says_in_a_forked_child_that_it_is_one() -> None:
    """Found: what it published went nowhere, and other verbs hung; then some waited before they said it."""
    said, stderr = run("verbs", "node")
    assert said["status"] == 0, stderr
    assert json.loads(said["raised"]) == dict.fromkeys(
        [
            "publish", "publish_nowait", "publish_many", "request", "gather", "broadcast",
            "subscribe", "wait_sent", "wait_members", "open_tunnel", "durable call",
            "durable publish", "durable publisher", "durable consume",
        ],
        "NodeClosed",
    )  # fmt: skip
