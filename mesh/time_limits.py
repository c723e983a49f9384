"""Time limits for operations that take several turns of the loop: frames, links and answers come in turn.

The limit is divided into parts, and a blocked loop uses up only one of them, however long it was blocked.
"""

from __future__ import annotations

PARTS = 8


def next_due(due_s: float, part_s: float, now_s: float) -> float:
    """Return the end of the part after the one that ended at `due_s`. If the loop was blocked, that part begins now."""
    return (now_s if now_s - due_s >= part_s else due_s) + part_s
