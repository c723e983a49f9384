"""The Spark tier: what brokers have stored, as DataFrames.

    from spark import read_capture, session
    df = read_capture(session(), "orders.data")

Names are loaded when first used, so that executors load what a task needs and nothing else.
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

if not TYPE_CHECKING:  # Who checks types would take any name for one that `__getattr__` has.
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
