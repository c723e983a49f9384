"""What a peer is told that asks for what it cannot have."""

from __future__ import annotations

import pytest

from mesh.protocol.dispatch import Endpoint
from mesh.protocol.frame import Kind
from mesh.protocol.values import decode_values
from tests.machines import make_link

from .test_patterns import Bench, call


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
    assert all(decode_values(body, "BUSY", (int, int, bool))[2] for body in busy)
