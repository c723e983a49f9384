"""Retention, compared with a plain version that goes record by record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.definition_forms import to_plain
from durable.definitions import StreamDefinition
from durable.protocol.properties import Properties
from durable.queues.index import Index
from durable.queues.journal import Journal
from durable.queues.lane import Lane
from durable.queues.runs import Run
from durable.vhost import changes
from durable.vhost.stream import Stream
from tests.queues import positions_of
from tests.vhosts import PUBLISHER, PlainVhost, anybody, make_batch

HOUR_US = 3_600_000_000
"""Between two records: more than a mark covers, so ages are exact."""

records = st.tuples(
    st.sampled_from([1, 1, 1, 3]),  # Messages.
    st.sampled_from([0, 10, 10, 25]),  # Bytes.
    st.sampled_from([0, 0, 0, 0, 2]),  # Damage before it has left a gap of so many.
    st.sampled_from([1, 1, 5]),  # How many such records.
)
all_limits: dict[str, st.SearchStrategy[object]] = {
    "max_length": st.integers(1, 30), "max_length_bytes": st.integers(1, 200),
    "max_age_s": st.integers(1, 20).map(lambda hours: hours * 3600.0),
}  # fmt: skip
limits = st.one_of(
    *(st.fixed_dictionaries({name: value}) for name, value in all_limits.items()),
    st.fixed_dictionaries(all_limits),
)


def make(found: list[tuple[int, int, int, int]], **definition: object) -> tuple[Stream, Journal]:
    journal = Journal()
    lane = Lane(1, journal, logged=True)
    number = position = 0
    for count, size_bytes, gap, times in found:
        number += gap
        position += 1  # Now and then something else stands between them.
        for _ in range(times):
            lane.enqueue(number, count, position, size_bytes, position * HOUR_US)
            number, position = number + count, position + 1
    read: dict[str, object] = {"name": "s", **definition}
    return Stream(StreamDefinition(**read), lane), journal  # type: ignore[arg-type]


def surplus(stream: Stream, now_us: int) -> list[Run]:
    """Those that go: looked at one by one."""
    limits, gone, size = stream.definition, [], stream.size_bytes
    for run in stream.lane.index.runs(stream.start, stream.end):
        age_us = now_us - run.position * HOUR_US
        over = (
            (
                limits.max_length is not None
                and stream.end - run.first - run.count >= limits.max_length
            )
            or (limits.max_length_bytes is not None and size > limits.max_length_bytes)
            or (limits.max_age_s is not None and age_us >= limits.max_age_s * 1e6)
        )
        if not over or run.first + run.count >= stream.end:
            break
        gone.append(run)
        size -= run.size_bytes
    return gone


@given(
    st.lists(records, min_size=3, max_size=12),
    limits,
    st.integers(0, 60),
    st.sampled_from([1, 3, 100]),
)
def test_what_goes_is_what_a_plain_version_drops(
    found: list[tuple[int, int, int, int]], definition: dict[str, object], hours: int, runs_max: int
) -> None:
    now_us = hours * HOUR_US
    plain, plain_journal = make(found, **definition)
    for run in surplus(plain, now_us):
        plain.lane.settle(run.first, run.first + run.count)
    stream, journal = make(found, **definition)
    before, dropped = stream.start, 0
    while count := stream.retain(now_us, runs_max):
        dropped += count
    changes = stream.lane.change_count
    assert not stream.retain(now_us, runs_max)
    assert stream.lane.change_count == changes, "no checkpoint of what is as it was"
    assert (stream.start, stream.size_bytes) == (plain.start, plain.size_bytes)
    assert dropped == stream.start - before
    released = positions_of(journal.released)
    assert released == positions_of(plain_journal.released)
    assert sorted(journal.settled) == sorted(plain_journal.settled)
    assert list(stream.lane.index.runs(0, 1000)) == list(plain.lane.index.runs(0, 1000))


def test_a_million_records_go_without_a_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: in one turn and one by one, which took 5 s and 300 MB."""
    stream, journal = make([(1, 100, 0, 10_000)], max_age_s=3600.0)
    monkeypatch.delattr(Index, "runs")
    now_us = 20_000 * HOUR_US
    turns = []
    while count := stream.retain(now_us):
        turns.append((count, len(journal.released)))
        journal.released.clear()
    assert turns == [(1000, 1)] * 9 + [(999, 1)]


def test_expiries_are_kept_no_more_after_a_restart_than_before() -> None:
    """Found: they mean nothing in a stream, and took memory, and room in its checkpoints, from a start on."""
    one, definition = PlainVhost(), StreamDefinition(name="s")
    one.change([changes.STREAM, *one.registry.new_lanes(definition), to_plain(definition)])
    batch = make_batch(0, [b"x"], key="s", properties=Properties(ttl_us=5))
    one.vhost.intake.publish(one.publishers.open(PUBLISHER, 1, 0), [batch], anybody, 0)
    one.commit()
    there, again = (vhost.registry.stream("s") for vhost in (one, one.restarted()))
    assert [there.lane.may_expire, again.lane.may_expire] == [False, False]
    assert (again.end, again.lane.encode()) == (1, there.lane.encode())
