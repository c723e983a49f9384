"""What the JVM and Spark's workers say on stderr goes elsewhere: a terminal has room for one line."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

STDERR = 2


@contextmanager
def quiet(into: int) -> Iterator[None]:
    """For the length of the block the descriptor 2, which children inherit, is `into`; `sys.stderr`
    still leads to where it led."""
    sys.stderr.flush()
    kept, before = os.dup(STDERR), sys.stderr
    # PySpark logs each failed query as a JSON object with all its stacks.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    os.dup2(into, STDERR)
    sys.stderr = os.fdopen(kept, "w", buffering=1, closefd=False)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, STDERR)
        sys.stderr = before
        os.close(kept)
