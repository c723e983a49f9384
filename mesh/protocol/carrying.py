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
    began_s = now_s()
    out = core.out
    index = 0
    send = handler.send
    while True:
        while index < len(out):
            instruction = out[index]
            index += 1
            if isinstance(instruction, tuple):
                if not send(instruction[0], instruction[1]):
                    core.lost(instruction[0], now_s())
            elif isinstance(instruction, Dial):
                handler.dial(instruction)
                core.peering.dialler.dialled(instruction.conn, now_s())
            elif isinstance(instruction, Hangup):
                handler.hang_up(instruction.conn)
            elif isinstance(instruction, Probe):
                handler.probe(instruction.endpoint, instruction.node)
        # Only now: instructions may end a link, and what is flushed to such a link would count as sent.
        core.flush(began_s)
        if index == len(out):
            break
    if not out:
        return False
    out.clear()
    return True
