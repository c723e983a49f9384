"""Carries out the core's instructions: the same code for the real network and for a simulated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .core import Core
from .instructions import Dial, Hangup, Probe
from .lane import Conn


class Door(Protocol):
    """Where instructions go: a transport, or a simulated one."""

    def send(self, conn: Conn, frame: bytes) -> bool: ...
    def dial(self, dial: Dial) -> None: ...
    def hang_up(self, conn: Conn) -> None: ...
    def probe(self, endpoint: str, node: bytes) -> None: ...


def carry_out(core: Core, door: Door, now_s: Callable[[], float]) -> bool:
    """Flush the core and carry out all instructions, those that follow from them included. Return False if there
    were none."""
    began_s = now_s()
    out = core.out
    at = 0
    send = door.send
    while True:
        while at < len(out):
            item = out[at]
            at += 1
            if isinstance(item, tuple):
                if not send(item[0], item[1]):
                    core.lost(item[0], now_s())
            elif isinstance(item, Dial):
                door.dial(item)
                core.peering.dialler.dialled(item.conn, now_s())
            elif isinstance(item, Hangup):
                door.hang_up(item.conn)
            elif isinstance(item, Probe):
                door.probe(item.endpoint, item.node)
        # Only now: instructions may end a link, and what is flushed to such a link would count as sent.
        core.flush(began_s)
        if at == len(out):
            break
    if not out:
        return False
    out.clear()
    return True
