"""Seeds repeat, so that one that comes up late is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from discovery.errors import BadEndpoint
from discovery.finder import Found
from discovery.seeds import SeedFinder
from tests.waiting import virtual_sleep

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_each_seed_at_once_and_every_repeat_s(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    found: list[tuple[float, Found]] = []
    start_s = trio.current_time()
    finder = SeedFinder(["tcp://a:1", "tcp://b:2", "tcp://a:1"], repeat_s=5)
    await nursery.start(finder.run, lambda f: found.append((trio.current_time() - start_s, f)))
    await virtual_sleep(11)
    nursery.cancel_scope.cancel()

    a, b = Found("tcp://a:1"), Found("tcp://b:2")
    assert [f for _, f in found] == [a, b] * 3
    assert [round(at_s) for at_s, _ in found] == [0, 0, 5, 5, 10, 10]


def test_a_malformed_seed_is_named_at_construction() -> None:
    with pytest.raises(BadEndpoint, match="'localhost' is not an endpoint"):
        SeedFinder(["tcp://a:1", "localhost"])


async def test_no_seeds_is_no_busy_loop(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    await nursery.start(SeedFinder([]).run, lambda found: pytest.fail(str(found)))
    await virtual_sleep(60)
    nursery.cancel_scope.cancel()
