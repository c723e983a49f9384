"""What the JVM and Spark's workers say on stderr goes elsewhere: a terminal has room for one line."""

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
    """For the length of the block the descriptor 2, which children inherit, is `into`; `sys.stderr`
    still leads to where it led."""
    sys.stderr.flush()
    kept, before, told = os.dup(STDERR), sys.stderr, BaseServer.handle_error
    # PySpark logs each failed query as a JSON object with all its stacks.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # The server that it has in this process prints one when the JVM was killed.
    BaseServer.handle_error = _untold  # type: ignore[method-assign, assignment]
    os.dup2(into, STDERR)
    sys.stderr = os.fdopen(kept, "w", buffering=1, closefd=False)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, STDERR)
        sys.stderr = before
        BaseServer.handle_error = told  # type: ignore[method-assign]
        os.close(kept)


def _untold(*_: Any) -> None:
    """In place of printing a stack."""
