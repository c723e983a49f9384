"""Time limits for what takes several turns of a loop: frames come, then links, then answers.

The time passes in parts, of which a blocked loop uses up one, however long it was blocked.
"""

from __future__ import annotations

PARTS = 8


def next_due(due_s: float, part_s: float, now_s: float) -> float:
    """The end of the part behind one that ended at `due_s`: of a loop that was blocked it begins now."""
    return (now_s if now_s - due_s >= part_s else due_s) + part_s
