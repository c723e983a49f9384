"""The Spark tier: what brokers have stored, as DataFrames.

    from spark import register, session
    df = register(session()).read.format("mesh-capture").load("orders.data")

Names are loaded when first used, so that executors load what a task needs and nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import CaptureError as CaptureError
    from .errors import said as said
    from .sessions import register as register
    from .sessions import session as session

_HOMES = {"CaptureError": "errors", "said": "errors", "register": "sessions", "session": "sessions"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'spark' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
