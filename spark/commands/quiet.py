"""Redirects what the JVM and Spark's workers write to stderr, so that an error is one line on the terminal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import Any

STDERR = 2


@contextmanager
def quiet(into: int) -> Iterator[None]:
    """During the block, make descriptor 2, which children inherit, `into`; `sys.stderr` still leads to where it led
    before."""
    sys.stderr.flush()
    kept, before, handle_error = os.dup(STDERR), sys.stderr, BaseServer.handle_error
    # PySpark logs each failed query as a JSON object with all its stack traces.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # PySpark's server in this process prints a stack trace if the JVM was killed.
    BaseServer.handle_error = _ignore_error  # type: ignore[method-assign, assignment]
    os.dup2(into, STDERR)
    sys.stderr = os.fdopen(kept, "w", buffering=1, closefd=False)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, STDERR)
        sys.stderr = before
        BaseServer.handle_error = handle_error  # type: ignore[method-assign]
        os.close(kept)


def _ignore_error(*_: Any) -> None:
    """Replaces `BaseServer.handle_error`, which would print a stack trace."""
