"""The connections of a node, dialled or accepted: which link each belongs to, and which have just ended."""

from __future__ import annotations

from collections import OrderedDict

from .instructions import Hangup, Instruction
from .lane import Conn
from .link import Link

GONE_MAX = 1024


class Connections:
    """Those that a link has, by `bound`; others have yet to be greeted or answered."""

    def __init__(self, out: list[Instruction]) -> None:
        self._out = out
        self.bound: dict[Conn, Link] = {}
        self.gone: OrderedDict[Conn, None] = OrderedDict()
        """Ended lately: what the transport reads of them after that is not heard."""

    def hang_up(self, conn: Conn) -> None:
        """Close it; nothing more is heard of it."""
        self._out.append(Hangup(conn))
        self.ended(conn)

    def ended(self, conn: Conn) -> Link | None:
        """It is closed; return the link that it belonged to."""
        self.gone[conn] = None
        if len(self.gone) > GONE_MAX:
            self.gone.popitem(last=False)
        return self.bound.pop(conn, None)
