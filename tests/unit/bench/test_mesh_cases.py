"""Every kind of mesh case, small: it runs, and nothing is lost. How fast is not asked here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import balance, finding, idle, raw, requests, resets, topics, tunnels
from bench.plan import Scale
from bench.processes import Troupe
from bench.scaling import nodes
from tests.moments import Moments

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.plan import Case

TINY = 2000

CASES = [
    *(topics.stream(way, 100, TINY, way=way) for way in topics.WAYS),
    topics.stream("messages", 100, TINY, iterator="messages"),
    topics.stream("fan out", 100, TINY, processes=2, subscribers=2),
    topics.stream("topics", 100, TINY, topics=10),
    requests.requests("one at a time", 200, window=1),
    requests.requests("outstanding", TINY, window=16),
    raw.trio_request_reply("raw under trio", 256, 200),
    raw.push_pull("raw with CURVE", 1024, TINY, curve=True),
    tunnels.tunnel("tunnel", 64),
    nodes.messages_between("nodes", 5),
    finding.finding("found through one seed", zeroconf=False),
    *(resets.resets(f"{pattern} through resets", pattern, 3) for pattern in resets.PATTERNS),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_nothing_is_lost(case: Case) -> None:
    with Troupe() as troupe:
        outcome = case.run(troupe, Scale())
    assert outcome.wrong == 0
    assert outcome.values.get("lost", 0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("choose", [balance.shared_cluster, balance.own_cluster])
def test_every_request_on_the_schedule_is_answered(choose: Callable[[int], str]) -> None:
    with Troupe() as troupe:
        outcome = balance.balance("balance", choose, promised=True).run(troupe, Moments())
    assert outcome.wrong == 0
    assert outcome.detail["samples"] > 0


@pytest.mark.slow
def test_an_idle_node_is_watched() -> None:
    with Troupe() as troupe:
        outcome = idle.idle("idle").run(troupe, Moments())
    assert outcome.values["rss_mb"] > 0
