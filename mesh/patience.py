"""A time for what takes several turns of a loop: frames come, then links, then answers.

It passes in parts, of which a loop that is blocked spends one, however long that takes.
"""

from __future__ import annotations

PARTS = 8


def next_due(due_s: float, part_s: float, now_s: float) -> float:
    """The end of the part behind one that ended at `due_s`: of a loop that was blocked it begins now."""
    return (now_s if now_s - due_s >= part_s else due_s) + part_s
