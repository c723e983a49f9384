"""The connections of a node, dialled or accepted: which link each belongs to, and which have just ended."""

from __future__ import annotations

from .instructions import Hangup, Instruction
from .lane import Conn
from .latest import Latest
from .link import Link

RECENTLY_ENDED_MAX = 1024


class Connections:
    """`link_by_conn` has those that belong to a link; on others a greeting or an answer is yet to come."""

    def __init__(self, out: list[Instruction]) -> None:
        self._out = out
        self.link_by_conn: dict[Conn, Link] = {}
        self.recently_ended: Latest[Conn, None] = Latest(RECENTLY_ENDED_MAX)
        """Connections that ended lately: frames that the transport still reads from them are ignored."""

    def hang_up(self, conn: Conn) -> None:
        """Close a connection; frames that still come from it are ignored."""
        self._out.append(Hangup(conn))
        self.ended(conn)

    def ended(self, conn: Conn) -> Link | None:
        """Note that a connection has ended; return the link that it belonged to, None if it had none."""
        self.recently_ended[conn] = None
        return self.link_by_conn.pop(conn, None)
