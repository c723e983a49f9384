"""What the core wants done. The shell carries it out, in order, before the next call.

A tuple `(conn, frame)` is "send"; it is by far the most frequent, so it is no class of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from security.keys import ClusterKeys

from .lane import Conn


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a connection that the core will call `conn`; report `lost` when it fails or ends."""

    conn: int
    lane: int
    endpoint: str
    server: ClusterKeys
    client: ClusterKeys


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close a connection of ours, or forget one of theirs; nothing more is heard of it."""

    conn: Conn


@dataclass(frozen=True, slots=True)
class Probe:
    """Find out whether anything listens at `endpoint`; report `probed`."""

    endpoint: str
    node: bytes


class Probed(Enum):
    """What a probe has found out."""

    LISTENS = "something listens there"
    REFUSED = "nothing listens there"
    SILENT = "nobody answers, or it is no address"


Send = tuple[Conn, bytes]
Instruction = Send | Dial | Hangup | Probe
