"""Logs failures of handlers, each kind once; every caller gets its own failure, and counters count them."""

from __future__ import annotations

import logging

logger = logging.getLogger("mesh")
FAILURE_KINDS_MAX = 1000
"""Kinds that are remembered; further kinds are not logged, which is said once."""


class FailureLog:
    """The failures of one service, or of all tunnels of a node."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()
        self._full_logged = False

    def log(self, what: str, error: Exception) -> None:
        """Log that the handler `what` failed, once per handler and class of error."""
        kind = (what, type(error).__name__)
        if kind in self._known:
            return
        if len(self._known) < FAILURE_KINDS_MAX:
            self._known.add(kind)
            logger.error(
                "%s failed; further failures of this kind are not logged", what, exc_info=error
            )
        elif not self._full_logged:
            self._full_logged = True
            logger.error(
                "%s failed: %s; %d kinds of failures were logged, further kinds are not",
                what, type(error).__name__, FAILURE_KINDS_MAX,
            )  # fmt: skip
