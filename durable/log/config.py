"""LogConfig: every setting of a log, with its unit, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.errors import OutOfRange

from ..errors import StoreFull

KIB, MIB = 1 << 10, 1 << 20
SEGMENT_BYTES_MIN = KIB
SEGMENT_BYTES_MAX = (1 << 32) - 8
"""The index counts bytes in a segment with 32 bits."""
SEGMENT_PER_SNAPSHOT = 4
"""At most this part of a segment is kept for a snapshot, so most is left to publishes, and room for a copy of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log. Raises OutOfRange if one is not valid."""

    segment_bytes: int = 256 * MIB
    """Size of a segment file, preallocated. A segment is freed as a whole, so smaller ones give space back
    sooner, and larger ones mean fewer files."""

    reserve_bytes: int = 4 * MIB
    """The end of each segment that publishes may not use, so that acks and definitions still find room when no
    further segment can be made: 43,000 acks, each committed alone. After that, two spares are used, each as large as
    the reserve and the next snapshot together: while one is written, a snapshot makes the other one free."""

    free_bytes_min: int = 64 * MIB
    """A segment that would leave less free space on the file system is not made, because others need space, too;
    except in place of one that has been freed."""

    commit_bytes_max: int = 8 * MIB
    """Most that one commit writes, unless a single record is larger. 8 MiB take 10 ms on a slow SSD: a record
    that comes just after a commit has begun waits for no more than two of those."""

    pending_bytes_max: int = 16 * MIB
    """Most memory for records that wait to be written; further appends have to wait. Two commits of the largest
    size: more would only take more memory."""

    company_s: float = 0.01
    """Longest that records nobody waits for, above all settlements, wait for a commit to go with. Otherwise a
    consumer that keeps up with a publisher would cost a second sync for each message."""

    commit_s_max: float = 5.0
    """A commit that takes longer is reported: the disk hangs, or is far too slow."""

    retry_s: float = 1.0
    """How long to wait between attempts to get space on a full disk."""

    compaction_share_max: float = 0.25
    """A segment of which a smaller part is live is carried forward and freed: this writes at most one byte for
    three that it frees. A higher value gives space back sooner and writes more. On a full disk a segment of which up
    to nine tenths are live is compacted, at nine bytes written for one gained; to have room for that, a whole segment
    is kept, once there are three. 0: neither is done. The same share of the segment that is being
    written is kept for dead letters; where there is no whole segment for compaction, they get no more than that, or than
    the rest of it if they are most of what is stored."""

    compaction_bytes_per_s: int = 16 * MIB
    """Most that compaction writes: a tenth of what a slow SSD takes, so publishers hardly notice. A segment with a
    quarter left takes four seconds. On a full disk it does not apply, as publishers wait for compaction."""

    @property
    def kept_for_snapshot_bytes_max(self) -> int:
        """Most that is kept in a segment for the next snapshot."""
        return self.segment_bytes // SEGMENT_PER_SNAPSHOT

    def full_error(self, needed_bytes: int, free_bytes: int) -> StoreFull:
        """Return the error for an append of `needed_bytes` that finds no room."""
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
            want = "0 (never) to 0.5: above, compaction writes more than it frees"
            raise OutOfRange("compaction_share_max", self.compaction_share_max, want)
        if self.free_bytes_min < 0:
            raise OutOfRange("free_bytes_min", self.free_bytes_min, "at least 0")
