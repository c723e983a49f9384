"""Instructions of the core, which the shell carries out, in order, before its next call to the core.

A tuple `(conn, frame)` means "send"; it is by far the most frequent instruction, so it has no class.
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
    """Close a connection that we opened, or forget one that we accepted; the core hears nothing more of it."""

    conn: Conn


@dataclass(frozen=True, slots=True)
class Probe:
    """Find out whether anything listens at `endpoint`; report `probed`."""

    endpoint: str
    node: bytes


class ProbeResult(Enum):
    """Result of a probe."""

    LISTENS = "something listens there"
    REFUSED = "nothing listens there"
    SILENT = "nobody answers, or it is no address"


Send = tuple[Conn, bytes]
Instruction = Send | Dial | Hangup | Probe
