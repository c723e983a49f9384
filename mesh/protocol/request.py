"""One request: how it travels, and how far it is at the caller's end.

REQUEST body: u32 time left in ms (0: none), u8 flags (1: you may say BUSY early), u8 length of the
cluster, u8 length of the endpoint, both names, payload. REPLY and ERROR: u32 service time in us,
u16 queue, then the payload or msgpack [code, message]. BUSY: msgpack [queue, retry_after_ms, hard,
setting, limit]; the last two, the limit that was met, were added later and may be missing.
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
LEFT_MS_MAX = 0xFFFFFFFF
EXPIRED = ""
"""Code of an ERROR: the deadline passed before the handler started. No ServiceError can have it."""

WAITING, QUEUED, SENT, DONE = range(4)


def pack_head(cluster: str, endpoint: str, left_ms: int = 0, flags: int = 0) -> bytes:
    """What stands before the payload of a REQUEST or BROADCAST."""
    return PREFIX.pack(left_ms, flags, len(cluster), len(endpoint)) + _names(cluster, endpoint)


@lru_cache(maxsize=4096)
def _names(cluster: str, endpoint: str) -> bytes:
    return f"{cluster}{endpoint}".encode()


def read_head(data: Buffer, start: int, end: int) -> tuple[str, str, int, int, int]:
    """Cluster, endpoint, where the payload begins, time left in ms, flags.

    Raises:
        RemoteProtocolError: the names do not fit or are no text.
    """
    if end - start < PREFIX.size:
        raise RemoteProtocolError(f"request of {end - start} bytes")
    left_ms, flags, cluster_length, endpoint_length = PREFIX.unpack_from(data, start)
    cluster_at = start + PREFIX.size
    endpoint_at = cluster_at + cluster_length
    at = endpoint_at + endpoint_length
    if at > end:
        raise RemoteProtocolError("request whose names do not fit")
    try:
        cluster = str(data[cluster_at:endpoint_at], "utf-8")
        return cluster, str(data[endpoint_at:at], "utf-8"), at, left_ms, flags
    except UnicodeDecodeError:
        raise RemoteProtocolError("request for a name that is not UTF-8") from None


def pack_busy(
    queue: int, retry_after_ms: int, *, hard: bool, setting: str = "", limit: int = 0
) -> bytes:
    """The body of a BUSY. `setting` is the one that allows no more than `limit`; empty: leaving."""
    return encode_values(queue, retry_after_ms, hard, setting, limit)


def read_busy(body: bytes) -> list[Any]:
    """Queue, retry after ms, hard, setting, limit. Raises RemoteProtocolError."""
    return decode_values(body, "BUSY", (int, int, bool), added=("", 0))


class Pending:
    """One request under way. `outcome` is a reply or an error once `state` is DONE."""

    __slots__ = (
        "candidate",
        "cluster",
        "deadline_s",
        "endpoint",
        "expires_s",
        "full",
        "full_of",
        "ident",
        "only",
        "outcome",
        "payload",
        "ran_at",
        "record",
        "retry_after_s",
        "sequence",
        "settled",
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
        """Members that were lost, or said BUSY although they have room."""
        self.full: tuple[bytes, ...] = ()
        """Members that can take nothing."""
        self.full_of = ("", 0)
        """The setting by which the last of them can take nothing, and its limit."""
        self.ran_at = b""
        """The member that may have executed it, and was lost before one was asked again; empty: none."""
        self.retry_after_s = 0.0
        self.settled = NO_TIMER
        """Its timer while there is nobody to ask."""
        self.sequence = 0
        """Of the data frame in which the last of it left; 0: that has not left."""
        self.soft = False
        """The member that has it may say BUSY although it has room."""
        self.record: Record | None = None
        """While it waits to leave."""
        self.outcome: bytes | MeshError | None = None

    def begins(self) -> None:
        """Its record begins to leave: the member may have seen it from now on."""
        if self.state == QUEUED:
            self.state = SENT

    def ends(self) -> None:
        """The last of it leaves: before, the member cannot have all of it."""
        if self.candidate is not None:
            self.sequence = self.candidate.link.data.next_sequence
