"""Publishing without I/O: a refused append leaves no trace, and sequences mean one message each."""

from __future__ import annotations

from typing import Any

import pytest

from durable.definition_forms import read_definition, to_plain
from durable.definitions import BindingDefinition, QueueDefinition
from durable.errors import InvalidDefinition, Malformed, StoreBusy, StoreFull
from durable.protocol.error_codec import rebuild_error
from durable.protocol.properties import Properties
from durable.vhost import changes
from tests.vhosts import PUBLISHER, PlainVhost, anybody, make_batch


def vhost(**settings: object) -> PlainVhost:
    one = PlainVhost()
    plain = {**to_plain(QueueDefinition(name="q")), **settings}
    lanes = one.registry.new_lanes(read_definition(QueueDefinition, plain))
    one.change([changes.QUEUE, lanes, plain])
    one.commit()
    return one


def test_sequences_count_on_and_nothing_is_ready_before_it_is_durable() -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    for batch in (make_batch(0, [b"a", b"b"]), make_batch(2, [b"c"])):
        assert one.vhost.intake.publish(publisher, [batch], anybody, 0) == []
    queue = one.registry.queue("q")
    assert (queue.ready, publisher.confirmed) == (0, 0)
    assert one.commit() == [publisher]
    assert (queue.ready, publisher.confirmed) == (3, 3)
    firsts = [one.targets[0].first for one in one.store.records.values() if one.targets]
    assert firsts == [0, 2]


def test_who_asks_is_told_whether_something_has_arrived() -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    one.vhost.intake.publish(publisher, [make_batch(0, [b"a"])], anybody, 0)
    assert not one.vhost.intake.has_arrived
    one.commit()
    assert one.vhost.intake.has_arrived
    assert [*one.vhost.intake.take_arrived()] == [one.registry.queue("q")]
    assert not one.vhost.intake.has_arrived


@pytest.mark.parametrize("error", [StoreBusy(1, "x"), StoreFull(1, 2, 3)])
def test_a_refused_append_leaves_no_trace(error: Exception) -> None:
    one = vhost(max_length=2, overflow="reject-publish")
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    one.store.refusal = error
    batch = make_batch(0, [b"a", b"b"])
    with pytest.raises(type(error)):
        one.vhost.intake.publish(publisher, [batch], anybody, 0)
    assert (publisher.next, one.registry.queue("q").lanes[0].next) == (0, 0)
    one.store.refusal = None
    for _ in range(2):
        assert one.vhost.intake.publish(publisher, [batch], anybody, 0) == []
    one.commit()
    assert one.registry.queue("q").ready == 2
    counts = one.vhost.intake.counts
    assert (counts.received, counts.duplicates, counts.refused) == (4, 2, 0), (
        "once, not per attempt"
    )
    assert counts.received_bytes == 2 * batch.size_bytes


def test_what_the_disk_had_no_room_for_is_tried_again() -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    one.vhost.intake.publish(publisher, [make_batch(0, [b"a"])], anybody, 0)
    again = [make_batch(0, [b"a"]), make_batch(1, [b"b"])]
    (refused,) = one.vhost.intake.refuse(publisher, again, StoreFull(1, 2, 3))
    assert (refused.first, refused.count, refused.code) == (1, 1, "StoreFull")
    assert publisher.confirmed == 0, "what was appended before is not durable yet"
    one.commit()
    assert publisher.confirmed == 2
    assert one.vhost.intake.publish(publisher, again, anybody, 0) == []
    one.commit()
    assert one.registry.queue("q").ready == 2


def test_a_duplicate_is_stored_once_and_confirmed_with_the_original() -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    batch = make_batch(0, [b"a", b"b"])
    one.vhost.intake.publish(publisher, [batch], anybody, 0)
    one.vhost.intake.publish(publisher, [batch], anybody, 0)
    assert publisher.confirmed == 0
    one.commit()
    assert (publisher.confirmed, one.registry.queue("q").ready) == (2, 2)
    assert one.vhost.intake.counts.duplicates == 2


