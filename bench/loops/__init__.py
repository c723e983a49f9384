"""One interface to the event loops of messaging clients, with a timer that is precise to a few microseconds."""

from __future__ import annotations

from importlib import import_module

from .loop import Loop as Loop

LOOPS = {"asyncio": "AsyncioLoop", "blocking": "BlockingLoop", "trio": "TrioLoop"}


def make_loop(name: str) -> Loop:
    """Make the loop of that name. Its module is imported only here, so that a client loads no loop but its own."""
    loop: Loop = getattr(import_module(f".{name}_loop", __name__), LOOPS[name])()
    return loop
