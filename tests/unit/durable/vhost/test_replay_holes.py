"""What a power cut or damage took out of the middle of a log, and what is made of the rest."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from durable.definition_forms import to_plain
from durable.definitions import (
    BindingDefinition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import StoreFull
from durable.log.bodies import Missed, move
from durable.log.record import Draft, Kind, Target
from durable.log.report import LogGap, RecoveryReport
from durable.queues.lane import Lane
from durable.vhost import changes
from durable.vhost.changes import Change
from durable.vhost.store import append_twice
from mesh.errors import TooLarge
from mesh.protocol.batch import COUNT_MAX
from tests.queues import positions_of
from tests.unit.durable.vhost.test_replay import NAMES, Story
from tests.vhosts import PUBLISHER, PlainStore, PlainVhost, anybody, make_batch, snapshot_of


def dead_lettered(story: Story) -> int:
    """A message of `a` is rejected and goes to `b`; the log position of its copy."""
    plain = to_plain(
        QueueDefinition(name="a", dead_letter_exchange="", dead_letter_routing_key="b")
    )
    story.change([changes.QUEUE, story.registry.new_lanes(QueueDefinition(name="a")), plain])
    for step in [("queue", "b", 0), ("publish", "a", 3), ("commit", "", 0), ("take", "a", 1)]:
        story.step(*step)
    story.registry.queue("a").settle(story.consumers["a"], 0, 1, "reject")
    (dead,) = story.vhost.take_dead()
    copy = story.store.end
    story.vhost.forward_dead(dead, [(make_batch(0, [b"0", b"1", b"2"], key="a"), 0)], 0)
    story.step("snapshot", "", 0)  # In the same commit, and it may survive the copy.
    story.flush()
    return copy


def test_a_dead_letter_whose_copy_a_power_cut_took_is_where_it_was() -> None:
    """Found: its settlement stood behind it in the same commit, and outlived it."""
    story = Story()
    copy = dead_lettered(story)
    again = story.restarted()
    assert {name: one.ready for name, one in again.registry.queues.items()} == {"a": 2, "b": 1}
    assert not again.replay.ignored_acks
    again = story.restarted([copy])
    assert {name: one.ready for name, one in again.registry.queues.items()} == {"a": 3, "b": 0}
    assert again.replay.ignored_acks == {copy + 1}


def test_a_dead_letter_whose_copy_was_freed_does_not_come_back() -> None:
    """What is missing before the first record was not cut off: it has been freed."""
    story = Story()
    copy = dead_lettered(story)
    story.step("snapshot", "", 0)
    story.commit()
    again = story.restarted(range(copy + 1))
    assert not again.replay.ignored_acks


@pytest.mark.parametrize("lost", range(4))
def test_a_snapshot_with_a_hole_takes_nothing_away(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: what was declared in the record that is missing passed for deleted, messages and all."""
    monkeypatch.setattr("durable.vhost.snapshot.RECORD_BYTES", 100)
    story = Story()
    for name in NAMES:
        story.step("queue", name, 0)
        story.step("publish", name, 2)
    story.commit()
    story.step("snapshot", "", 0)
    assert story.store.end - story.snapshot_at > 4
    story.end()
    again = story.restarted([story.snapshot_at + lost])
    assert {name: one.ready for name, one in again.registry.queues.items()} == dict.fromkeys(
        NAMES, 2
    )


def test_a_snapshot_does_not_confirm_what_the_same_power_cut_took() -> None:
    """Found: it counted a message as stored that was not, and so passed for a duplicate later."""
    story = Story()
    story.step("queue", "a", 0)
    story.commit()
    lost = story.store.end
    story.step("publish", "a", 3)
    story.step("snapshot", "", 0)
    story.commit()

    def known(one: PlainVhost) -> list[tuple[int, int, bool]]:
        publisher = one.publishers.open(PUBLISHER, 1, 0)
        return [(first, end, stored) for first, end, stored in publisher.known_ranges(0, 3)]

    assert known(story.restarted()) == [(0, 3, True)]
    assert known(story.restarted([lost])) == [(0, 3, False)]
    story.step(
        "publish", "a", 2
    )  # Later than that, it had been confirmed: damage, and no power cut.
    story.step("snapshot", "", 0)
    story.commit()
    assert known(story.restarted([lost])) == [(0, 3, True)]


