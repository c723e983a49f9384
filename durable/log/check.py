"""Checks: called between the steps of long work on the disk, which may have been abandoned meanwhile."""

from __future__ import annotations

from collections.abc import Callable

Check = Callable[[], object]
"""What it raises ends the work, before anything more is changed."""


def never_stop() -> None:
    """The check of work that nobody abandons."""
