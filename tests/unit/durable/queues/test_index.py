"""The index against a plain list of runs."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from durable.queues.arrivals import Arrivals
from durable.queues.block import Block
from durable.queues.index import Index
from durable.queues.rows import Rows
from durable.queues.runs import Records, Run, Stretch
from tests.queues import arrivals_of, memory_bytes

GOLDEN = Path(__file__).parents[3] / "golden"

Step = tuple[int, int, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 0, 3]),  # Gap before the run.
        st.sampled_from([1, 1, 2, 5]),  # Messages.
        st.sampled_from([1, 1, 1, 2, 7]),  # How much later in the log.
        st.sampled_from([16, 16, 0, 33]),  # Bytes.
    ),
    max_size=25,
)


@pytest.fixture(autouse=True, scope="module")
def few_at_once() -> Iterator[None]:
    """So that indexes as short as these are gone through in several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable.queues.index._ROWS_MAX", 4)
        patch.setattr("durable.queues.index._ONE_BY_ONE_MAX", 1)
        patch.setattr("durable.queues.block._SMALL_ROWS_MAX", 2)
        patch.setattr("durable.queues.block._SINGLES_PER_REPEATED", 2)
        yield


def filled(steps: list[Step]) -> tuple[Index, list[Run]]:
    index, runs, position = Index(), list[Run](), 10
    for gap, count, later, size in steps:
        run = Run(index.end + gap, count, position := position + later, size)
        index.append(*run)
        runs.append(run)
    return index, runs


