"""Compaction against what it costs and what it gives: it must gain, and keep to its budget."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.log.bodies import move
from durable.log.compaction import (
    BURST_S,
    DEAD_IN_S_MIN,
    MARGIN,
    SAMPLE_S_MIN,
    Budget,
    Candidate,
    DeclineRate,
    choose,
)
from durable.log.config import LogConfig
from durable.log.memory_disk import MemoryDisk
from mesh.errors import ConfigError
from tests.logs import SMALL, PlainLog, publish

sizes = st.integers(0, 1000)
gone = st.sampled_from([0.0, DEAD_IN_S_MIN, DEAD_IN_S_MIN + 1, inf])
candidates = st.lists(
    st.tuples(sizes, sizes, st.booleans(), gone), max_size=8
).map(lambda all_: [Candidate(range(n, n + 1), *one) for n, one in enumerate(all_)])  # fmt: skip
rooms = st.one_of(st.just(inf), st.integers(0, 1000))


@given(candidates, st.sampled_from([0.0, 0.1, 0.25, 0.5]), rooms)
def test_the_oldest_that_is_worth_it(
    found: list[Candidate], share_max: float, room_bytes: float
) -> None:
    """All but the last two may be; what does not fit is not."""
    worth = [
        one
        for one in found[:-2]
        if one.movable and one.needed_bytes and one.needed_bytes < share_max * one.size_bytes
        and MARGIN * one.needed_bytes < room_bytes
    ]  # fmt: skip
    chosen = choose(found, share_max, room_bytes)
    assert (chosen and chosen.positions) == (worth[0].positions if worth else None)
    if chosen is not None:
        assert chosen.bytes_max == min(MARGIN * share_max * worth[0].size_bytes, room_bytes)
        assert chosen.needed_bytes == worth[0].needed_bytes


@given(candidates, st.sampled_from([0.0, 0.25]), rooms)
def test_on_a_full_disk_that_which_frees_most(
    found: list[Candidate], share_max: float, room_bytes: float
) -> None:
    """Whatever frees more than it takes, and does not go by itself; all but the last may be."""
    worth = [
        one
        for one in found[:-1]
        if one.movable and 0 < one.needed_bytes < 0.9 * min(one.size_bytes, room_bytes)
        and one.dead_in_s > 60
    ] if share_max else []  # fmt: skip
    chosen = choose(found, share_max, room_bytes, full=True)
    assert (chosen is None) == (not worth)
    if chosen is not None:
        best = max(worth, key=lambda one: one.size_bytes - one.needed_bytes)
        assert chosen.positions == best.positions
        assert chosen.needed_bytes == best.needed_bytes
        assert chosen.bytes_max == 0.9 * min(best.size_bytes, room_bytes)


@given(
    st.lists(st.tuples(st.floats(SAMPLE_S_MIN + 0.01, 60), st.floats(0, 1e6)), min_size=1),
    st.floats(0, SAMPLE_S_MIN - 0.01),
)
def test_a_pace_is_that_from_one_sample_to_the_next(
    samples: list[tuple[float, float]], too_soon_s: float
) -> None:
    """A call too soon after a sample returns what that returned."""
    decline, now_s, before = DeclineRate(), 100.0, 0.0
    for passed_s, needed_bytes in samples:
        first, now_s = now_s == 100.0, now_s + passed_s
        dead_in_s = decline.dead_in_s(needed_bytes, now_s)
        if first or needed_bytes >= before:
            assert dead_in_s == inf
        else:
            assert dead_in_s * (before - needed_bytes) == pytest.approx(
                needed_bytes * passed_s, rel=1e-3
            )
        assert decline.dead_in_s(needed_bytes, now_s + too_soon_s) == dead_in_s
        before = needed_bytes


@given(
    st.lists(st.tuples(st.integers(8, 900), st.integers(0, 3)), min_size=20, max_size=60),
    st.sampled_from([0.1, 0.25, 0.5]),
)
def test_what_is_chosen_gains(records: list[tuple[int, int]], share_max: float) -> None:
    """Each record has so many references at the end; oracle: what moving them takes, by its drafts."""
    config = replace(SMALL, compaction_share_max=share_max)
    log = PlainLog(MemoryDisk(), config)
    segments = log.store.segments
    for number, (size_bytes, references) in enumerate(records):
        (position,) = log.write(publish(number, size_bytes))
        if references:
            draft = publish(number, size_bytes)
            segments.refer(position, references, references * draft.size_bytes)
    choice = choose(segments.candidates(log.committer.durable_end, 0.0), share_max)
    if choice is None:
        return
    chosen = next(one for one in segments if one.first == choice.positions.start)
    moved = sum(
        move(record, record.targets).size_bytes
        for record in log.records()
        if chosen.first <= record.position < chosen.end and records[record.position - 1][1]
    )
    assert 0 < moved < 1.2 * share_max * chosen.end_at
    assert chosen not in list(segments)[-2:]
    assert choose(segments.candidates(chosen.end - 1, 0.0), share_max) != choice, (
        "it would have to stay"
    )


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 400)), min_size=1, max_size=40),
    st.integers(10, 1000),
)
def test_the_budget_holds_over_any_schedule(
    schedule: list[tuple[float, int]], bytes_per_s: int
) -> None:
    """In every time between two takings, both counted."""
    now_s = 100.0
    budget = Budget(bytes_per_s, now_s)
    taken: list[tuple[float, int]] = []
    for pause_s, size_bytes in schedule:
        now_s += pause_s
        now_s += budget.wait_s(size_bytes, now_s)
        assert budget.wait_s(size_bytes, now_s) < 1e-6
        budget.take(size_bytes, now_s)
        taken.append((now_s, size_bytes))
    burst = bytes_per_s * BURST_S
    for first in range(len(taken)):
        sums = accumulate(size_bytes for _, size_bytes in taken[first:])
        for (at_s, size_bytes), total in zip(taken[first:], sums, strict=True):
            over = max(0.0, size_bytes - burst)
            allowed = burst + (at_s - taken[first][0]) * bytes_per_s + over
            assert total <= allowed + 1e-3


@given(st.integers(1, 10_000))
def test_a_budget_is_not_kept_forever_from_anybody(size_bytes: int) -> None:
    budget = Budget(1000, 0.0)
    budget.take(size_bytes, 0.0)
    assert budget.wait_s(size_bytes, 0.0) <= 2 * size_bytes / 1000
    assert budget.wait_s(1, 1e6) == 0


@pytest.mark.parametrize("changes", [{"compaction_share_max": 0.6}, {"compaction_bytes_per_s": 0}])
def test_settings_that_make_no_sense(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="compaction"):
        LogConfig(**changes)  # type: ignore[arg-type]
