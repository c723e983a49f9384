"""What a peer is told that asks for what it cannot have."""

from __future__ import annotations

import pytest

from mesh.errors import InvalidName
from mesh.protocol.dispatch import Endpoint
from mesh.protocol.frame import Kind
from mesh.protocol.request import read_busy
from tests.machines import make_link

from .patterns_bench import Bench, call
from .test_patterns import subscribe


@pytest.mark.parametrize("target", [("nobody", "get"), ("depot", "none"), ("depot", "closed")])
def test_refusals_wait_for_a_peer_within_the_limit_of_answers(target: tuple[str, str]) -> None:
    """Who asks for what is not there, and takes nothing, is told so on the lane that is given up."""
    bench = Bench()
    bench.dispatcher.requests["closed"] = Endpoint(frozenset())
    bench.link = make_link(outbox_bytes=1000)
    for ident in range(1, 101):
        bench.record(Kind.REQUEST, ident, call(*target))
    assert bench.link.outbox.size_bytes < 1000 + 100
    told = bench.sent()
    assert sorted(ident for _, ident, _ in told) == [*range(1, 101)]
    busy = [body for kind, _, body in told if kind == Kind.BUSY]
    assert busy
    assert {tuple(read_busy(body)[2:]) for body in busy} == {(True, "outbox_bytes", 1000)}


def test_a_pattern_that_only_earlier_members_ask_for_costs_no_link() -> None:
    bench = Bench()
    bench.record(Kind.SUBSCRIBE, 7, subscribe("t.#"))
    with pytest.raises(InvalidName, match="# is not a wildcard"):
        bench.patterns.subscriptions.subscribe("t.#", "drop_oldest", 1000, lambda: None)
    bench.publish("t.a", b"x")
    assert bench.sent() == []
