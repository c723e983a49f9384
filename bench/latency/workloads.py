"""The workloads of "Benchmarking Message Queue Latency", named as its configuration files are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    size_bytes: int
    rate_per_s: int
    connections: int = 1

    @property
    def words(self) -> str:
        size = f"{self.size_bytes} B"
        if self.size_bytes >= 1 << 20:
            size = f"{self.size_bytes >> 20} MB"
        elif self.size_bytes >= 1 << 10:
            size = f"{self.size_bytes >> 10} KB"
        over = f" over {self.connections} connections" if self.connections > 1 else ""
        return f"{size} at {self.rate_per_s:,}/s{over}"


WORKLOADS = {
    one.name: one
    for one in (
        Workload(name="L1", size_bytes=256, rate_per_s=3000),
        Workload(name="L2", size_bytes=1024, rate_per_s=3000),
        Workload(name="L3", size_bytes=5120, rate_per_s=2000),
        Workload(name="L4", size_bytes=1024, rate_per_s=20_000, connections=25),
        Workload(name="L5", size_bytes=1 << 20, rate_per_s=100),
    )
}
