"""LogConfig: every setting of a log, with its unit, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.errors import OutOfRange

from ..errors import StoreFull

KIB, MIB = 1 << 10, 1 << 20
SEGMENT_BYTES_MIN = KIB
SEGMENT_BYTES_MAX = (1 << 32) - 8
"""Bytes in a segment are counted in 32 bits by the index."""
SEGMENT_PER_SNAPSHOT = 4
"""What is kept for a snapshot leaves most of a segment to publishes, and room for a copy of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log. Raises OutOfRange."""

    segment_bytes: int = 256 * MIB
    """Size of a segment file, preallocated. A segment is freed as a whole, so a smaller one gives
    space back sooner and a larger one costs fewer files."""

    reserve_bytes: int = 4 * MIB
    """End of each segment that publishes leave alone, so that acks and definitions still find room
    when no further segment can be made: 43,000 acks, each committed alone. Two spares of this and of what
    a snapshot takes are for what comes then: a snapshot gives one back while the other one is written."""

    free_bytes_min: int = 64 * MIB
    """No segment is made that would leave less on the file system, except in place of one that has been
    freed: others need to live, too."""

    commit_bytes_max: int = 8 * MIB
    """Most that one commit writes, unless a single record is larger. 8 MiB take 10 ms on a slow SSD:
    who comes just after does not wait for more than two of those."""

    pending_bytes_max: int = 16 * MIB
    """Most memory taken by what waits to be written; whoever appends more has to wait. Two commits of the
    largest size: more would only be more memory."""

    company_s: float = 0.01
    """Longest that what nobody waits for, settlements above all, waits for a commit to go with. A
    consumer that keeps up with a publisher would else cost a second sync for each message."""

    commit_s_max: float = 5.0
    """A commit that takes longer is reported: the disk hangs, or is far too slow."""

    retry_s: float = 1.0
    """How long to wait between attempts to get space on a full disk."""

    compaction_share_max: float = 0.25
    """A segment of which less is live is carried forward and freed: that writes at most one byte for
    three that it frees. Higher gives space back sooner and writes more. On a full disk nine tenths are worth
    it, nine bytes for each one gained then, and so that there is room a segment is kept for that, once there are three.
    0: neither is done."""

    compaction_bytes_per_s: int = 16 * MIB
    """Most that compaction writes: a tenth of what a slow SSD takes, so publishers hardly notice. A
    segment with a quarter left takes four seconds, on a full disk one with nine tenths left fourteen."""

    @property
    def kept_for_snapshot_bytes_max(self) -> int:
        """Most that is kept in a segment for the next snapshot."""
        return self.segment_bytes // SEGMENT_PER_SNAPSHOT

    def full(self, needed_bytes: int, free_bytes: int) -> StoreFull:
        """What is told where there is no room for so much."""
        return StoreFull(needed_bytes, self.segment_bytes, free_bytes, self.free_bytes_min)

    def __post_init__(self) -> None:
        size_bytes, half = self.segment_bytes, self.segment_bytes // 2
        if not SEGMENT_BYTES_MIN <= size_bytes <= SEGMENT_BYTES_MAX:
            want = f"{SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            raise OutOfRange("segment_bytes", size_bytes, want)
        for name in ("segment_bytes", "reserve_bytes"):
            if getattr(self, name) % 8:
                raise OutOfRange(name, getattr(self, name), "a multiple of 8")
        if not 0 <= self.reserve_bytes <= half:
            want = f"0 to {half}, half of a segment"
            raise OutOfRange("reserve_bytes", self.reserve_bytes, want)
        for name in (
            "commit_bytes_max", "pending_bytes_max", "company_s", "commit_s_max", "retry_s",
            "compaction_bytes_per_s",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise OutOfRange(name, getattr(self, name), "more than 0")
        if not 0 <= self.compaction_share_max <= 0.5:
            want = "0 (never) to 0.5: beyond, it writes more than it frees"
            raise OutOfRange("compaction_share_max", self.compaction_share_max, want)
        if self.free_bytes_min < 0:
            raise OutOfRange("free_bytes_min", self.free_bytes_min, "at least 0")
