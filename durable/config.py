"""BrokerConfig: every setting of a broker, with its unit, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.errors import OutOfRange

from .log.config import LogConfig

MIB = 1 << 20
WINDOW_BYTES_MAX = 1 << 40
"""Of what may wait for a subscription or in a tunnel: the mesh takes no larger window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker. Raises OutOfRange."""

    log: LogConfig = field(default_factory=LogConfig)
    """Of each vhost."""

    recent_bytes: int = 24 * MIB
    """Memory for bodies kept per vhost, so that consumers who keep up read no disk."""

    memory_bytes: int = 1024 * MIB
    """Memory for messages in queues that are in memory only, per vhost; each batch counts as 250 bytes besides.
    More are refused with MemoryFull."""

    publishers_max: int = 100_000
    """Publishers whose last sequences are remembered per vhost; 1.1 KB each. Over that the cluster
    that has most forgets the one that connected longest ago, which may store again what it sends again:
    an equal share is each cluster's for certain. Those that have not connected since the broker started
    count as one cluster: the log does not say whose they are."""

    queues_max: int = 100_000
    """Queues and streams per vhost."""

    checkpoint_bytes: int = 16 * MIB
    """Of settlements in the log after which the queues' indexes are written down."""

    checkpoint_records: int = 250_000
    """Of anything, after which they are written down as well: a start takes seconds for a million, however
    little is in each. But for the first one after a start, later where checkpoints are large: see docs/durable.md."""

    capture_bytes: int = 64 * MIB
    """Of one pattern's captured messages that may wait to be stored; what comes on top is a gap."""

    tunnel_window_bytes: int = 4 * MIB
    """What one publisher may have on its way, and so the largest message."""

    encrypt: bool = False
    """Whether what is written from now on is encrypted at rest, under the keys that the broker joins
    with. What is encrypted already is read either way, as long as those keys are held."""

    idle_s: float = 1.0
    """How often time does its work: expiry, retention, compaction."""

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
