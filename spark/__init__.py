"""The Spark tier: reads what brokers have stored as DataFrames.

    from spark import read_capture, session
    df = read_capture(session(), "orders.data")

Names are loaded at their first use, so that executors load only what a task needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.lazy import lazy_names

if TYPE_CHECKING:
    from .capture.frame import read_capture as read_capture
    from .errors import CaptureError as CaptureError
    from .errors import said as said
    from .sessions import register as register
    from .sessions import session as session

_HOMES = {
    "CaptureError": "errors", "said": "errors", "register": "sessions", "session": "sessions",
    "read_capture": "capture.frame",
}  # fmt: skip

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:  # With `__getattr__` in sight, a type checker would accept any name.
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
