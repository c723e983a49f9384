"""Request-reply: one at a time beside raw REQ-REP, and with many requests of one caller outstanding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import raw
from .figure import Bound, at_least
from .network import Network
from .plan import Case, Family, Outcome, Scale, row
from .raw import request_outcome
from .stream import spending

if TYPE_CHECKING:
    from .processes import Troupe

SIZE_BYTES = 256
ONE_COUNT, MANY_COUNT = 10_000, 100_000
WINDOW = 256

ONE, MANY = "requests one at a time", f"requests {WINDOW} outstanding"
RAW_ONE, RAW_MANY = "raw REQ-REP one at a time", f"raw DEALER-ROUTER {WINDOW} outstanding"
TRIO_ONE = "raw DEALER-ROUTER with CURVE under trio, one at a time"


def requests(name: str, count: int, *, window: int) -> Case:
    """Run `window` tasks of one caller, each of which waits for its reply before it sends the next request."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        network = Network()
        service = {"service": "echo", "concurrency": WINDOW}
        member = troupe.start("mesh_member", network.node("bench-echo", seeds=[], **service))
        caller = troupe.start(
            "mesh_caller",
            network.node(
                "bench-caller",
                seeds=[member.ready["endpoint"]],
                size_bytes=SIZE_BYTES,
                window=window,
                target="bench-echo",
            ),
        )
        caller.ask("run", count=scale.count(count) // 10)
        before = troupe.usage()
        answer = caller.ask("run", count=scale.count(count))
        return request_outcome(answer, scale.count(count), spending(before, troupe.usage()))

    return Case(name, run)


def family() -> list[Family]:
    cases = [
        requests(ONE, ONE_COUNT, window=1),
        requests(MANY, MANY_COUNT, window=WINDOW),
        raw.request_reply(RAW_ONE, SIZE_BYTES, ONE_COUNT, window=1),
        raw.trio_request_reply(TRIO_ONE, SIZE_BYTES, ONE_COUNT),
        raw.request_reply(RAW_MANY, SIZE_BYTES, MANY_COUNT, window=WINDOW),
    ]
    one, many = "request-reply one at a time 256 B", "request-reply 256 outstanding"
    # The mark is "whichever is larger": both bounds must hold.
    larger = (at_least(40_000), Bound("ratio", "at least", 3))
    rows = [
        row(f"{one}, p50", "us", ONE, "p50_us", Bound("ratio", "at most", 1.6), beside=RAW_ONE),
        row(f"{one}, p99", "us", ONE, "p99_us", beside=RAW_ONE),
        row(f"{one}, p50, beside {TRIO_ONE}", "us", ONE, "p50_us", beside=TRIO_ONE),
        row(f"{TRIO_ONE}, 256 B, p50", "us", TRIO_ONE, "p50_us", beside=RAW_ONE),
        row(f"{many}, beside one at a time", "req/s", MANY, "per_s", *larger, beside=ONE),
        row(f"{many}, beside raw DEALER-ROUTER", "req/s", MANY, "per_s", beside=RAW_MANY),
    ]
    return [Family(name="requests", cases=cases, rows=rows)]
