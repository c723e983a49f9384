"""Which queues are written down, and what is made of the files afterwards."""

from __future__ import annotations

from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition
from durable.vhost import changes
from durable.vhost.checkpointing import Checkpointing
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
        one.vhost.publish(publisher, [batch], anybody, 0)
    one.commit()
    return one


def test_a_queue_whose_records_have_moved_is_written_again() -> None:
    """Found: the file still said where they had been, and the broker did not start."""
    one = vhost("a", "b")
    checkpointing = Checkpointing(one.registry)
    changed, _ = checkpointing.take(one.store.end, 0)
    assert {checkpoint.name for checkpoint in changed} == {"a", "b"}
    assert checkpointing.take(one.store.end, 0)[0] == []
    (lane,) = one.registry.queue("b").lanes
    lane.move(0, 77)
    changed, _ = checkpointing.take(one.store.end, 0)
    assert [checkpoint.name for checkpoint in changed] == ["b"]
