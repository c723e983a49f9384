"""What the broker keeps of a consumer that hears nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from durable.broker.consuming import _Session
from durable.protocol.parts import ACK, Settlement, encode_settlements


def test_settlements_that_nobody_is_told_of_take_no_more_than_flushes_under_way() -> None:
    """Found: an entry for each, for as long as the client did not read."""
    settling: Any = SimpleNamespace(durable=0, flush=0)
    settling.next_flush = lambda: settling.flush
    hosted = SimpleNamespace(vhost=SimpleNamespace(settling=settling), wake=lambda _: None)
    queue = SimpleNamespace(name="jobs", settle=lambda *_: None)
    anything = cast("Any", None)
    session = _Session(anything, cast("Any", hosted), cast("Any", queue), anything, no_ack=False)
    part = encode_settlements([Settlement(ACK, 1, 2)])
    for number in range(1000):
        settling.flush = number // 10
        settling.durable = settling.flush - 2
        session.settle(part)
        assert len(session._unsynced) <= 4
    assert session._unsynced[-1] == (1000, 99)
    told = [parts for parts, flush in session._unsynced if flush <= settling.durable]
    assert told == [980], "the latest that is on disk is still to be told"
