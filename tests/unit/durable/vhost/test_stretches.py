"""What a start knows of publishers whose messages went to queues in turn, whatever is missing of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.definition_forms import read_definition, to_plain
from durable.definitions import QueueDefinition
from durable.vhost import changes
from durable.vhost.groups import GroupStretch, batches_in, encode_group, read_front, sequences_in
from durable.vhost.publishers import Publisher, Publishers
from durable.vhost.stretches import Stretches
from mesh.protocol.batch import Batch
from tests.vhosts import PUBLISHER, PlainVhost, anybody, make_batch, snapshot_of

QUEUES = "qrs"
NOBODY = "n"
keys = st.text(f"{QUEUES}{NOBODY}", min_size=1, max_size=12)
"""Of the messages of one part."""


def vhost() -> PlainVhost:
    one = PlainVhost()
    for name in QUEUES:
        plain = to_plain(QueueDefinition(name=name))
        one.change(
            [changes.QUEUE, one.registry.new_lanes(read_definition(QueueDefinition, plain)), plain]
        )
    one.commit()
    return one


def publish(one: PlainVhost, publisher: Publisher, sequence: int, some: str) -> None:
    batches = [make_batch(at, [b"x"], key=key) for at, key in enumerate(some, sequence)]
    one.vhost.intake.publish(publisher, batches, anybody, 7)


def sequences_of(publisher: Publisher) -> set[int]:
    """What it is known to have stored."""
    missing = {at for low, high in publisher.holes for at in range(low, high)}
    return {*range(publisher.next)} - missing


def batches_of(one: PlainVhost, positions: set[int]) -> list[Batch]:
    return [
        batch
        for position, record in one.store.records.items()
        if position in positions and record.targets
        for batch, _ in batches_in(record.body, 0, 0, 1000)
    ]


@given(st.lists(keys, min_size=1, max_size=4), st.data())
def test_what_is_there_is_known_and_nothing_else(parts: list[str], data: st.DataObject) -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    begins, sequence = one.store.end, 0
    for some in parts:
        publish(one, publisher, sequence, some)
        sequence += len(some)
        if data.draw(st.booleans()):  # A record of something else.
            one.change([changes.BIND, {"exchange": "amq.fanout", "destination": "q", "key": ""}])
    one.commit()
    every = "".join(parts)
    assert sequences_of(publisher) == {at for at, key in enumerate(every) if key != NOBODY}
    positions = range(begins, one.store.end)
    lost = data.draw(st.sets(st.sampled_from(positions) if positions else st.nothing()))
    again = one.restarted(lost)
    there = {
        at
        for batch in batches_of(one, {*positions} - lost)
        for at in range(batch.base_sequence, batch.next_sequence)
    }
    known = again.publishers.open(PUBLISHER, 1, 0)
    assert sequences_of(known) == there
    for name in QUEUES:
        assert again.registry.queue(name).ready == sum(every[at] == name for at in there)


@given(st.lists(keys, min_size=1, max_size=4))
def test_a_start_forgets_no_holes_that_the_broker_knew(parts: list[str]) -> None:
    """Found: record by record, a queue's left a hole for each message of another one, and old holes went."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable.vhost.publishers.HOLES_MAX", 2)
        one = vhost()
        publisher = one.publishers.open(PUBLISHER, 1, 0)
        for some in parts:  # What nobody wants at the end is not known any more.
            publish(one, publisher, publisher.next, f"{some}q")
        one.commit()
        known = one.restarted().publishers.open(PUBLISHER, 1, 0)
        there = (publisher.next, publisher.floor, publisher.holes)
        assert (known.next, known.floor, known.holes) == there


@given(keys, keys, st.data())
def test_a_snapshot_in_the_middle_changes_nothing(
    before: str, behind: str, data: st.DataObject
) -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    publish(one, publisher, 0, before)
    one.commit()
    one.flush()
    one.store.append_nowait(snapshot_of(one.vhost))
    publish(one, publisher, len(before), behind)
    one.commit()
    again = one.restarted()
    assert sequences_of(again.publishers.open(PUBLISHER, 1, 0)) == sequences_of(publisher)


def record(
    number: int,
    stretch: GroupStretch | None,
    *sequences: int,
    publisher: bytes = PUBLISHER,
    epoch: int = 1,
) -> bytes:
    batches = [make_batch(at, [b"x"], publisher=publisher, epoch=epoch) for at in sequences]
    return encode_group(batches, None, stretch, number)


@pytest.mark.parametrize(
    "second",
    [
        record(1, GroupStretch(0, 4, 2), 3, publisher=b"o" * 16),
        record(1, GroupStretch(0, 4, 2), 3, epoch=2),
        record(1, GroupStretch(0, 5, 2), 3),
        record(1, GroupStretch(0, 4, 3), 3),
        record(0, GroupStretch(0, 4, 2), 3),
        record(0, None, 3, 5),
        record(1, GroupStretch(0, 4, 2), 3),
    ],
    ids=["publisher", "epoch", "messages", "records", "number", "no stretch", "fewer than it says"],
)
def test_records_that_are_not_all_of_one_stretch_say_for_themselves(second: bytes) -> None:
    publishers = Publishers(10)
    stretches = Stretches(publishers)
    for body in (record(0, GroupStretch(0, 4, 2), 0, 2), second):
        stretches.take(body, read_front(body))
    stretches.finish()
    first = publishers.get_or_add(PUBLISHER, 1)
    assert (1, 2) in first.holes or first.epoch == 2
    assert not stretches.current
    front = read_front(second)
    found = {at for low, high in sequences_in(second, front) for at in range(low, high)}
    assert found <= sequences_of(publishers.get_or_add(front.publisher, front.epoch))


def test_what_is_published_behind_a_torn_stretch_is_known_at_the_next_start() -> None:
    """Found: what ended the stretch that a power cut had torn was known of no publisher, and stored twice."""
    one = vhost()
    begins = one.store.end
    publish(one, one.publishers.open(PUBLISHER, 1, 0), 0, "qrsqrs")
    one.commit()
    assert one.store.end == begins + 3
    torn = one.restarted(kept=begins + 2)
    publisher = torn.publishers.open(PUBLISHER, 1, 0)
    assert sequences_of(publisher) == {0, 1, 3, 4}
    publish(torn, publisher, 6, "qrqr")
    torn.commit()
    again = torn.restarted()
    known = again.publishers.open(PUBLISHER, 1, 0)
    assert sequences_of(known) == {0, 1, 3, 4, 6, 7, 8, 9}
    publish(again, known, 6, "qrqr")
    again.commit()
    assert [again.registry.queue(name).ready for name in QUEUES] == [4, 4, 0]


def test_a_stretch_is_known_with_its_last_record() -> None:
    publishers = Publishers(10)
    stretches = Stretches(publishers)
    for number, sequences in enumerate([(0, 2), (1, 3)]):
        body = record(number, GroupStretch(0, 4, 2), *sequences)
        assert bool(stretches.current) == bool(number)
        stretches.take(body, read_front(body))
    assert not stretches.current
    assert sequences_of(publishers.get_or_add(PUBLISHER, 1)) == {0, 1, 2, 3}
