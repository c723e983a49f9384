"""How often and how far the log is read for bodies that memory has lost."""

from __future__ import annotations

from random import Random

import pytest
import trio
import trio.testing

from durable.broker.body_reader import LIMIT_BYTES_MIN, BodyReader
from durable.errors import StoreFailed
from durable.log.record import Draft, Kind, Record
from durable.vhost.bodies import COPIED_BYTES, Bodies
from tests.logs import batch
from tests.vhosts import as_record

BODY_BYTES = 1000
RECENT_BYTES = 600_000
MOST = 100
"""Bodies that a read takes at most, about: a sixth of what memory keeps."""


def body(number: int) -> bytes:
    return batch(number, BODY_BYTES)


class Shelf:
    """A log of batches; `reads` says how many records each reading of it gave."""

    def __init__(self, count: int, gone: int | None = None) -> None:
        self._count, self._gone = count, gone
        self.reads: list[int] = []
        self.failing = False
        self.open = trio.Event()
        """Reading waits for it."""
        self.open.set()

    async def read(self, position: int, limit_bytes: int) -> list[Record]:
        await self.open.wait()
        if self.failing:
            raise StoreFailed("the disk is gone")
        end = min(self._count, position + max(1, limit_bytes // len(body(0))))
        found = [
            as_record(Draft(Kind.PUBLISH, body(number)), number)
            for number in range(position, end)
            if number != self._gone
        ]
        self.reads.append(len(found))
        return found


def body_reader(shelf: Shelf) -> tuple[BodyReader, Bodies]:
    bodies = Bodies(RECENT_BYTES, held_bytes_max=0)
    return BodyReader(shelf.read, bodies), bodies


async def want(reader: BodyReader, bodies: Bodies, number: int) -> None:
    """As `RunningVhost.batches` does."""
    assert (bodies.get(number) or await reader.body(number)) == body(number)


async def test_whoever_waits_takes_what_another_has_read() -> None:
    """Found: a hundred consumers of as many queues, in which messages came in turn, read all of it a hundred times."""
    shelf = Shelf(80)
    reader, bodies = body_reader(shelf)
    shelf.open = trio.Event()
    async with trio.open_nursery() as nursery:
        for number in range(80):
            nursery.start_soon(want, reader, bodies, number)
            await trio.testing.wait_all_tasks_blocked()
        shelf.open.set()
    assert shelf.reads == [80]


async def test_one_who_goes_on_and_on_makes_long_reads() -> None:
    shelf = Shelf(1000)
    reader, bodies = body_reader(shelf)
    for number in range(1000):
        await want(reader, bodies, number)
    assert len(shelf.reads) <= 1000 / MOST + 2


async def test_those_who_are_far_apart_read_little_that_nobody_wants() -> None:
    """Forty, and memory has room for what six of them would read ahead; each wants one record in fifty."""
    shelf, chance = Shelf(80_000), Random(1)
    reader, bodies = body_reader(shelf)
    places = [2000 * number for number in range(40)]
    for _ in range(40 * 30):
        number = chance.randrange(40)
        await want(reader, bodies, places[number])
        places[number] += 50
    assert sum(shelf.reads) < 4 * MOST * 40, "at most of that is from before it was noticed"
    assert max(shelf.reads[-500:]) * BODY_BYTES <= LIMIT_BYTES_MIN
    # And one of them goes on alone.
    del shelf.reads[:]
    for number in range(70_000, 72_000):
        await want(reader, bodies, number)
    assert len(shelf.reads) <= 2000 / MOST + 12, "reads grow again"


async def test_one_who_goes_on_makes_long_reads_among_many_who_do_not() -> None:
    """Found by reading: with one length for all they would have kept theirs at the least."""
    shelf, chance = Shelf(600_000), Random(1)
    reader, bodies = body_reader(shelf)
    own: list[int] = []
    for number in range(2000):
        before = len(shelf.reads)
        await want(reader, bodies, number)
        own += shelf.reads[before:]
        if number % 2 == 0:  # More of them, and memory could not hold what one long read takes.
            await want(reader, bodies, chance.randrange(2000, 600_000))
    assert own[-2] > MOST / 2


async def test_a_body_that_is_kept_holds_nothing_of_what_it_was_read_with() -> None:
    """Found by reading: what a short read kept were views of a window of 256 KiB each."""
    window = bytearray()

    async def read(position: int, limit_bytes: int) -> list[Record]:
        record = as_record(Draft(Kind.PUBLISH, body(position)), position)
        window[:] = bytes(record.contents)
        return [Record(record.header, memoryview(window))]

    bodies = Bodies(RECENT_BYTES, held_bytes_max=0)
    assert len(body(1)) > COPIED_BYTES, "what is smaller is copied anyway"
    assert await BodyReader(read, bodies).body(1) == body(1)
    window.clear()  # BufferError while there is a view of it.
    assert bodies.get(1) == body(1)


async def test_who_is_cancelled_keeps_nobody_from_the_next_read() -> None:
    shelf = Shelf(10)
    reader, bodies = body_reader(shelf)
    shelf.open = trio.Event()
    async with trio.open_nursery() as nursery:
        for number in (1, 2):  # One is on its way, one waits.
            nursery.start_soon(want, reader, bodies, number)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    shelf.open.set()
    await want(reader, bodies, 3)


async def test_what_is_gone_is_nothing_and_is_asked_for_again() -> None:
    shelf = Shelf(10, gone=3)
    reader, bodies = body_reader(shelf)
    assert await reader.body(3) is None
    assert bodies.get(4) == body(4), "what comes behind it is kept"
    assert await reader.body(3) is None
    assert len(shelf.reads) == 2
    await want(reader, bodies, 2)


async def test_a_read_that_failed_keeps_nobody_from_the_next() -> None:
    shelf = Shelf(10)
    reader, bodies = body_reader(shelf)
    shelf.failing = True
    with pytest.raises(StoreFailed):
        await reader.body(1)
    shelf.failing = False
    await want(reader, bodies, 1)
