"""BrokerConfig: every setting of a broker, with its unit, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.errors import OutOfRange

from .log.config import LogConfig

MIB = 1 << 20
WINDOW_BYTES_MAX = 1 << 40
"""Largest `capture_bytes` and `tunnel_window_bytes`: the mesh accepts no larger window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker. Raises OutOfRange if one is out of its range."""

    log: LogConfig = field(default_factory=LogConfig)
    """Settings of the log of each vhost."""

    recent_bytes: int = 24 * MIB
    """Memory for recent bodies, per vhost, so that consumers that keep up need no reads from the disk."""

    memory_bytes: int = 1024 * MIB
    """Memory for messages of memory queues, per vhost; each batch counts as its bytes and 250 more. Messages
    beyond the limit are refused with MemoryFull."""

    publishers_max: int = 100_000
    """Publishers whose last sequences are remembered, per vhost; each takes 1.1 KB. Above the limit, the
    cluster with the most publishers forgets the one that connected longest ago, whose messages may be
    stored twice if they are sent again. So each cluster is certain of an equal share. Publishers that have
    not connected since the broker started count as one cluster, because the log does not say which cluster
    they belong to."""

    queues_max: int = 100_000
    """Maximum number of queues and streams per vhost, both together."""

    checkpoint_bytes: int = 16 * MIB
    """Bytes of settlements in the log after which checkpoints of the queues' indexes are written."""

    checkpoint_records: int = 250_000
    """Records of any kind after which checkpoints are written as well: a start takes seconds for a million
    records, however small they are. If checkpoints are large, later than that, except for the first one
    after a start: see docs/durable.md."""

    capture_bytes: int = 64 * MIB
    """Bytes of the captured messages of one pattern that may wait to be stored; what exceeds it becomes a
    gap."""

    tunnel_window_bytes: int = 4 * MIB
    """Bytes that one publisher may have on their way; also the limit for a single message."""

    encrypt: bool = False
    """Whether new records are encrypted at rest, under the keys that the broker joins with. Records that are
    already encrypted are read either way, as long as their keys are held."""

    idle_s: float = 1.0
    """Seconds between rounds of periodic work: expiry, retention, compaction."""

    def __post_init__(self) -> None:
        for name in (
            "recent_bytes", "memory_bytes", "publishers_max", "queues_max", "checkpoint_bytes",
            "checkpoint_records",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise OutOfRange(name, getattr(self, name), "at least 1")
        for name in ("capture_bytes", "tunnel_window_bytes"):
            if not 1 <= getattr(self, name) <= WINDOW_BYTES_MAX:
                raise OutOfRange(name, getattr(self, name), f"1 to {WINDOW_BYTES_MAX}")
        if not 0 < self.idle_s <= 60:
            raise OutOfRange("idle_s", self.idle_s, "more than 0 and at most 60")
