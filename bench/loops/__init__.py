"""The three ways in which clients of message systems wait, behind one door, with a timer of a few microseconds."""

from __future__ import annotations

from .asyncio_loop import AsyncioLoop
from .blocking_loop import BlockingLoop
from .loop import Loop as Loop
from .trio_loop import TrioLoop

LOOPS: dict[str, type[Loop]] = {
    "asyncio": AsyncioLoop, "blocking": BlockingLoop, "trio": TrioLoop,
}  # fmt: skip
