"""One request: its encoding, and its state at the caller's end.

REQUEST body: u32 time left in ms (0: no deadline), u8 flags (1: the member may answer BUSY early), u8 length
of the cluster, u8 length of the endpoint, both names, payload. REPLY and ERROR: u32 service time in us,
u16 queue, then the payload or msgpack [code, message]. BUSY: msgpack [queue, retry_after_ms, hard,
setting, limit]; the last two, the limit that was reached, were added later and may be missing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..errors import MeshError, RemoteProtocolError
from ..names import split_target
from .balancer import Candidate
from .frame import Buffer
from .outbox import Record
from .timers import NO_TIMER
from .values import decode_values, encode_values

PREFIX = struct.Struct("<IBBB")
REPLY_PREFIX = struct.Struct("<IH")
MAY_BE_BUSY = 1
TIME_LEFT_MS_MAX = 0xFFFFFFFF
EXPIRED = ""
"""Code of an ERROR: the deadline passed before the handler started. No ServiceError has this code."""

WAITING, QUEUED, SENT, DONE = range(4)


def pack_head(cluster: str, endpoint: str, time_left_ms: int = 0, flags: int = 0) -> bytes:
    """Return what comes before the payload of a REQUEST or BROADCAST."""
    return PREFIX.pack(time_left_ms, flags, len(cluster), len(endpoint)) + _names(cluster, endpoint)


@lru_cache(maxsize=4096)
def _names(cluster: str, endpoint: str) -> bytes:
    return f"{cluster}{endpoint}".encode()


def read_head(data: Buffer, start: int, end: int) -> tuple[str, str, int, int, int]:
    """Return cluster, endpoint, where the payload begins, time left in ms, flags.

    Raises:
        RemoteProtocolError: if the names do not fit or are not UTF-8.
    """
    if end - start < PREFIX.size:
        raise RemoteProtocolError(f"request of {end - start} bytes is shorter than its header")
    time_left_ms, flags, cluster_length, endpoint_length = PREFIX.unpack_from(data, start)
    cluster_at = start + PREFIX.size
    endpoint_at = cluster_at + cluster_length
    at = endpoint_at + endpoint_length
    if at > end:
        raise RemoteProtocolError("request whose names do not fit")
    try:
        cluster = str(data[cluster_at:endpoint_at], "utf-8")
        return cluster, str(data[endpoint_at:at], "utf-8"), at, time_left_ms, flags
    except UnicodeDecodeError:
        raise RemoteProtocolError("request with a name that is not UTF-8") from None


def pack_busy(
    queue: int, retry_after_ms: int, *, hard: bool, setting: str = "", limit: int = 0
) -> bytes:
    """Return the body of a BUSY. `setting` allows no more than `limit`; empty: the member is leaving."""
    return encode_values(queue, retry_after_ms, hard, setting, limit)


def read_busy(body: bytes) -> list[Any]:
    """Return queue, retry_after_ms, hard, setting, limit. Raises RemoteProtocolError."""
    return decode_values(body, "BUSY", (int, int, bool), defaults=("", 0))


class Pending:
    """One request under way. Once `state` is DONE, `outcome` is a reply or an error, None if it was cancelled."""

    __slots__ = (
        "candidate",
        "cluster",
        "deadline_s",
        "endpoint",
        "expires_s",
        "full_nodes",
        "ident",
        "limit_reached",
        "maybe_executed_by",
        "only",
        "outcome",
        "payload",
        "record",
        "retry_after_s",
        "sequence",
        "settle_timer",
        "soft",
        "started_s",
        "state",
        "target",
        "tried",
        "wake",
    )  # fmt: skip

    def __init__(
        self, ident: int, target: str, payload: bytes, started_s: float, deadline_s: float,
        expires_s: float, wake: Callable[[], object], only: Candidate | None,
    ) -> None:  # fmt: skip
        self.ident, self.target, self.payload = ident, target, payload
        self.cluster, self.endpoint = split_target(target)
        self.started_s, self.deadline_s, self.expires_s = started_s, deadline_s, expires_s
        self.wake, self.only = wake, only
        self.state = WAITING
        self.candidate: Candidate | None = None
        self.tried: tuple[bytes, ...] = ()
        """Members that were lost, or answered BUSY although they have room."""
        self.full_nodes: tuple[bytes, ...] = ()
        """Members that answered BUSY because they have no room."""
        self.limit_reached = ("", 0)
        """The setting whose limit the last member that answered BUSY had reached, and that limit."""
        self.maybe_executed_by = b""
        """The member that may have executed the request and was lost, so that another was asked; empty: none."""
        self.retry_after_s = 0.0
        self.settle_timer = NO_TIMER
        """Timer for how long the request waits while its cluster has no members."""
        self.sequence = 0
        """Sequence of the data frame in which its last piece left; 0: that has not left."""
        self.soft = False
        """Whether the member that has it may answer BUSY although it has room."""
        self.record: Record | None = None
        """Its record in the outbox of the link to the member that has it."""
        self.outcome: bytes | MeshError | None = None

    def on_first_piece(self) -> None:
        """See `outbox.Owner`: from now on the member may have seen the request."""
        if self.state == QUEUED:
            self.state = SENT

    def on_last_piece(self) -> None:
        """See `outbox.Owner`: the member has all of the request only if it has received this frame."""
        if self.candidate is not None:
            self.sequence = self.candidate.link.data.next_sequence
