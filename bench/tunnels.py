"""A tunnel of 1 GB in 64 KB parts, beside raw PUSH-PULL of the same parts, also encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import raw
from .figure import Bound
from .network import Network
from .plan import Case, Family, Outcome, Scale, row
from .stream import measure_stream

if TYPE_CHECKING:
    from .processes import Troupe

PART_BYTES = 1 << 16
PARTS = (1 << 30) // PART_BYTES
RING_COUNT = 64
"""Distinct parts: 4 MiB, more than the L2 cache of a core."""

TUNNEL, RAW_CURVE = "tunnel 1 GB in 64 KB parts", "raw CURVE PUSH-PULL 64 KB"


def tunnel(name: str, parts: int) -> Case:
    """Measure from the first `send` until the whole tunnel is read, its byte count is back and it is closed."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        network = Network()
        common = {"size_bytes": PART_BYTES, "ring_count": RING_COUNT}
        member = troupe.start(
            "mesh_member", network.node("bench-archive", seeds=[], service="tunnel", **common)
        )
        opener = troupe.start(
            "mesh_opener",
            network.node(
                "bench-opener", seeds=[member.ready["endpoint"]], target="bench-archive", **common
            ),
        )
        return measure_stream(
            troupe, opener, [member], size_bytes=PART_BYTES, count=scale.count(parts)
        )

    return Case(name, run)


def family() -> list[Family]:
    cases = [
        tunnel(TUNNEL, PARTS),
        raw.push_pull(RAW_CURVE, PART_BYTES, PARTS, curve=True, ring_count=RING_COUNT),
    ]
    least = Bound("ratio", "at least", 0.8)
    rows = [row(TUNNEL, "MB/s", TUNNEL, "mb_per_s", least, beside=RAW_CURVE)]
    return [Family(name="tunnels", cases=cases, rows=rows)]