def test_a_batch_of_somebody_else() -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    for batch in (make_batch(0, [b"a"], publisher=b"x" * 16), make_batch(0, [b"a"], epoch=2)):
        with pytest.raises(Malformed):
            one.vhost.intake.publish(publisher, [make_batch(0, [b"a"]), batch], anybody, 0)
    assert publisher.next == 0


@pytest.mark.parametrize("firsts", [(0, 0), (0, 1), (0, 3, 1), (3, 1, 2)])
def test_a_message_twice_in_one_part(firsts: tuple[int, ...]) -> None:
    """Found: all batches were compared with what is known before any was noted: it was stored twice."""
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    batches = [make_batch(first, [b"a", b"b"]) for first in firsts]
    with pytest.raises(Malformed, match=r"sequence \d is in two batches"):
        one.vhost.intake.publish(publisher, batches, anybody, 0)
    one.commit()
    assert (one.registry.queue("q").ready, publisher.next) == (0, 0)


def test_batches_of_one_part_in_any_order() -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    batches = [make_batch(first, [b"a", b"b"]) for first in (4, 0, 2)]
    assert one.vhost.intake.publish(publisher, batches, anybody, 0) == []
    one.commit()
    assert (one.registry.queue("q").ready, publisher.next, publisher.holes) == (6, 6, [])


def test_memory_queues_are_held_and_released() -> None:
    """Found: their positions did not fit the index."""
    one = vhost(durability="memory")
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    end = one.store.end
    one.vhost.intake.publish(publisher, [make_batch(0, [b"a"])], anybody, 0)
    queue = one.registry.queue("q")
    assert (queue.ready, publisher.confirmed, one.store.end) == (1, 1, end)
    assert one.vhost.bodies.held_bytes
    queue.purge()
    one.flush()
    assert not one.vhost.bodies.held_bytes


def test_queues_in_memory_take_so_much_of_it_and_no_more() -> None:
    """Found: without a `max_length` they took all there is. Those on the disk go on, as does whoever consumes."""
    one = PlainVhost(held_bytes_max=3_000)
    for name, durability in (("q", "memory"), ("logged", "disk")):
        plain = to_plain(QueueDefinition(name=name, durability=durability))
        one.change(
            [changes.QUEUE, one.registry.new_lanes(read_definition(QueueDefinition, plain)), plain]
        )
        for exchange in ("amq.direct", "amq.fanout"):
            key = name if exchange == "amq.direct" else ""
            binding = BindingDefinition(exchange=exchange, destination=name, key=key)
            one.change([changes.BIND, to_plain(binding)])
    one.commit()
    publisher, bodies = one.publishers.open(PUBLISHER, 1, 0), one.vhost.bodies

    def publish(key: str, exchange: str = "amq.direct") -> list[tuple[str, int]]:
        batch = make_batch(publisher.next, [bytes(900)], key=key, properties=Properties(exchange))
        found = one.vhost.intake.publish(publisher, [batch], anybody, 0)
        one.commit()
        return [(refusal.code, refusal.count) for refusal in found]

    assert [publish("q") for _ in range(3)] == [[]] * 3
    assert publish("q") == [("MemoryFull", 1)]
    assert publish("", "amq.fanout") == [("MemoryFull", 1)], "in all of them or in none"
    assert publish("logged") == []
    assert 3_000 <= bodies.held_bytes < 3_000 + 900 + 500
    queue = one.registry.queue("q")
    assert (queue.ready, one.registry.queue("logged").ready) == (3, 1)
    assert one.vhost.intake.counts.refused == 2
    queue.purge()
    one.flush()
    assert publish("", "amq.fanout") == []
    assert (queue.ready, one.registry.queue("logged").ready) == (1, 2)


