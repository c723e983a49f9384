"""Failures of handlers, logged once per kind: callers get each of them, counters count them."""

from __future__ import annotations

import logging

logger = logging.getLogger("mesh")
COMPLAINTS_MAX = 1000
"""Kinds that are told apart; nothing is said of further ones."""


class Complaints:
    """Of one service, or of all tunnels of a node."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def log(self, what: str, error: Exception) -> None:
        """`what` failed: a handler, of which there are few."""
        kind = (what, type(error).__name__)
        if kind not in self._known and len(self._known) < COMPLAINTS_MAX:
            self._known.add(kind)
            logger.error("%s failed; this is logged once", what, exc_info=error)
