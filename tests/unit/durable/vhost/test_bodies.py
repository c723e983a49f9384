"""Recent bodies: how much memory they take, and what they hold besides."""

from __future__ import annotations

import tracemalloc

import pytest

from durable.log.record import HEADER_BYTES
from durable.vhost.bodies import COPIED_BYTES, Bodies
from tests.vhosts import make_batch

MIB = 1 << 20


@pytest.mark.parametrize("size_bytes", [1, 100, COPIED_BYTES, COPIED_BYTES + 1, 100_000])
def test_recent_bodies_take_as_much_memory_as_they_are_given(size_bytes: int) -> None:
    bodies, count = Bodies(MIB, MIB), 2 * MIB // size_bytes
    tracemalloc.start()
    try:
        for position in range(1000, 1000 + min(count, 20_000)):
            # One array each is what a large body is a view of.
            bodies.keep(position, memoryview(bytes(size_bytes)))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MIB // 2 < taken < MIB * 5 // 4


@pytest.mark.parametrize("size_bytes", [1, 100, 10_000])
def test_held_bodies_take_as_much_memory_as_they_count(size_bytes: int) -> None:
    """Found: nearly twice as much of small ones; and each kept all that it was received with, which may be many."""
    bodies = Bodies(MIB, MIB)
    tracemalloc.start()
    try:
        while not bodies.is_full:
            bodies.hold(memoryview(bytes(20 * size_bytes))[:size_bytes], 1)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MIB // 2 < taken < MIB * 5 // 4


def test_a_small_body_holds_nothing_of_what_it_came_with() -> None:
    bodies, received = Bodies(MIB, MIB), bytearray(b"one" + bytes(10_000))
    bodies.keep(1, memoryview(received)[:3])
    received.clear()  # BufferError while there is a view of it.
    assert bodies.get(1) == b"one"


def test_all_that_is_read_at_once_is_still_there_when_the_last_is_kept() -> None:
    """However small: readers take one after the other."""
    bodies = Bodies(MIB, MIB)
    body = make_batch(0, [b""], key="").raw()
    count = bodies.read_bytes_max // (HEADER_BYTES + len(body))
    for position in range(count):
        bodies.keep(position, body)
    assert all(bodies.get(position) == body for position in range(count))
