from __future__ import annotations

import time

import pytest

from durable.broker.clock import SteadyClock

HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS])
def test_a_wall_clock_that_is_set_moves_nothing(
    monkeypatch: pytest.MonkeyPatch, jump_ns: int
) -> None:
    wall_ns, monotonic_ns = time.time_ns(), 7 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic_ns)
    clock = SteadyClock()
    assert clock.now_us() == wall_ns // 1000
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns + jump_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic_ns + 5_000_000)
    assert clock.now_us() == (wall_ns + 5_000_000) // 1000
