"""What the broker keeps of the settlements of a consumer that hears nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from durable.broker.settlements import Settlements
from durable.protocol.parts import ACK, Settlement, encode_settlements


def test_settlements_that_nobody_is_told_of_take_no_more_than_flushes_under_way() -> None:
    """Found: an entry for each, for as long as the client did not read."""
    settling: Any = SimpleNamespace(durable_flush=0, flush=0)
    settling.next_flush = lambda: settling.flush
    running = SimpleNamespace(vhost=SimpleNamespace(settling=settling), note_ready=lambda _: None)
    queue = SimpleNamespace(name="jobs", ready=1, settle=lambda *_: None)
    anything = cast("Any", None)
    settlements = Settlements(anything, cast("Any", running), cast("Any", queue), anything)
    part = encode_settlements([Settlement(ACK, 1, 2)])
    for number in range(1000):
        settling.flush = number // 10
        settling.durable_flush = settling.flush - 2
        settlements.receive(part)
        assert len(settlements._unsynced) <= 4
    assert settlements._unsynced[-1] == (1000, 99)
    told = [parts for parts, flush in settlements._unsynced if flush <= settling.durable_flush]
    assert told == [980], "the latest that is on disk is still to be told"