def test_a_queue_that_is_deleted_holds_nothing() -> None:
    """Found: messages on their way to it held their segments for ever."""
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    one.vhost.intake.publish(publisher, [make_batch(0, [b"a"])], anybody, 0)
    one.commit()
    one.vhost.intake.publish(publisher, [make_batch(1, [b"b"])], anybody, 0)
    one.change([changes.QUEUE_GONE, "q"])
    one.vhost.settling.flush(0)
    one.vhost.settling.committed(one.store.end - 1)
    assert one.store.needed(), "not before the deletion itself is durable"
    one.commit()
    assert not one.store.needed()
    assert publisher.confirmed == 2


def test_expired_on_arrival_and_mandatory() -> None:
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    lost = make_batch(0, [b"a"], key="x", properties=Properties(mandatory=True))
    (refused,) = one.vhost.intake.publish(publisher, [lost], anybody, 0)
    assert refused.code == "Unroutable"
    brief = make_batch(1, [b"b"], properties=Properties(ttl_us=5))
    one.vhost.intake.publish(publisher, [brief], anybody, 0)
    one.commit()
    assert one.registry.queue("q").expire(6) == 1


@pytest.mark.parametrize("field", ["cc", "bcc"])
def test_keys_that_are_too_long_are_refused_and_cost_nobody_else(field: str) -> None:
    """Found: only their number was limited, and the story of a few deaths was more than a consumer takes."""
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    # 255 bytes, and two more: a character is not a byte.
    keys: list[Any] = [{field: ("c" * 255,)}, {field: ("ü" * 128 + "c",)}]
    fits, long = (Properties(**one) for one in keys)
    batches = [
        make_batch(0, [b"a"], properties=long), make_batch(1, [b"b"], properties=fits)
    ]  # fmt: skip
    (refusal,) = one.vhost.intake.publish(publisher, batches, anybody, 0)
    assert (refusal.first, refusal.count) == (0, 1)
    error = rebuild_error(refusal.code, refusal.details)
    assert isinstance(error, InvalidDefinition)
    assert error.field == field
    one.commit()
    assert one.registry.queue("q").ready == 1


@pytest.mark.parametrize(
    ("key", "properties"),
    [
        ("q", Properties(cc=("c" * 1_000_000,))), ("q", Properties("e" * 60_000)),
        ("k" * 60_000, Properties(mandatory=True)),
    ],
)  # fmt: skip
def test_the_refusal_of_a_long_key_is_short(key: str, properties: Properties) -> None:
    """It waits in the memory of a broker until the publisher is told. Found for exchange and key: 10,000
    refusals with 60 KB each."""
    one = vhost()
    batch = make_batch(0, [b"a"], key=key, properties=properties)
    (refusal,) = one.vhost.intake.publish(one.publishers.open(PUBLISHER, 1, 0), [batch], anybody, 0)
    assert len(str(refusal)) < 2000


def test_a_log_with_keys_as_long_as_earlier_releases_took_them_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = vhost()
    batch = make_batch(0, [b"a"], properties=Properties(cc=("c" * 70_000,)))
    with monkeypatch.context() as earlier:
        earlier.setattr("durable.vhost.intake.check_published", lambda *_: None)
        assert (
            one.vhost.intake.publish(one.publishers.open(PUBLISHER, 1, 0), [batch], anybody, 0)
            == []
        )
    one.commit()
    assert one.restarted().registry.queue("q").ready == 1


def test_behind_a_refusal_even_what_nobody_wants_is_refused() -> None:
    """Found: it counted as dropped, and its publisher was told that it had been taken."""
    one = vhost()
    publisher = one.publishers.open(PUBLISHER, 1, 0, stops=True)
    batches = [make_batch(0, [b"a"], exchange="none"), make_batch(1, [b"b"], key="nobody's")]
    refusals = one.vhost.intake.publish(publisher, batches, anybody, 0)
    assert [each.first for each in refusals] == [0, 1]
    assert len({each.code for each in refusals}) == 1
    later = one.vhost.intake.publish(publisher, [make_batch(2, [b"c"], key="nobody's")], anybody, 0)
    assert [each.first for each in later] == [2]
    assert (one.vhost.intake.counts.dropped, publisher.holes) == (0, [(0, 3)])
