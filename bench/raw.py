"""The references: cases in which plain pyzmq does the same job, unencrypted except where the name says CURVE.

Blocking sockets with pyzmq's default options and no event loop, except where the name says trio. Tried without effect:
a high-water mark of 10,000 instead of 1,000 (100 B and 1 KB), copy=False (64 KB parts).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .figure import percentile
from .plan import Case, Outcome, Scale
from .roles.raw_socket import curve_pairs
from .sequence import RING_COUNT
from .stream import faults, measure_stream, spending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .processes import Role, Troupe

RESET_PAUSE_S = 0.2
"""Between resets, to reconnect and to send what has queued up."""


def push_pull(
    name: str, size_bytes: int, count: int, *, curve: bool = False, ring_count: int = RING_COUNT
) -> Case:
    """Stream from PUSH to PULL, one message per `send`."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        keys = curve_pairs() if curve else None
        settings = {"size_bytes": size_bytes, "ring_count": ring_count, "curve": keys}
        pull = troupe.start("raw_pull", settings)
        push = troupe.start("raw_push", {**settings, "endpoint": pull.ready["endpoint"]})
        return measure_stream(troupe, push, [pull], size_bytes=size_bytes, count=scale.count(count))

    return Case(name, run)


def publish_subscribe(
    name: str, size_bytes: int, count: int, *, processes: int, subscribers: int, topics: int = 0
) -> Case:
    """Publish from an XPUB socket that blocks instead of dropping to `subscribers` SUB sockets in each process."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        settings = {"size_bytes": size_bytes, "ring_count": RING_COUNT, "topics": topics}
        publisher = troupe.start("raw_publish", settings)
        endpoint = publisher.ready["endpoint"]
        readers = [
            troupe.start(
                "raw_subscribe", {**settings, "endpoint": endpoint, "subscribers": subscribers}
            )
            for _ in range(processes)
        ]
        publisher.ask("wait_subscribers", count=processes * subscribers)
        return measure_stream(
            troupe, publisher, readers, size_bytes=size_bytes, count=scale.count(count)
        )

    return Case(name, run)


def request_reply(name: str, size_bytes: int, count: int, *, window: int) -> Case:
    """Send from REQ to REP one at a time (`window` 1), or from DEALER to ROUTER with `window` requests outstanding."""
    settings = {"size_bytes": size_bytes, "window": window}
    return requests(name, count, "raw_reply", "raw_request", lambda: settings)


def trio_request_reply(name: str, size_bytes: int, count: int) -> Case:
    """Send from DEALER to ROUTER one at a time, encrypted, both under trio: the mesh's lower layers alone."""

    def settings() -> Mapping[str, object]:
        return {"size_bytes": size_bytes, "curve": curve_pairs()}

    return requests(name, count, "raw_trio_reply", "raw_trio_request", settings)


def requests(
    name: str,
    count: int,
    member_role: str,
    caller_role: str,
    made: Callable[[], Mapping[str, object]],
) -> Case:
    """Make a case. `made` returns the settings of both roles, anew for each run."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        settings = made()
        member = troupe.start(member_role, settings)
        caller = troupe.start(caller_role, {**settings, "endpoint": member.ready["endpoint"]})
        counts = (scale.count(count) // 10, scale.count(count))
        for phase_count in counts:
            before = troupe.usage()
            member.tell("run", count=phase_count)
            answer = caller.ask("run", count=phase_count)
            member.hear()
        return request_outcome(answer, counts[-1], spending(before, troupe.usage()))

    return Case(name, run)


def request_outcome(
    answer: dict[str, list[int] | int], count: int, spent: Mapping[str, object]
) -> Outcome:
    """Return the rate, and percentiles if every request was timed; `answer` loses its samples."""
    times_ns = answer.pop("times_ns")
    start_ns, end_ns = answer.pop("start_ns"), answer.pop("end_ns")
    assert isinstance(times_ns, list)
    assert isinstance(start_ns, int)
    assert isinstance(end_ns, int)
    values = {"per_s": count / ((end_ns - start_ns) / 1e9)}
    if times_ns:
        values |= {
            name: percentile(times_ns, share) / 1e3
            for name, share in (("p50_us", 0.5), ("p99_us", 0.99))
        }
    report = {kind: number for kind, number in answer.items() if isinstance(number, int)}
    return Outcome(values, wrong=faults(report), detail={**spent, "samples": count, **report})


def reset_all(proxy: Role, count: int, traffic_bytes: int) -> list[int]:
    """Reset `count` times, each time under load; return how many connections each reset hit."""
    hit = []
    for _ in range(count):
        time.sleep(RESET_PAUSE_S)
        hit.append(proxy.ask("reset", traffic_bytes=traffic_bytes)["connections"])
    return hit


def resets(name: str, size_bytes: int, count: int, *, traffic_bytes: int) -> Case:
    """Send from DEALER to ROUTER through a proxy that resets `count` times under load."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        sink = troupe.start("raw_sink", {})
        port = int(sink.ready["endpoint"].rpartition(":")[2])
        proxy = troupe.start("proxy", {"routes": [[0, port]]})
        endpoint = f"tcp://127.0.0.1:{proxy.ready['ports'][0]}"
        load = troupe.start("raw_load", {"endpoint": endpoint, "size_bytes": size_bytes})
        load.ask("load")
        reset_all(proxy, count, traffic_bytes)
        report = sink.ask("settle", sent=load.ask("stop")["sent"])
        return Outcome({"lost": report["lost"]}, detail={"resets": count, **report})

    return Case(name, run)
