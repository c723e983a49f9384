"""Which queues are written down, and what is made of the files afterwards."""

from __future__ import annotations

import pytest

from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition
from durable.vhost import changes
from durable.vhost.checkpointing import (
    QUEUES_AT_ONCE,
    Checkpointing,
    CheckpointRound,
    decode_extra,
    load,
)
from durable.vhost.registry import Registry
from tests.vhosts import PUBLISHER, PlainVhost, anybody, make_batch


def vhost(*names: str) -> PlainVhost:
    """With three messages in each of these queues."""
    one = PlainVhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    for number, name in enumerate(names):
        definition = QueueDefinition(name=name)
        lanes = one.registry.new_lanes(definition)
        one.change([changes.QUEUE, lanes, to_plain(definition)])
        batch = make_batch(3 * number, [b"x"] * 3, key=name)
        one.vhost.intake.publish(publisher, [batch], anybody, 0)
    one.commit()
    return one


def taken(checkpointing: Checkpointing, position: int) -> CheckpointRound:
    """All there is to take, at one moment."""
    round_ = checkpointing.begin_round()
    while round_.has_more:
        round_.encode_some(position, 0)
    return round_


def names(round_: CheckpointRound) -> list[str]:
    return [one.name for one in round_.changed]


def test_a_queue_whose_records_have_moved_is_written_again() -> None:
    """Found: the file still said where they had been, and the broker did not start."""
    one = vhost("a", "b")
    checkpointing = Checkpointing(one.registry)
    first = taken(checkpointing, one.store.end)
    assert names(first) == ["a", "b"]
    checkpointing.note_written(first)
    assert names(taken(checkpointing, one.store.end)) == []
    (lane,) = one.registry.queue("b").lanes
    lane.move(0, 77)
    assert names(taken(checkpointing, one.store.end)) == ["b"]


def test_what_could_not_be_written_is_written_the_next_time() -> None:
    """Found: the root named files that were not there."""
    one = vhost("a")
    checkpointing = Checkpointing(one.registry)
    taken(checkpointing, one.store.end)
    assert names(taken(checkpointing, one.store.end)) == ["a"]


def test_each_is_of_the_moment_in_which_it_is_encoded() -> None:
    """What happens between two goes is in the files of the second; what is deleted is in none."""
    queues = [f"q{number}" for number in range(2 * QUEUES_AT_ONCE + 1)]
    one = vhost(*queues)
    round_ = Checkpointing(one.registry).begin_round()
    round_.encode_some(5, 1)
    assert names(round_) == queues[:QUEUES_AT_ONCE]
    one.change([changes.QUEUE_GONE, queues[QUEUES_AT_ONCE]])
    (lane,) = one.registry.queue(queues[-1]).lanes
    lane.settle(0, 1)
    round_.encode_some(9, 8)
    assert not round_.has_more
    assert names(round_) == queues[:QUEUES_AT_ONCE] + queues[QUEUES_AT_ONCE + 1 :]
    files = decode_extra(round_.extra)
    assert [one.name for one in files] == names(round_)
    assert {one.position for one in files[:QUEUES_AT_ONCE]} == {5}
    assert {one.position for one in files[QUEUES_AT_ONCE:]} == {9}
    again = Registry()
    assert load(again, round_.changed[-1].checkpoint()) == {lane.id: 8}
    assert list(again.lane(lane.id).settled.unsettled(0, 3)) == [(1, 3)]


def test_what_a_snapshot_may_leave_out_stands_in_both_files() -> None:
    """It says what was settled in order; of the rest, and of what came back, it leaves out what is much."""

    def twice(one: PlainVhost) -> bool:
        (encoded,) = taken(Checkpointing(one.registry), one.store.end).changed
        assert encoded.checkpoint().ack_copied is encoded.has_ack_copy
        return encoded.has_ack_copy

    in_order, one_left, came_back = (vhost("a") for _ in range(3))
    lanes = [one.registry.queue("a").lanes[0] for one in (in_order, one_left, came_back)]
    lanes[0].settle(0, 2)
    lanes[1].settle(1, 2)
    lanes[2].load_returns([(0, 1, 1)], 1)
    assert [twice(one) for one in (in_order, one_left, came_back)] == [False, True, True]


def test_a_long_index_ends_a_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable.vhost.checkpointing.BYTES_AT_ONCE", 10_000)
    one = vhost("a", "b")
    (lane,) = one.registry.queue("a").lanes
    for number in range(3, 250):  # 48 bytes a run that is not like the one before.
        lane.enqueue(number, 1, number * number, number % 7, 0)
    round_ = Checkpointing(one.registry).begin_round()
    round_.encode_some(5, 1)
    assert (names(round_), round_.has_more) == (["a"], True)
