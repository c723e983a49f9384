"""Parts that wait for a tunnel's reader who lags: all there, in order, and in little memory."""

from __future__ import annotations

import gc
import sys
from collections import deque
from itertools import chain, repeat
from random import Random

import pytest

from mesh.protocol.backlog import PACK_PARTS, Backlog
from mesh.protocol.tunnel import BROKEN, TunnelEnd
from tests.machines import make_link

WINDOW = 256 << 10


def reader(window_bytes: int = WINDOW) -> TunnelEnd:
    return TunnelEnd(make_link(), 7, "x/y", opener=False, window_bytes=window_bytes)


def held_bytes(what: object) -> int:
    """What it keeps in memory, each object once."""
    seen, todo = dict[int, object](), [what]
    while todo:
        one = todo.pop()
        if id(one) not in seen and not isinstance(one, type):
            seen[id(one)] = one
            todo += gc.get_referents(one)
    return sum(map(sys.getsizeof, seen.values()))


@pytest.mark.parametrize("size", [0, 2, 64])
def test_small_parts_that_nobody_reads_take_a_few_times_the_window(size: int) -> None:
    """Found: parts of two bytes took 29 times the window, one object for each."""
    end = reader()
    source = bytes(range(65)) * 2
    for n in range(WINDOW // max(1, size)):
        end.received(source[n % 65 : n % 65 + size])
    held = held_bytes(end._parts)
    if end._backlog is not None:
        held += held_bytes(end._backlog._packs) + held_bytes(end._backlog._newest)
    assert held < 5 * WINDOW + 2 * 64 * PACK_PARTS
    assert end.statistics().unread_bytes == WINDOW


@pytest.mark.parametrize("seed", range(3))
def test_parts_come_out_as_they_went_in(seed: int) -> None:
    """Oracle: a deque of all of them. Small ones, large ones, and both in one pack."""
    chance = Random(seed)
    end, oracle = reader(1 << 30), deque[bytes]()
    source = chance.randbytes(1 << 17)
    sizes = chain(
        repeat(0, 20_000), repeat(3, 40_000), [1 << 16], repeat(2, 30_000), repeat(100, 40_000)
    )  # fmt: skip
    for size in sizes:
        at = chance.randrange(1000)
        end.received(source[at : at + size])
        oracle.append(source[at : at + size])
        while oracle and chance.random() < 0.2:
            assert end.read() == oracle.popleft()
    assert end.statistics().unread_bytes == sum(max(1, len(part)) for part in oracle)
    while oracle:
        assert end.readable
        assert end.read() == oracle.popleft()
    assert not end.readable
    end.received(b"again")
    assert end.read() == b"again"


@pytest.mark.parametrize("ending", ["mark_broken", "stop_reading"])
def test_what_nobody_will_read_goes_with_what_was_behind_it(ending: str) -> None:
    end = reader()
    for _ in range(3 * PACK_PARTS):
        end.received(b"ab")
    if ending == "mark_broken":
        end.mark_broken("link lost")
        assert end.state == BROKEN
    else:
        end.stop_reading()
    assert (end.readable, end.statistics().unread_bytes, end._backlog) == (False, 0, None)


def test_an_empty_backlog_gives_nothing() -> None:
    assert not Backlog().take()
