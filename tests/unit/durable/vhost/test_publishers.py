"""The table of publishers against a model that remembers every sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from durable.errors import PublisherFenced, SequenceLost
from durable.vhost.publishers import HOLES_MAX, Publisher, Publishers
from mesh.protocol.batch import NUMBERS_END

ID = b"p" * 16

spans = st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda one: (one[0], one[0] + one[1]))
steps = st.lists(st.tuples(st.booleans(), spans), max_size=40)


@given(steps)
def test_a_hole_is_tried_again_and_what_was_stored_never_is(
    history: list[tuple[bool, tuple[int, int]]],
) -> None:
    """Goal: nothing stored twice, nothing refused confirmed. Oracle: a set of stored sequences."""
    publisher, stored = Publisher(ID, 1), set[int]()
    for store, (first, end) in history:
        pieces = list(publisher.known_ranges(first, end))
        assert [piece.first for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
        assert (pieces[0].first, pieces[-1].end) == (first, end)
        for piece in pieces:
            for sequence in range(piece.first, piece.end):
                assert piece.stored == (sequence in stored)
            if piece.stored:
                continue
            if store:
                publisher.note_stored(piece.first, piece.end)
                stored |= set(range(piece.first, piece.end))
            else:
                publisher.note_refused(piece.end)
        ends = [edge for hole in publisher.holes for edge in hole]
        assert ends == sorted(ends)
        assert publisher.next >= end


@given(steps, st.data())
def test_nothing_is_confirmed_that_is_not_on_disk(
    history: list[tuple[bool, tuple[int, int]]], data: st.DataObject
) -> None:
    """Found: what was refused, then stored when it came again, was confirmed by an earlier commit."""
    publisher, positions, end, durable = Publisher(ID, 1), dict[int, int](), 0, 0
    for store, (first, last) in history:
        for piece in list(publisher.known_ranges(first, last)):
            if piece.stored:
                continue
            if store:
                publisher.note_stored(piece.first, piece.end)
                positions |= dict.fromkeys(range(piece.first, piece.end), end)
                end += 1
            else:
                publisher.note_refused(piece.end)
        publisher.note_decided(end - 1 if end else None, last)
        durable = data.draw(st.integers(durable, end))
        publisher.committed(durable)
        early = [one for one, at in positions.items() if at >= durable]
        assert publisher.confirmed <= min(early, default=publisher.confirmed)


@given(steps)
def test_records_alone_tell_the_same(history: list[tuple[bool, tuple[int, int]]]) -> None:
    """What is rebuilt from stored ranges knows as much as what lived, holes included."""
    live, rebuilt = Publisher(ID, 1), Publishers(10)
    for store, (first, end) in history:
        for piece in list(live.known_ranges(first, end)):
            if piece.stored:
                continue
            if store:
                live.note_stored(piece.first, piece.end)
                rebuilt.note_recovered(ID, 1, piece.first, piece.end)
            else:
                live.note_refused(piece.end)

    def stored(one: Publisher) -> set[int]:
        return {
            sequence
            for piece in one.known_ranges(0, 60)
            if piece.stored
            for sequence in range(piece.first, piece.end)
        }

    assert stored(live) == stored(rebuilt.get_or_add(ID, 1))


def test_the_first_sequences_of_all_may_be_a_hole() -> None:
    """Found: after a restart what had been refused first was lost for good."""
    table = Publishers(10)
    table.note_recovered(ID, 1, 3, 5)
    publisher = table.open(ID, 1, 0)
    assert list(publisher.known_ranges(0, 6)) == [(0, 3, False), (3, 5, True), (5, 6, False)]


def test_holes_are_bounded_and_older_ones_are_lost_not_confirmed() -> None:
    publisher = Publisher(ID, 1)
    for number in range(HOLES_MAX + 5):
        publisher.note_stored(2 * number + 1, 2 * number + 2)
    assert len(publisher.holes) == HOLES_MAX
    with pytest.raises(SequenceLost):
        list(publisher.known_ranges(0, 1))
    assert list(publisher.known_ranges(10, 11)) == [(10, 11, False)]


def test_a_hole_is_filled_where_it_is_and_what_was_stored_needs_no_look_at_all_holes() -> None:
    """Found: a start went through a thousand holes for each dead letter of their publisher."""

    class Searched(list[tuple[int, int]]):
        def __iter__(self) -> Iterator[tuple[int, int]]:
            raise AssertionError("gone through")

    publisher = Publisher(ID, 1, next=50, holes=Searched([(0, 3), (10, 20), (30, 33), (40, 41)]))
    publisher.note_stored(5, 6)
    publisher.note_stored(12, 14)
    publisher.note_stored(31, 41)
    publisher.note_stored(0, 3)
    assert publisher.holes == [(10, 12), (14, 20), (30, 31)]


@given(st.sets(st.integers(0, 30)), spans)
def test_filling_leaves_the_holes_that_are_not_in_the_range(
    missing: set[int], span: tuple[int, int]
) -> None:
    """Oracle: a set of missing sequences."""
    publisher = Publisher(ID, 1)
    for stored in sorted(set(range(61)) - missing):
        publisher.note_stored(stored, stored + 1)
    publisher.note_stored(*span)
    left = {at for low, high in publisher.holes for at in range(low, high)}
    assert left == missing - set(range(*span))
    assert all(low < high for low, high in publisher.holes)


def test_a_publisher_forgets_what_its_client_knows() -> None:
    table = Publishers(10)
    table.note_recovered(ID, 1, 5, 10)
    publisher = table.open(ID, 1, 7)
    assert (publisher.floor, publisher.holes) == (7, [])
    with pytest.raises(SequenceLost):
        list(publisher.known_ranges(6, 8))


def test_one_that_was_forgotten_here_goes_on_where_its_client_says() -> None:
    publisher = Publishers(10).open(ID, 1, 100)
    assert (publisher.next, publisher.confirmed) == (100, 100)


def test_an_epoch_that_is_given_is_later_than_what_is_known_and_than_the_time() -> None:
    table = Publishers(10)
    assert table.next_epoch(ID, 5_000_000, 7) == 5_000_000_007
    table.note_recovered(ID, 1 << 60, 0, 1)
    assert table.next_epoch(ID, 5_000_000, 7) == (1 << 60) + 8


def test_a_later_epoch_begins_anew_and_fences_the_earlier() -> None:
    table = Publishers(10)
    old = table.open(ID, 1, 0)
    old.note_stored(0, 10)
    new = table.open(ID, 2, 0)
    assert list(new.known_ranges(0, 10)) == [(0, 10, False)]
    table.check_current(new)
    with pytest.raises(PublisherFenced) as fenced:
        table.check_current(old)
    assert (fenced.value.epoch, fenced.value.latest) == (1, 2)
    with pytest.raises(PublisherFenced):
        table.open(ID, 1, 0)
    table.note_recovered(ID, 1, 0, 99)
    assert new.next == 0


def test_the_least_recently_used_is_forgotten_unless_it_waits() -> None:
    table = Publishers(2)
    first = table.open(b"1" * 16, 1, 0)
    first.note_decided(5, 1)
    table.open(b"2" * 16, 1, 0)
    table.open(b"3" * 16, 1, 0)
    assert {one.id for one in table} == {b"1" * 16, b"2" * 16, b"3" * 16}
    first.committed(6)
    table.open(b"4" * 16, 1, 0)
    assert len(table) == 2
    table.check_current(first)
    assert first in list(table)


def test_one_that_has_just_connected_is_not_forgotten() -> None:
    """Found: where those before it waited for the disk it went at once. An earlier epoch that connected
    then fenced it off; and for its own later one there was a KeyError."""
    table = Publishers(2)
    waiting: list[Publisher] = []
    for number, cluster in enumerate("abc"):
        waiting.append(table.open(bytes([number]) * 16, 1, 0, cluster=cluster))
        waiting[-1].note_decided(5, 1)
    new = table.open(b"n" * 16, 2, 0, cluster="c")
    assert list(table) == [*waiting, new]
    with pytest.raises(PublisherFenced):
        table.open(b"n" * 16, 1, 0, cluster="c")
    for one in waiting:
        one.committed(6)
    assert table.open(bytes([0]) * 16, 2, 0, cluster="a").epoch == 2


def test_nobody_is_forgotten_before_there_are_too_many() -> None:
    """Found by reading: from half the limit on, as many as were over that half were forgotten."""
    table = Publishers(10)
    for number in range(10):
        table.open(bytes([number]) * 16, 1, 0)
    assert len(table) == 10
    table.open(bytes([10]) * 16, 1, 0)
    assert [one.id[0] for one in table] == list(range(1, 11))


def test_a_cluster_with_ever_new_publishers_crowds_out_none_of_another() -> None:
    """Found: it needed no right at all, and whatever the others sent again was stored again."""
    table = Publishers(10)
    ours = [table.open(bytes([number]) * 16, 1, 0, cluster="shop") for number in range(4)]
    for number in range(100, 200):
        table.open(bytes([number]) * 16, 1, 0, cluster="crm")
        assert len(table) <= 10
    assert [one.id[0] for one in table] == [0, 1, 2, 3, *range(194, 200)]
    for one in ours:
        assert table.open(one.id, 1, 0, cluster="shop") is one
    for number in range(10, 20):
        table.open(bytes([number]) * 16, 1, 0, cluster="shop")
    kept = [one.id[0] for one in table]
    assert kept == [*range(195, 200), *range(15, 20)], "half of it is each one's"


def test_those_of_before_a_restart_make_room_first_until_they_come_back() -> None:
    """Nobody knows whose they are."""
    table = Publishers(10)
    for number in range(10):
        table.note_recovered(bytes([number]) * 16, 1, 0, 5)
    back = table.open(bytes([0]) * 16, 1, 0, cluster="shop")
    assert (back.next, back.cluster) == (5, "shop")
    for number in range(100, 200):
        table.open(bytes([number]) * 16, 1, 0, cluster="crm")
    assert [one.id[0] for one in table] == [6, 7, 8, 9, 0, *range(195, 200)]
    assert table.open(bytes([0]) * 16, 1, 0, cluster="shop") is back


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "replace", "publish", "commit"]), st.integers(0, 20)),
        max_size=60,
    )
)
@example([*(("open", number) for number in (0, 1, 2, 3, 4, 5, 7)), ("publish", 1), ("open", 0)])
def test_nobody_is_forgotten_who_waits_and_no_share_is_taken(
    history: list[tuple[str, int]],
) -> None:
    """Oracle: of two clusters each keeps its last 3, of a table of 6. One that is older and waits takes the place of
    the oldest of them."""
    table, latest, position = Publishers(6), dict[int, Publisher](), 0
    order: dict[int, None] = {}
    displaced = set[int]()
    for what, number in history:
        there, cluster = latest.get(number), f"c{number % 2}"
        if what == "commit":
            for one in table:
                one.committed(number)
        elif there is not None and what == "publish":
            if there not in table:  # It is remembered again, as its cluster's latest.
                order.pop(number)
                order[number] = None
            table.check_current(there)
            there.note_decided(position := position + 1, 1)
        elif what in ("open", "replace"):
            epoch = 1 if there is None else there.epoch + (what == "replace")
            latest[number] = table.open(bytes([number]) * 16, epoch, 0, cluster=cluster)
            order.pop(number, None)
            order[number] = None
        entries = {one.id[0]: one for one in table}
        assert all(one is latest[number] for number, one in entries.items())
        displaced -= {number}
        for parity in (0, 1):
            mine = [one for one in order if one % 2 == parity]
            older, recent = mine[:-3], mine[-3:]
            waiting_older = [one for one in older if latest[one].waiting]
            displaced.update(recent[: len(waiting_older)])
            assert set(recent) - displaced <= entries.keys()
        waiting = {one for one, entry in latest.items() if entry.waiting}
        assert waiting <= entries.keys()


def test_confirmed_up_to_what_is_durable() -> None:
    publisher = Publisher(ID, 1)
    publisher.note_decided(None, 3)
    assert publisher.confirmed == 3
    publisher.note_decided(10, 5)
    publisher.note_decided(None, 7)  # Decided at once, but behind what is not.
    assert publisher.confirmed == 3
    assert not publisher.committed(10)
    assert publisher.committed(11)
    assert publisher.confirmed == 7


@given(steps)
def test_a_snapshot_restores_the_table(history: list[tuple[bool, tuple[int, int]]]) -> None:
    table = Publishers(10)
    publisher = table.open(ID, 4, 0)
    for store, span in history:
        if store:
            publisher.note_stored(*span)
        else:
            publisher.note_refused(span[1])
    restored = Publishers(10)
    for entry in table.entries():
        restored.restore(entry)
    assert restored.entries() == table.entries()


def test_what_fills_a_hole_is_not_decided_before_it_is_durable() -> None:
    """Found: it passed for confirmed at once, with what had come behind it."""
    publisher = Publishers(10).open(b"p" * 16, 1, 0)
    publisher.note_refused(2)
    publisher.note_stored(2, 5)
    publisher.note_decided(7, 5)
    assert publisher.committed(8)
    assert publisher.confirmed == 5
    publisher.note_stored(1, 2)
    publisher.note_decided(9, 5)
    assert publisher.confirmed == 1
    assert not publisher.committed(9)
    assert publisher.committed(10)
    assert publisher.confirmed == 5


def test_what_was_refused_and_comes_again_is_decided_when_it_is_durable() -> None:
    """It was decided before, as refused: a confirm of that would now tell a lie."""
    one = Publisher(b"p" * 16, 1)
    one.note_stored(0, 10)
    one.note_refused(20)
    one.note_stored(20, 30)
    one.note_decided(5, 30)
    assert one.committed(6)
    assert one.confirmed == 30
    one.note_stored(10, 20)
    one.note_decided(7, 20)
    assert one.confirmed == 10
    assert one.committed(8)
    assert one.confirmed == 20


def test_a_log_with_the_last_sequence_of_all_can_have_a_snapshot() -> None:
    """Found: it was accepted, the one after it cannot be packed, and that ended each start."""
    table = Publishers(10)
    table.note_recovered(ID, 1, 0, 3)
    table.note_recovered(ID, 1, 2**64 - 1, 2**64)
    restored = Publishers(10)
    for *entry, holes in table.entries():
        msgpack.packb([*entry, holes])
        restored.restore((*entry, holes))  # type: ignore[arg-type]
    assert restored.entries() == table.entries() == [(ID, 1, NUMBERS_END, 0, [(3, NUMBERS_END)])]
    assert not any(known.stored for known in restored.open(ID, 1, 0).known_ranges(3, 9))


def test_a_snapshot_with_sequences_that_nobody_accepts_now() -> None:
    table = Publishers(10)
    table.restore((ID, 1, 2**64 - 1, 7, [(9, 2**64 - 5), (2**64 - 3, 2**64 - 2)]))
    assert table.entries() == [(ID, 1, NUMBERS_END, 7, [(9, NUMBERS_END)])]


class Looked(list[tuple[int, int]]):
    """Holes that tell how many of them are looked at."""

    seen = 0

    def __getitem__(self, at: Any) -> Any:
        self.seen += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for one in super().__iter__():
            self.seen += 1
            yield one


def test_what_is_new_is_not_compared_with_each_of_a_thousand_holes() -> None:
    publisher = Publisher(ID, 1)
    for first in range(0, 2000, 2):
        publisher.note_stored(first, first + 1)
    publisher.holes = looked = Looked(publisher.holes)
    assert len(looked) > 900
    assert list(publisher.known_ranges(5000, 5002)) == [(5000, 5002, False)]
    assert looked.seen < 20
