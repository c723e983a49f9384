"""Publish-subscribe: one to one with each publishing method and iterator, one to eight, and 1,000 topics.

Each case beside raw pyzmq: PUSH-PULL for one to one, an XPUB that blocks instead of dropping for the others. Both sides
send the same payloads, made before the clock starts, and check all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import raw
from .figure import Bound
from .network import Network
from .plan import Case, Family, Outcome, Row, Scale, row
from .sequence import ring_count
from .stream import knock_until_ready, measure_stream

if TYPE_CHECKING:
    from .processes import Troupe

WAYS = ("publish", "publish_nowait", "publish_many")
ITERATORS = {"batches": "batch iterator", "messages": "message iterator"}
SIZES = {
    # name: size in bytes, messages, least ratio to raw with the batch / message iterator
    "100 B": (100, 4_000_000, {"batches": 2.0, "messages": 1.0}),
    "1 KB": (1024, 1_000_000, {"batches": 1.2, "messages": 1.0}),
}
FRAME_BYTES, FRAME_COUNT, FRAME_RING_COUNT = 1 << 18, 4000, 16
"""Frames of the size into which a publisher packs small messages; 1 GB of them, from 16 distinct ones (4 MiB)."""
FAN_OUT_COUNT = 500_000
PROCESSES, SUBSCRIBERS = 2, 4
TOPICS, TOPICS_COUNT = 1000, 1_000_000


def stream(
    name: str,
    size_bytes: int,
    count: int,
    *,
    way: str = "publish",
    iterator: str = "batches",
    processes: int = 1,
    subscribers: int = 1,
    topics: int = 1,
) -> Case:
    """Stream from one publisher to `subscribers` subscriptions in each of `processes` nodes."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        network = Network()
        common = {
            "size_bytes": size_bytes,
            "ring_count": ring_count(topics, size_bytes),
            "topics": topics,
            "subscribers": subscribers,
        }
        publisher = troupe.start(
            "mesh_publisher", network.node("bench-publisher", seeds=[], **common)
        )
        readers = [
            troupe.start(
                "mesh_subscriber",
                network.node("bench-subscriber", seeds=[publisher.ready["endpoint"]], **common),
                wait=False,
            )
            for _ in range(processes)
        ]
        knock_until_ready(publisher, readers)
        for reader in readers:
            reader.ask("drain")
        return measure_stream(
            troupe,
            publisher,
            readers,
            size_bytes=size_bytes,
            count=scale.count(count),
            way=way,
            iterator=iterator,
        )

    return Case(name, run)


def one_to_one() -> tuple[list[Case], list[Row]]:
    cases, rows = [], []
    for size, (size_bytes, count, least) in SIZES.items():
        reference = f"raw PUSH-PULL {size}"
        cases.append(raw.push_pull(reference, size_bytes, count))
        for way in WAYS:
            for iterator, words in ITERATORS.items():
                name = f"publish-subscribe 1->1 {size}, {way}, {words}"
                cases.append(stream(name, size_bytes, count, way=way, iterator=iterator))
                # Only the plain method has a mark: one awaited `publish` per message.
                mark = [Bound("ratio", "at least", least[iterator])] if way == "publish" else []
                rows.append(row(name, "msg/s", name, "per_s", *mark, beside=reference))
    return cases, rows


def encrypted() -> tuple[list[Case], list[Row]]:
    """How close 1 KB messages come to the rate at which libzmq moves the same bytes encrypted."""
    name = "publish-subscribe 1->1 1 KB, publish, batch iterator"
    reference = "raw CURVE PUSH-PULL 256 KiB"
    cases = [
        raw.push_pull(reference, FRAME_BYTES, FRAME_COUNT, curve=True, ring_count=FRAME_RING_COUNT)
    ]
    return cases, [row(f"{name}, beside {reference}", "MB/s", name, "mb_per_s", beside=reference)]


def one_to_many() -> tuple[list[Case], list[Row]]:
    name = "publish-subscribe 1->8 subscriptions in 2 processes 100 B"
    many = "publish-subscribe 1,000 topics in turn 100 B"
    raw_fan, raw_many = "raw PUB-SUB 1->8 100 B", "raw PUB-SUB 1,000 topics 100 B"
    cases = [
        stream(name, 100, FAN_OUT_COUNT, processes=PROCESSES, subscribers=SUBSCRIBERS),
        stream(many, 100, TOPICS_COUNT, topics=TOPICS),
        raw.publish_subscribe(
            raw_fan, 100, FAN_OUT_COUNT, processes=PROCESSES, subscribers=SUBSCRIBERS
        ),
        raw.publish_subscribe(
            raw_many, 100, TOPICS_COUNT, processes=1, subscribers=1, topics=TOPICS
        ),
    ]
    rows = [
        row(name, "deliveries/CPU-s", name, "per_cpu_s", beside=raw_fan),
        row(many, "msg/s", many, "per_s", beside=raw_many),
    ]
    return cases, rows


def family() -> list[Family]:
    one_cases, one_rows = one_to_one()
    bound_cases, bound_rows = encrypted()
    many_cases, many_rows = one_to_many()
    return [
        Family(name="topics", cases=one_cases + bound_cases, rows=one_rows + bound_rows),
        Family(name="fan-out", cases=many_cases, rows=many_rows),
    ]
