"""Other brokers doing the same: persistent, confirmed, consumed, acked; they differ in what a confirm promises.

One server per round, and one size after the other, each begun when all messages of the one before are acked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.comparison.serving import serving
from bench.figure import Bound
from bench.plan import Case, Outcome, Row, Scale
from bench.stream import measure_stream
from bench.systems import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.comparison.serving import Serve
    from bench.processes import Troupe
    from bench.systems.system import Promise

COUNT = 20_000
PEERS = {
    "RabbitMQ classic queue, pika": "rabbitmq-durable",
    "RabbitMQ quorum queue, pika": "rabbitmq-quorum",
    "NATS JetStream file (page cache), nats-py": "jetstream",
}
"""Names of the systems, by their names in the table."""
CONFIRM_SAYS: dict[Promise, str] = {
    "page cache": "that it is in the page cache, which is synced later",
    "batched fsync": "that it is on disk, one sync for many",
    "fsync each": "that it is on disk, with a sync of its own",
}


def confirmed(name: str, sizes: Mapping[str, int], count: int, serve: Serve = serving) -> Case:
    system = SYSTEMS[PEERS[name]]

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        values: dict[str, float] = {}
        details: dict[str, object] = {"promise": system.promise}
        wrong = 0
        with serve(troupe, system, 1, ()) as place:
            for size, size_bytes in sizes.items():
                consumer = place.start("consumer", size_bytes=size_bytes)
                producer = place.start("producer", size_bytes=size_bytes)
                outcome = measure_stream(
                    troupe, producer, [consumer], size_bytes=size_bytes, count=scale.count(count)
                )
                place.end(producer, consumer)
                values[f"per_s {size}"] = outcome.values["per_s"]
                details[size] = outcome.detail
                wrong += outcome.wrong
        return Outcome(values, wrong=wrong, detail=details)

    return Case(name, run)


def beside_peers(own: Mapping[str, str], sizes: Mapping[str, int]) -> tuple[list[Case], list[Row]]:
    """Return the cases of all peers that are installed, and rows that compare the durable tier with them.

    Args:
        own: name of the durable tier's case, by name of the size.
    """
    installed = [name for name, system in PEERS.items() if SYSTEMS[system].missing() is None]
    cases = [confirmed(name, sizes, COUNT) for name in installed]
    rows = [
        Row(
            name=f"confirmed, 1 queue, {size}, beside {name}",
            unit="msg/s",
            case=own[size],
            value="per_s",
            reference=(name, f"per_s {size}"),
            bounds=(Bound("ratio", "at least", 1.0),),
        )
        for name in installed
        for size in sizes
    ]
    return cases, rows


def notes() -> list[str]:
    """Return notes: what a confirm of each peer promises, or why the peer is not measured."""
    told = []
    for name, system in PEERS.items():
        if why := SYSTEMS[system].missing():
            told.append(f"{name} is skipped: {why}")
        else:
            told.append(f"{name}: a confirm says {CONFIRM_SAYS[SYSTEMS[system].promise]}")
    return told
