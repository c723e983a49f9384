"""A snapshot that is encoded a little at a time is of the one moment in which it is appended."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable.log.bodies import Missed, encode_definitions
from durable.log.record import Draft
from durable.turns import ENTRIES_AT_ONCE
from durable.vhost import snapshot
from durable.vhost.gaps import StreamGap
from tests.unit.durable.vhost.test_replay import NAMES, Story, lived, stories
from tests.vhosts import PUBLISHER, snapshot_of

DECLARING = ("queue", "gone", "bind", "unbind", "exchange", "ending", "memory", "stream")


def told(drafts: list[Draft]) -> list[Any]:
    """All changes; how many stand in one is nobody's business."""
    found: list[Any] = []
    for draft in drafts:
        for word, *fields in msgpack.unpackb(bytes(draft.body), strict_map_key=False):
            entries = fields[0] if word in ("publishers", "lanes", "returns") else [fields]
            found += [[word, one] for one in entries]
    return found


def meanwhile(story: Story, step: tuple[str, str, int]) -> None:
    """What may happen then: cursors move, nothing is declared."""
    moves = step[0] == "stream" and step[2] and "s" in story.registry.streams
    if moves or step[0] not in (*DECLARING, "snapshot"):
        story.step(*step)


@settings(max_examples=200)
@given(stories, st.lists(stories, max_size=8), st.booleans(), st.data())
def test_encoded_in_turns_it_is_as_in_one(
    before: list[tuple[str, str, int]], between: list[list[tuple[str, str, int]]], alone: bool,
    data: st.DataObject,
) -> None:  # fmt: skip
    """Goal: whatever happens to messages between two turns. Oracle: one made of the last moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable.turns.ENTRIES_AT_ONCE", data.draw(st.integers(1, 4)))
        patch.setattr(snapshot, "SETTLED_BYTES_MAX", 0)
        patch.setattr(snapshot, "RETURNS_MAX", 1)
        patch.setattr(snapshot, "RECORD_BYTES", 200)
        story = lived(before)
        begun = story.vhost.snapshot(7, complete=alone)
        steps = begun.steps()
        for some in between:
            next(steps, None)
            for step in some:
                meanwhile(story, step)
        for _ in steps:
            pass
        for step in data.draw(stories):
            meanwhile(story, step)
        at_once = story.vhost.snapshot(7, complete=alone)
        for _ in at_once.steps():
            pass
        assert told(begun.drafts(0)) == told(at_once.drafts(0))
        (whole,) = begun.drafts(0, full=True)
        assert told([whole]) == told(at_once.drafts(0))


def story_of(lanes: int) -> Story:
    """Queues with a message each, in lanes of which most stay as they are."""
    story = Story()
    for number in range(lanes):
        story.step("queue", f"q{number}", 0)
    return story


def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is encoded from now on."""
    found: list[Any] = []

    def note(value: Any) -> bytes:
        found.append(value)
        return encode_definitions(value)

    monkeypatch.setattr("durable.vhost.snapshot.encode_definitions", note)
    return found


def test_no_turn_encodes_more_than_a_few_and_the_last_one_what_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: 100,000 queues stopped everything for 1.4 to 2.1 s."""
    queues = 5 * ENTRIES_AT_ONCE
    story = story_of(queues)
    found = encoded(monkeypatch)
    begun, turns = story.vhost.snapshot(), 0
    for _ in begun.steps():
        turns += 1
        assert len(found) <= 2 * ENTRIES_AT_ONCE + 1
        found.clear()
    # The begin of the snapshot, queues, lanes, and whatever lanes have changed meanwhile.
    assert turns == 6 + 5 + 5
    for name in ("q3", "q700"):
        story.step("publish", name, 1)
    begun.drafts(0)
    entries = [one for one in found if isinstance(one, list)]
    lanes = [story.registry.queue(name).lanes[0].id for name in ("q3", "q700")]
    assert [one[0] for one in entries] == ["publishers", *lanes, "gaps", "snapshot end"]


def test_what_changes_while_it_is_encoded_is_encoded_before_the_last_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it has little to do, however much goes on."""
    story = story_of(3 * ENTRIES_AT_ONCE)
    begun = story.vhost.snapshot()
    steps = begun.steps()
    for _ in range(4 + 3):  # All queues, and all lanes.
        next(steps)
    for number in range(3 * ENTRIES_AT_ONCE):
        story.step("publish", f"q{number}", 1)
    for _ in steps:
        pass
    found = encoded(monkeypatch)
    begun.drafts(0)
    assert [one[0] for one in found if isinstance(one, list)] == [
        "publishers", "gaps", "snapshot end",
    ]  # fmt: skip


def test_gaps_and_publishers_are_those_of_the_last_moment() -> None:
    story = Story()
    story.step("stream", "s", 0)
    story.step("queue", NAMES[0], 0)
    begun = story.vhost.snapshot()
    for _ in begun.steps():
        pass
    story.step("publish", NAMES[0], 3)
    (stream,) = story.registry.streams.values()
    story.registry.gaps.note(StreamGap(stream.lane.id, 0, Missed(PUBLISHER, 1, "t", 0, 3)))
    found = told(begun.drafts(0))
    assert found == told(snapshot_of(story.vhost))
    assert [one[1][2] for one in found if one[0] == "publishers"] == [3]
    assert [len(one[1][0]) for one in found if one[0] == "gaps"] == [1]