def test_looking_for_what_is_missing_costs_no_memory_for_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: a list of all that is needed, three times as large as the index of it."""
    monkeypatch.setattr("durable.queues.index._ROWS_MAX", 128)
    vhost, runs = PlainVhost(), 4000
    vhost.change([changes.QUEUE, [1], to_plain(QueueDefinition(name="a"))])
    lane, position = vhost.registry.queue("a").lanes[0], 1
    for number in range(runs):  # None is like the one before it.
        lane.enqueue(number, 1, position, number % 7, 0)
        position += 1 + number % 3
    begun = vhost.store.append_nowait(snapshot_of(vhost.vhost))
    replay = vhost.replay
    replay.resume_from(begun.start, begun.start, {}, 0)
    for at in begun:
        replay(vhost.store.records[at])
    report = cast("RecoveryReport", SimpleNamespace(start=1, absent=(), found_end=position))
    tracemalloc.start()
    assert not replay.missing(report)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * runs
    report = cast(
        "RecoveryReport",
        SimpleNamespace(start=500, absent=(LogGap(700, 800), LogGap(800, 801)), found_end=position),
    )
    needed = positions_of(lane.referenced())
    wanted = [
        (min(there), max(there) + 1)
        for start, end in ((0, 500), (700, 800), (800, 801))
        if (there := [one for one in needed if start <= one < end])
    ]
    missing = replay.missing(report)
    assert [(one.start, one.end) for one in missing] == wanted
    assert not replay.is_consistent(report, missing)
    assert replay.is_consistent(report, missing[1:])


@pytest.mark.parametrize("lost", [None, 0, 1])
def test_a_change_holds_once_whichever_copy_is_left(lost: int | None) -> None:
    """After each of them, with everything declared, deleted and declared anew."""
    queue = to_plain(QueueDefinition(name="q"))
    stream = to_plain(StreamDefinition(name="s", patterns=("t.>",)))
    ending = to_plain(ExchangeDefinition(name="e", auto_delete=True))
    other = to_plain(ExchangeDefinition(name="e", type="topic"))
    binding = to_plain(BindingDefinition(exchange="e", destination="q", key="k"))
    permission = to_plain(PermissionDefinition(cluster="c"))
    one, damaged = PlainVhost(), list[int]()
    wanted: list[Change] = [
        [changes.QUEUE, [1], queue], [changes.EXCHANGE, ending], [changes.BIND, binding],
        [changes.UNBIND, binding], [changes.EXCHANGE, other], [changes.BIND, binding],
        [changes.QUEUE_GONE, "q"], [changes.QUEUE, [2], queue], [changes.BIND, binding],
        [changes.EXCHANGE_GONE, "e"], [changes.STREAM, 3, stream], [changes.CURSOR, "s", "c", 7],
        [changes.STREAM_GONE, "s"], [changes.STREAM, 4, stream], [changes.CURSOR, "s", "c", 9],
        [changes.CURSOR, "s", "c", None], [changes.PERMISSION, permission],
        [changes.PERMISSION_GONE, "c"], [changes.PERMISSION, permission],
    ]  # fmt: skip
    for change in wanted:
        before = one.store.end
        one.change(change)
        one.commit()
        written = one.store.end - before
        assert written == (1 if change[0] == changes.CURSOR else 2)
        if lost is not None and written == 2:
            damaged.append(before + lost)
        again = one.restarted(damaged)
        assert list(again.registry.declared()) == list(one.registry.declared())
        assert list(again.registry.cursors()) == list(one.registry.cursors())
        assert again.registry.patterns == one.registry.patterns


def test_on_a_full_disk_one_has_to_do() -> None:
    draft = Draft(Kind.DEFINITIONS, b"x")

    class Reserve(PlainStore):
        """Of a full disk."""

        def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
            if any(one.patient for one in drafts):
                raise StoreFull(1, 1, 0)
            return super().append_nowait(drafts, hurry=hurry)

    assert append_twice(PlainStore(), [draft]) == range(2)
    assert append_twice(Reserve(), [draft]) == range(1)


def test_what_fits_once_only_is_not_declared() -> None:
    """Found: it was, once. One flipped bit cost all of it with its messages."""
    one = PlainVhost()
    change = [changes.EXCHANGE, to_plain(ExchangeDefinition(name="e", type="topic"))]
    one.change(change)
    one.store.append_bytes_max = one.store.records[0].header.total_bytes * 2 - 1
    with pytest.raises(TooLarge, match=f"exceeds the limit of {one.store.append_bytes_max} bytes"):
        one.change([changes.EXCHANGE, to_plain(ExchangeDefinition(name="f", type="topic"))])
    assert one.store.end == 2
    assert not one.registry.router.has_exchange("f")


def stream_of(story: PlainVhost) -> Lane:
    return story.registry.stream("s").lane


@pytest.mark.parametrize("moved", [False, True])
def test_the_offsets_of_lost_records_are_not_given_again(moved: bool) -> None:
    """Found: a cursor behind the last message of a stream, whose record was damaged, passed over the next."""
    story = Story()
    story.step("stream", "", 0)
    story.step("queue", "a", 0)
    first = story.store.end
    for name in ("s", "s", "a"):
        story.step("publish", name, 2)
    story.commit()
    if moved:  # A copy stands behind what is lost, and was given before that.
        record = story.store.records[first]
        targets = [Target(*target) for target in record.targets]
        story.store.append_nowait([move(record, targets)])
        story.commit()
    again = story.restarted([first + 1])
    assert stream_of(again).next == 2 + COUNT_MAX
    assert not again.replay.lost_messages(
        cast("RecoveryReport", SimpleNamespace(absent=[1], start=1))
    )
    assert again.registry.stream("s").end == 2
    publish(again, b"new")
    assert [run.first for run in stream_of(again).index.runs(0, 1 << 62)] == [0, 2 + COUNT_MAX]
    later = again.restarted()
    assert stream_of(later).next == 3 + COUNT_MAX, "what is known now is not left out again"


def publish(vhost: PlainVhost, payload: bytes) -> None:
    publisher = vhost.publishers.open(PUBLISHER, 2, 0)
    vhost.vhost.intake.publish(publisher, [make_batch(0, [payload], key="s", epoch=2)], anybody, 0)
    vhost.commit()


@pytest.mark.parametrize("knows", ["publish", "snapshot", "gap", "declared"])
def test_offsets_that_are_known_are_left_out_for_nothing(knows: str) -> None:
    """What comes behind a lost record says where the stream was then."""
    story = Story()
    story.step("queue", "a", 0)
    if knows != "declared":
        story.step("stream", "", 0)
        story.step("publish", "s", 2)
    lost = story.store.end
    story.step("publish", "a" if knows == "declared" else "s", 3)
    if knows == "publish":
        story.step("publish", "s", 1)
    elif knows == "snapshot":
        story.commit()
        story.step("snapshot", "", 0)
    elif knows == "gap":
        story.vhost.record_gap(story.registry.stream("s"), Missed(PUBLISHER, 1, "t.a", 9, 1), 0)
    else:
        story.step("stream", "", 0)
    story.commit()
    before = stream_of(story).next
    assert stream_of(story.restarted([lost])).next == before