def golden_index() -> Index:
    """Has every kind of column: gaps, runs that repeat, numbers of each width, and some that was dropped."""
    index, position = Index(), 500
    for number in range(3):
        index.append(index.end, 1, position - 9 * number, 7)
    for number in range(14):
        count, size = 1 + number % 3, 10 ** (number % 11)
        index.append(index.end + (number == 6), count, position, size)
        position += 1 + 7**number
    for number in range(9):
        index.append(index.end, 2, position + 3 * (number - number // 7), 16)
    index.drop_before(2)
    assert index.move(10, 2)
    return index


def check(index: Index, runs: list[Run]) -> None:
    """Everything an index can be asked, answered by looking at each run."""
    assert bool(index) == bool(runs)
    assert index.start == (runs[0].first if runs else index.end)
    there = {at: run for run in runs for at in range(run.first, run.first + run.count)}
    assert [index.find(at) for at in range(index.end + 3)] == [
        there.get(at) for at in range(index.end + 3)
    ]
    middle = (index.start + index.end) // 2
    for start, end in [(0, index.end), (3, 9), (middle, middle + 1), (middle, index.end + 4)]:
        overlapping = [run for run in runs if run.first < end and run.first + run.count > start]
        assert list(index.runs(start, end)) == overlapping
        assert records_between(index, start, end) == [
            (run.position, run.count, run.size_bytes) for run in overlapping
        ]
        gaps = [at for low, high in index.gaps(start, end) for at in range(low, high)]
        assert gaps == [at for at in range(start, end) if at not in there]
        assert index.size_bytes(start, end) == sum(
            there[at].size_of(at, at + 1) for at in range(start, end) if at in there
        )


def records_between(index: Index, start: int, end: int) -> list[tuple[int, int, int]]:
    """Log position, messages and bytes of each; blocks are taken apart and have to say what is in them."""
    found: list[tuple[int, int, int]] = []
    for one in index.records(start, end):
        inside = list(each_of(one))
        found += inside
        if isinstance(one, Block):
            positions, messages, sizes = zip(*inside, strict=True)
            assert (one.position_min, one.position_max) == (min(positions), max(positions))
            assert (one.runs, one.messages) == (len(inside), sum(messages))
            assert one.size_bytes == sum(sizes)
            assert [each for part in one.parts() for each in each_of(part)] == inside
    return found


def each_of(one: Records | Block) -> Iterator[tuple[int, int, int]]:
    for positions, messages, size_bytes in (one,) if isinstance(one, Records) else one.records():
        for position in positions:
            yield position, messages, size_bytes


@given(steps, st.integers(0, 60), steps)
def test_an_index_agrees_with_a_list(before: list[Step], drop: int, after: list[Step]) -> None:
    index, runs = filled(before)
    check(index, runs)
    index.drop_before(drop)
    runs = [run for run in runs if run.first + run.count > drop]
    check(index, runs)
    position = 1000
    for gap, count, later, size in after:
        runs.append(Run(index.end + gap, count, position := position + later, size))
        index.append(*runs[-1])
    check(index, runs)


@given(steps, st.lists(st.tuples(st.integers(0, 24), st.integers(0, 400)), max_size=8))
def test_moved_runs_are_found_at_their_new_place(
    steps: list[Step], moves: list[tuple[int, int]]
) -> None:
    index, runs = filled(steps)
    for at, position in moves:
        if at < len(runs):
            runs[at] = runs[at]._replace(position=1000 + position)
            assert index.move(runs[at].first, 1000 + position)
    check(index, runs)
    copy = Index.decode(b"".join(index.encode()))
    check(copy, runs)
    runs.append(Run(index.end, 1, 2000, 16))
    for one in (index, copy):
        one.append(*runs[-1])
        check(one, runs)
    index.drop_before(runs[-1].first)
    assert not index.move(runs[0].first, 5) or len(runs) == 1


class IndexMachine(RuleBasedStateMachine):
    """All that happens to an index in its life, and what it wrote down on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.index, self.runs, self.position = Index(), list[Run](), 10
        self.written: list[tuple[list[bytes | memoryview], list[Run], int]] = []

    @rule(some=steps)
    def come(self, some: list[Step]) -> None:
        for gap, count, later, size in some:
            self.position += later
            self._append(Run(self.index.end + gap, count, self.position, size))

    @rule(count=st.sampled_from([1, 1, 3]), times=st.integers(2, 30), size=st.sampled_from([0, 16]))
    def come_alike(self, count: int, times: int, size: int) -> None:
        for _ in range(times):
            self.position += 2
            self._append(Run(self.index.end, count, self.position, size))

    def _append(self, run: Run) -> None:
        self.index.append(*run)
        self.runs.append(run)

    @rule(share=st.floats(0, 1.1))
    def drop(self, share: float) -> None:
        start = self.index.start + int(share * (self.index.end - self.index.start))
        self.index.drop_before(start)
        self.runs = [run for run in self.runs if run.first + run.count > start]

    @precondition(lambda self: self.runs)
    @rule(at=st.integers(0, 200), count=st.integers(1, 12), forward=st.booleans())
    def move(self, at: int, count: int, *, forward: bool) -> None:
        """As compaction does it, one run after the other; or one that stands alone, earlier."""
        at %= len(self.runs)
        for number in range(at, min(at + count, len(self.runs))):
            self.position += 1
            to = self.position if forward else self.position % 97
            self.runs[number] = self.runs[number]._replace(position=to)
            assert self.index.move(self.runs[number].first, to)

    @rule()
    def write(self) -> None:
        self.written.append((self.index.encode(), list(self.runs), self.index.end))

    @rule(version=st.sampled_from([1, 2]))
    def read(self, version: int) -> None:
        """A start goes on with what was read."""
        new = b"".join(self.index.encode())
        self.index = Index.decode(new if version == 2 else version_1(self.index))

    @invariant()
    def agrees(self) -> None:
        check(self.index, self.runs)

    def teardown(self) -> None:
        for pieces, runs, end in self.written:
            index = Index.decode(b"".join(pieces))
            assert index.end == end
            check(index, runs)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=40, stateful_step_count=15)


def version_1(index: Index) -> bytes:
    """As it was written before there were blocks."""
    stretches = list(index.stretches(0, index.end))
    head = struct.pack("<QI", index.end, len(stretches))
    firsts = b"".join(struct.pack("<Q", one.first) for one in stretches)
    return head + firsts + b"".join(struct.pack("<5q", *one[1:]) for one in stretches)


@given(steps, st.integers(0, 30), st.integers(0, 600), st.integers(1, 255))
def test_changed_bytes_are_refused_or_are_another_index(
    steps: list[Step], drop: int, at: int, flip: int
) -> None:
    index, _ = filled(steps)
    index.drop_before(drop)
    data = bytearray(b"".join(index.encode()))
    if at < len(data):
        data[at] ^= flip
        try:
            index = Index.decode(bytes(data))
        except ValueError:
            return
        assert b"".join(index.encode()) == data
        check_it_answers(index)
    for cut in (0, 3, len(data) - 1):
        with pytest.raises(ValueError, match="bytes"):
            Index.decode(bytes(data[:cut]))


def check_it_answers(index: Index) -> None:
    """Whatever it says."""
    if index.end - index.start < 10_000:
        for at in range(index.start, index.end):
            run = index.find(at)
            assert run is None or run.first <= at < run.first + run.count


def test_runs_that_repeat_are_one_stretch() -> None:
    index = Index()
    for at in range(100_000):
        index.append(at, 1, 7 + 3 * at, 16)
    assert memory_bytes(index) < 1000
    assert index.find(99_999) == Run(99_999, 1, 7 + 3 * 99_999, 16)


def test_compaction_of_neighbours_makes_few_stretches() -> None:
    """Runs moved one after the other go to log positions one after the other."""
    index = Index()
    for at in range(10_000):
        index.append(at, 1, at, 16)
    for at in range(2000, 8000):
        index.move(at, 50_000 + at)
    assert len(list(index.stretches(0, 10_000))) <= 4


def test_what_is_dropped_leaves_no_memory_behind() -> None:
    index = Index()
    for at in range(10_000):
        index.append(2 * at, 2, at * at, at)
        index.drop_before(2 * at)
    assert memory_bytes(index) < 10_000


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("size", [0, 1, 9, 10, 31])
def test_as_many_messages_as_fit(count: int, size: int) -> None:
    run = Run(100, count, 0, size)
    for start in range(100, 100 + count):
        for most in range(35):
            fits = [n for n in range(101 + count - start) if run.size_of(start, start + n) <= most]
            assert run.fitting(start, most) == fits[-1]


def test_an_index_of_many_stretches_is_gone_through_without_a_look_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: a start took 30 s for two million messages that had come one by one, each of another size."""
    index, looks = Index(), list[int]()
    for number in range(1000):
        index.append(2 * number, 1 + number % 2, number**2, number)
    pieces = b"".join(index.encode())
    for part in (Block, Rows):
        row = part.row

        def counted(self: Any, at: int, row: Callable[[Any, int], Stretch] = row) -> Stretch:
            looks.append(at)
            return row(self, at)

        monkeypatch.setattr(part, "row", counted)
    monkeypatch.setattr("durable.queues.index._ROWS_MAX", 100)
    for one in (index, Index.decode(pieces)):
        looks.clear()
        assert len(list(one.gaps(0, one.end))) == 500
        assert one.size_bytes(0, one.end) == sum(range(1000))
        assert sum(part.messages for part in one.records(0, one.end)) == 1500
        assert len(looks) < 10
    looks.clear()
    assert len(list(index.stretches(0, index.end))) == 1000
    assert len(looks) < 3 * 1000 / 4 + 10, "the first and the last of each part"


@pytest.mark.parametrize("number", [2, 4, 8])
def test_what_begins_in_a_gap_begins_with_the_run_behind_it(number: int) -> None:
    """Inside a block, behind one, and before the rows: nothing that was dropped is there any more."""
    unlike = [(3 * (at == number), 1 + at % 3, 1 + at % 2, 16) for at in range(10)]
    left = filled(unlike)[1][number:]
    for sequence in range(left[0].first - 3, left[0].first + 1):
        index, _ = filled(unlike)
        index.drop_before(sequence)
        check(index, left)
        check(Index.decode(b"".join(index.encode())), left)


def test_what_is_unlike_the_one_before_it_takes_few_bytes() -> None:
    """Found: 48 in memory and in each checkpoint, 5 us of each start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable.queues.index._ROWS_MAX", 4096)
        index = Index()
        for number in range(20_000):
            index.append(number, 1, 10 + 2 * number + number % 2, number * number % 1000)
        blocks = number // 4096
        assert memory_bytes(index) < 7 * 4096 * blocks + 49 * (20_000 - 4096 * blocks)
        assert sum(map(len, index.encode())) < 7 * 4096 * blocks + 49 * (20_000 - 4096 * blocks)


@pytest.mark.parametrize("version", [1, 2])
def test_golden(version: int) -> None:
    """Written by the software of its time from this index; what is written today is version 2."""
    data = bytes.fromhex((GOLDEN / f"index-v{version}.hex").read_text())
    index = golden_index()
    check(Index.decode(data), list(index.runs(0, index.end)))
    if version == 2:
        assert b"".join(index.encode()) == data


together = st.one_of(
    st.lists(st.tuples(st.sampled_from([1, 1, 2]), st.sampled_from([1, 1, 7]), st.sampled_from([0, 16])), min_size=1, max_size=25),
    st.builds(lambda one, times: [one] * times, st.tuples(st.integers(1, 2), st.integers(1, 3), st.sampled_from([0, 16])), st.integers(1, 30)),
)  # fmt: skip


@given(
    steps, st.lists(st.tuples(st.sampled_from([0, 0, 2]), together), min_size=1, max_size=3), steps
)
def test_runs_that_come_together_are_as_if_they_came_one_by_one(
    before: list[Step], parts: list[tuple[int, list[tuple[int, int, int]]]], after: list[Step]
) -> None:
    index, runs = filled(before)
    position = runs[-1].position if runs else 10
    for gap, part in parts:
        some, first = list[Run](), index.end + gap
        for count, later, size in part:
            some.append(Run(first, count, position := position + later, size))
            first += count
        index.append_all(arrivals_of(some))
        runs += some
    for gap, count, later, size in after:
        run = Run(index.end + gap, count, position := position + later, size)
        index.append(*run)
        runs.append(run)
    check(index, runs)
    check(Index.decode(b"".join(index.encode())), runs)


def test_ten_million_that_come_together_and_alike_are_one_stretch() -> None:
    index = Index()
    for first in range(0, 10_000_000, 1_000_000):
        positions = range(first + 50, first + 1_000_050)
        alike = [1] * len(positions)
        index.append_all(
            Arrivals(array("Q", range(first, first + 1_000_000)), alike, array("Q", positions), alike, alike, None, True)
        )  # fmt: skip
    assert list(index.stretches(0, index.end)) == [Stretch(0, 1, 50, 1, 1, 10_000_000)]


@pytest.mark.parametrize("there", [0, 1, 3])
def test_many_that_are_unlike_come_together(there: int) -> None:
    """More than there is room for at the end, several times over."""
    index, runs = filled([(0, 1, 1, 9)] * there)
    some = [Run(there + number, 1, 100 + 2 * number, number % 7) for number in range(50)]
    index.append_all(arrivals_of(some))
    check(index, runs + some)


@pytest.mark.parametrize("positions", [[1, 3, 4, 7], [1, 2, 3, 9], [5, 7, 9, 11], [4]])
def test_runs_that_come_together_stand_where_they_stood(positions: list[int]) -> None:
    for before in ([], [Run(0, 1, 1, 9)], [Run(0, 1, 0, 9), Run(1, 1, 1, 9)], [Run(0, 2, 1, 9)]):
        index = Index()
        for run in before:
            index.append(*run)
        some = [Run(index.end + at, 1, position, 9) for at, position in enumerate(positions)]
        index.append_all(arrivals_of(some))
        check(index, before + some)
