"""Everything counted about a log, frozen."""

from __future__ import annotations

from dataclasses import dataclass

from .committing import Committer


@dataclass(frozen=True, slots=True)
class LogStatistics:
    end: int
    """The log position of the next record."""
    durable_end: int
    """All records before this one survive a power cut."""
    pending_bytes: int
    """Bytes appended and not durable yet."""
    commits: int
    committed_bytes: int
    segments: int
    live_bytes: int
    """Bytes of records that are needed, as compaction counts them."""
    full: bool
    """There is no space for a further segment: publishes are refused, or soon will be."""
    overdue_s: float
    """By how much the commit under way exceeds its time limit; more than 0 means that the disk hangs."""
    failure: str | None
    """Why the store has stopped; None if it has not."""

    @classmethod
    def of(cls, committer: Committer, now_s: float) -> LogStatistics:
        return cls(
            end=committer.end, durable_end=committer.durable_end, pending_bytes=committer.pending_bytes,
            commits=committer.commits, committed_bytes=committer.committed_bytes,
            segments=len(committer.segments),
            live_bytes=sum(one.live_bytes for one in committer.segments), full=committer.full,
            overdue_s=committer.overdue_s(now_s), failure=committer.failure,
        )  # fmt: skip
