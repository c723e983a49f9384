"""The ways in which clients of message systems wait, behind one door, with a timer of a few microseconds."""

from __future__ import annotations

from importlib import import_module

from .loop import Loop as Loop

LOOPS = {"asyncio": "AsyncioLoop", "blocking": "BlockingLoop", "trio": "TrioLoop"}


def make_loop(name: str) -> Loop:
    """Imported now: a client must not pay for a loop that it does not run in."""
    loop: Loop = getattr(import_module(f".{name}_loop", __name__), LOOPS[name])()
    return loop
