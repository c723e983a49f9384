"""The index against a plain list of runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.queues.index import Index, Run, Stretch

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
        patch.setattr("durable.queues.index._AT_ONCE", 3)
        yield


def filled(steps: list[Step]) -> tuple[Index, list[Run]]:
    index, runs, position = Index(), list[Run](), 10
    for gap, count, later, size in steps:
        run = Run(index.end + gap, count, position := position + later, size)
        index.append(*run)
        runs.append(run)
    return index, runs


def check(index: Index, runs: list[Run]) -> None:
    """Everything an index can be asked, answered by looking at each run."""
    assert len(index) == len(runs)
    assert index.start == (runs[0].first if runs else index.end)
    for at in range(index.end + 3):
        expected = [run for run in runs if run.first <= at < run.first + run.count]
        assert index.find(at) == (expected[0] if expected else None)
    for start, end in [(0, index.end), (3, 9), (7, 8), (index.end // 2, index.end + 4)]:
        overlapping = [run for run in runs if run.first < end and run.first + run.count > start]
        assert list(index.runs(start, end)) == overlapping
        there = {at for run in runs for at in range(run.first, run.first + run.count)}
        gaps = {at for low, high in index.gaps(start, end) for at in range(low, high)}
        assert gaps == set(range(start, end)) - there
        assert index.size_bytes(start, end) == sum(
            run.size_of(at, at + 1)
            for run in runs
            for at in range(max(start, run.first), min(end, run.first + run.count))
        )


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
    copy = Index.decode(index.encode())
    check(copy, runs)
    runs.append(Run(index.end, 1, 2000, 16))
    for one in (index, copy):
        one.append(*runs[-1])
        check(one, runs)
    index.drop_before(runs[-1].first)
    assert not index.move(runs[0].first, 5) or len(runs) == 1


@given(steps, st.integers(0, 400), st.integers(1, 255))
def test_changed_bytes_are_refused_or_are_another_index(
    steps: list[Step], at: int, flip: int
) -> None:
    data = bytearray(filled(steps)[0].encode())
    if at < len(data):
        data[at] ^= flip
        try:
            index = Index.decode(bytes(data))
        except ValueError:
            return
        assert index.encode() == data
    for cut in (0, 3, len(data) - 1):
        with pytest.raises(ValueError, match="bytes"):
            Index.decode(bytes(data[:cut]))


def test_runs_that_repeat_are_one_stretch() -> None:
    index = Index()
    for at in range(100_000):
        index.append(at, 1, 7 + 3 * at, 16)
    assert index.memory_bytes() < 1000
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
    assert index.memory_bytes() < 10_000


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
    index, looks, stretch = Index(), list[int](), Index._stretch
    for number in range(1000):
        index.append(2 * number, 1 + number % 2, number**2, number)

    def counted(self: Index, at: int) -> Stretch:
        looks.append(at)
        return stretch(self, at)

    monkeypatch.setattr(Index, "_stretch", counted)
    copy = Index.decode(index.encode())
    assert len(list(copy.gaps(0, copy.end))) == 500
    assert copy.size_bytes(0, copy.end) == sum(range(1000))
    assert len(list(copy.stretches(0, copy.end))) == 1000
    assert len(looks) < 10
