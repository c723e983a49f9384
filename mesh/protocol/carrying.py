"""Carries out the core's instructions: the same code for the real network and for a simulated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .core import Core
from .instructions import Dial, Hangup, Probe
from .lane import Conn


class InstructionHandler(Protocol):
    """Where instructions go: a transport, or a simulated one."""

    def send(self, conn: Conn, frame: bytes) -> bool: ...
    def dial(self, dial: Dial) -> None: ...
    def hang_up(self, conn: Conn) -> None: ...
    def probe(self, endpoint: str, node: bytes) -> None: ...


def carry_out(core: Core, handler: InstructionHandler, now_s: Callable[[], float]) -> bool:
    """Flush the core and carry out all instructions, those that follow from them included. Return False if there
    were none."""
    began_s, count = now_s(), 0
    out, send = core.out, handler.send
    while True:
        for instruction in out:  # It may grow meanwhile.
            if isinstance(instruction, tuple):
                conn, frame = instruction
                if not send(conn, frame):
                    core.lost(conn, now_s())
            elif isinstance(instruction, Dial):
                handler.dial(instruction)
                core.peering.dialler.dialled(instruction.conn, now_s())
            elif isinstance(instruction, Hangup):
                handler.hang_up(instruction.conn)
            elif isinstance(instruction, Probe):
                handler.probe(instruction.endpoint, instruction.node)
        count += len(out)
        out.clear()
        # Only now: instructions may end a link, and what is flushed to such a link would count as sent.
        core.flush(began_s)
        if not out:
            return count > 0
