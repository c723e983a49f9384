"""What became of the rows: counted by each task, and added up for the query."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from .pacing import Lateness


@dataclass(slots=True)
class Counts:
    """Numbers of messages."""

    sent: int = 0
    """Handed to the mesh, or stored on the broker's disk."""
    skipped: int = 0
    """Left out because they were marked as replayed."""
    duplicates: int = 0
    """On the broker's disk before, so not stored again."""
    nobody: int = 0
    """How many of those sent to topics had no subscriber."""
    dropped: int = 0
    """How many of those sent to topics were dropped for members that were too slow."""

    def add(self, other: Counts) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True)
class Report:
    """The result of a query, of one commit of a stream, or of several replays together."""

    counts: Counts = field(default_factory=Counts)
    lateness: Lateness = field(default_factory=Lateness)
    tasks: int = 0
    failed_tasks: int = 0
    """Their messages are in no count; their errors say what was sent."""
    seconds: float = 0.0
    batch: int | None = None
    """The number of a streaming query's batch."""
    aborted: bool = False
    """Whether the query was aborted, which may happen even if all tasks succeeded; its error says why."""

    @property
    def complete(self) -> bool:
        return not self.failed_tasks and not self.aborted

    def add(self, other: Report) -> None:
        self.counts.add(other.counts)
        self.lateness.merge(other.lateness)
        self.tasks += other.tasks
        self.failed_tasks += other.failed_tasks
        self.seconds += other.seconds
        self.aborted |= other.aborted

    def plain(self) -> dict[str, Any]:
        """Return the report for people and scripts; lateness in ms."""
        return {
            **asdict(self.counts),
            **{
                f"late_ms_p{percent}": round(self.lateness.percentile_us(percent) / 1e3, 3)
                for percent in (50, 99)
            },
            "late_ms_max": round(self.lateness.percentile_us(100) / 1e3, 3),
            "tasks": self.tasks, "failed_tasks": self.failed_tasks,
            "seconds": round(self.seconds, 3),
            "per_second": round(self.counts.sent / self.seconds) if self.seconds else 0,
            "complete": self.complete,
            **({} if self.batch is None else {"batch": self.batch}),
        }  # fmt: skip


def encode_report(report: Report) -> str:
    """Encode as one line, which `decode_reports` reads."""
    fields = {
        "counts": asdict(report.counts), "lateness": sorted(report.lateness.counts.items()),
        "tasks": report.tasks, "failed_tasks": report.failed_tasks, "seconds": report.seconds,
        "batch": report.batch, "aborted": report.aborted,
    }  # fmt: skip
    return json.dumps(fields)


def decode_reports(lines: Iterable[str]) -> list[Report]:
    """Decode the lines that `encode_report` wrote."""
    return [_decoded(json.loads(line)) for line in lines if line.strip()]


def _decoded(fields: dict[str, Any]) -> Report:
    lateness = Lateness(dict(fields.pop("lateness")))
    return Report(counts=Counts(**fields.pop("counts")), lateness=lateness, **fields)
