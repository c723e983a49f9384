"""Request-reply: one at a time against raw REQ-REP, and many outstanding from one caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import raw
from .figure import Bound
from .network import Network
from .plan import Case, Family, Outcome, Row, Scale
from .raw import request_outcome
from .stream import spending

if TYPE_CHECKING:
    from .processes import Troupe

SIZE_BYTES = 256
ONE_COUNT, MANY_COUNT = 10_000, 100_000
WINDOW = 256

ONE, MANY = "requests one at a time", f"requests {WINDOW} outstanding"
RAW_ONE, RAW_MANY = "raw REQ-REP one at a time", f"raw DEALER-ROUTER {WINDOW} outstanding"


def requests(name: str, count: int, *, window: int) -> Case:
    """`window` tasks of one caller, each waiting for its reply before it asks again."""

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
        raw.request_reply(RAW_MANY, SIZE_BYTES, MANY_COUNT, window=WINDOW),
    ]
    rows = [
        Row(
            name="request-reply one at a time 256 B, p50",
            unit="us",
            case=ONE,
            value="p50_us",
            reference=(RAW_ONE, "p50_us"),
            bounds=(Bound("ratio", "at most", 1.6),),
        ),
        Row(
            name="request-reply one at a time 256 B, p99",
            unit="us",
            case=ONE,
            value="p99_us",
            reference=(RAW_ONE, "p99_us"),
        ),
        Row(
            name="request-reply 256 outstanding, beside one at a time",
            unit="req/s",
            case=MANY,
            value="per_s",
            reference=(ONE, "per_s"),
            # "Whichever is larger": both must hold.
            bounds=(Bound("value", "at least", 40_000), Bound("ratio", "at least", 3)),
        ),
        Row(
            name="request-reply 256 outstanding, beside raw DEALER-ROUTER",
            unit="req/s",
            case=MANY,
            value="per_s",
            reference=(RAW_MANY, "per_s"),
        ),
    ]
    return [Family(name="requests", cases=cases, rows=rows)]
