"""Other brokers doing the same: persistent, confirmed, consumed, acked; what a confirm says differs.

One server per round, the sizes one after the other, each in a queue of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.figure import Bound
from bench.network import Network
from bench.peers import PEERS
from bench.plan import Case, Outcome, Row, Scale
from bench.stream import measure_stream

from .setting import temporary_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.peers.peer import Peer
    from bench.processes import Troupe

COUNT = 20_000
PORTS = 3
START_S_MAX = 90.0


def confirmed(peer: Peer, sizes: Mapping[str, int], count: int) -> Case:
    def run(troupe: Troupe, scale: Scale) -> Outcome:
        values: dict[str, float] = {}
        details: dict[str, object] = {"promise": peer.promise}
        wrong = 0
        ports = list(Network().free_ports(PORTS))
        with temporary_store() as data:
            store = Path(data) / "peer"
            store.mkdir()
            server = troupe.start(
                "peer_server",
                {"peer": peer.name, "directory": str(store), "ports": ports},
                wait=False,
            )
            server.hear(START_S_MAX)
            for size, size_bytes in sizes.items():
                settings = {
                    "peer": peer.name, "port": ports[0], "size_bytes": size_bytes,
                    "queue": f"bench-{size_bytes}",
                }  # fmt: skip
                publisher = troupe.start("peer_publisher", settings)
                consumer = troupe.start("peer_consumer", settings)
                outcome = measure_stream(
                    troupe, publisher, [consumer], size_bytes=size_bytes, count=scale.count(count)
                )
                for role in (publisher, consumer):
                    troupe.end(role)
                values[f"per_s {size}"] = outcome.values["per_s"]
                details[size] = outcome.detail
                wrong += outcome.wrong
            troupe.end(server)
        return Outcome(values, wrong=wrong, detail=details)

    return Case(peer.name, run)


def beside_peers(own: Mapping[str, str], sizes: Mapping[str, int]) -> tuple[list[Case], list[Row]]:
    """Cases of all that are installed, and rows that set ours beside them.

    Args:
        own: name of our case, by name of the size.
    """
    installed = [peer for peer in PEERS if peer.missing() is None]
    cases = [confirmed(peer, sizes, COUNT) for peer in installed]
    rows = [
        Row(
            name=f"confirmed, 1 queue, {size}, beside {peer.name}",
            unit="msg/s",
            case=own[size],
            value="per_s",
            reference=(peer.name, f"per_s {size}"),
            bounds=(Bound("ratio", "at least", 1.0),),
        )
        for peer in installed
        for size in sizes
    ]
    return cases, rows


def notes() -> list[str]:
    """What the confirms of those that are measured say; who is not measured, and why."""
    reasons = [(peer, peer.missing()) for peer in PEERS]
    return [
        f"{peer.name}: a confirm says {peer.promise}"
        if why is None
        else f"{peer.name} is skipped: {why}"
        for peer, why in reasons
    ]
