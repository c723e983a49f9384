"""Which batches of one part share a record, and that nobody can tell from what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from durable.definition_forms import read_definition, to_plain
from durable.definitions import BindingDefinition, QueueDefinition
from durable.log.record import Record
from durable.protocol.properties import Properties
from durable.queues.journal import REJECTED, DeadRange
from durable.vhost import changes
from durable.vhost.changes import Change
from durable.vhost.groups import (
    BATCHES_MAX,
    GroupStretch,
    batches_in,
    part_of,
    read_front,
    sequences_in,
)
from durable.vhost.plan import SPREAD_MAX
from durable.vhost.publishers import HOLES_MAX
from mesh.protocol.batch import Batch
from tests.vhosts import PUBLISHER, PlainVhost, anybody, make_batch


def vhost(*names: str, **settings: Any) -> PlainVhost:
    one = PlainVhost()
    for name in names:
        declare(one, name, **settings)
    one.commit()
    return one


def declare(one: PlainVhost, name: str, **settings: Any) -> None:
    plain = {**to_plain(QueueDefinition(name=name)), **settings}
    one.change(
        [changes.QUEUE, one.registry.new_lanes(read_definition(QueueDefinition, plain)), plain]
    )


def bound(name: str, exchange: str = "amq.fanout", key: str = "") -> Change:
    binding = BindingDefinition(exchange=exchange, destination=name, key=key)
    return [changes.BIND, to_plain(binding)]


def rejected(one: PlainVhost, count: int, start: int, end: int) -> DeadRange:
    """Of so many messages of "q" some, to be dead-lettered."""
    queue = one.registry.queue("q")
    (lane,) = queue.lanes
    lane.take_range(0, count)
    queue._dead_letter(lane, start, end, REJECTED)
    (dead,) = one.vhost.take_dead()
    return dead


def publish(one: PlainVhost, *batches: Batch) -> list[Record]:
    """The records of it."""
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    end = one.store.end
    one.vhost.intake.publish(publisher, batches, anybody, 7)
    one.commit()
    return [one.store.records[at] for at in range(end, one.store.end)]


def message(sequence: int, key: str = "q", size: int = 1, **properties: Any) -> Batch:
    return make_batch(sequence, [b"x" * size], key=key, properties=Properties(**properties))


def test_what_goes_the_same_way_shares_a_record() -> None:
    """Through an exchange, each under a key of its own."""
    one = vhost("q", "r")
    batches = [message(at, f"k{at}", exchange="amq.fanout") for at in range(5)]
    one.change(bound("q"), bound("r"))
    one.commit()
    (record,) = publish(one, *batches)
    assert record.header.grouped
    assert len(record.targets) == 2
    assert read_front(record.body)[:3] == (5, 5, 5)
    assert [one.registry.queue(name).ready for name in ("q", "r")] == [5, 5]


@pytest.mark.parametrize(
    "batches",
    [
        [message(0), message(1, "r")],
        [message(0), message(1, priority=2)],
        [message(0), message(1, ttl_us=5)],
        [message(0, ttl_us=6), message(1, ttl_us=5)],
        [message(0), message(1, size=70_000)],
        [message(0, size=70_000), message(1)],
        [message(0, size=10), message(1, size=75)],
        [message(0, size=1000), message(1, size=499)],
    ],
    ids=[
        "queue",
        "priority",
        "ttl",
        "other ttl",
        "large",
        "behind large",
        "larger",
        "smaller",
    ],
)
def test_what_is_unlike_gets_its_own(batches: list[Batch]) -> None:
    one = vhost("q", "r", max_priority=3)
    records = publish(one, *batches)
    assert [one.header.grouped for one in records] == [False, False]


def test_to_queues_in_turn_each_gets_its_group_and_all_are_one_stretch() -> None:
    one = vhost("q", "r")
    keys = "qrqqrrrq"
    records = publish(one, *[message(at, key) for at, key in enumerate(keys)])
    assert [one.header.spread for one in records] == [True, True]
    fronts = [read_front(one.body) for one in records]
    assert [front.stretch for front in fronts] == [GroupStretch(0, 8, 2)] * 2
    assert [front.number for front in fronts] == [0, 1]
    found = [sequences_in(one.body, front) for one, front in zip(records, fronts, strict=True)]
    assert found == [[(0, 1), (2, 4), (7, 8)], [(1, 2), (4, 7)]]
    assert [one.registry.queue(name).ready for name in "qr"] == [4, 4]
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    assert (publisher.next, publisher.holes) == (8, [])


def test_a_queue_that_gets_one_in_between_is_part_of_the_stretch() -> None:
    one = vhost("q", "r")
    records = publish(one, *[message(at, key) for at, key in enumerate("qqrq")])
    assert [read_front(one.body)[:2] for one in records] == [(3, 3), (1, 1)]
    assert [one.header.spread for one in records] == [True, True], "what is alone, too"
    assert {read_front(one.body).stretch for one in records} == {GroupStretch(0, 4, 2)}


@pytest.mark.parametrize(
    ("batches", "holes", "records"),
    [
        ([message(0), message(2)], [(1, 2)], 1),
        ([message(0), message(1, "nobody"), message(2)], [(1, 2)], 1),
        ([message(0), message(1, "r"), message(2), message(4, "r")], [(3, 4)], 2),
        ([message(0), message(2), message(4, "r")], [(1, 2), (3, 4)], 2),
    ],
    ids=["never given", "nobody wants it", "of both", "one alone"],
)
def test_a_stretch_with_holes_says_so(
    batches: list[Batch], holes: list[tuple[int, int]], records: int
) -> None:
    one = vhost("q", "r")
    written = publish(one, *batches)
    fronts = [read_front(one.body) for one in written]
    assert [front.stretch for front in fronts] == [GroupStretch(0, 0, records)] * records
    for there in (one, one.restarted()):
        publisher = there.publishers.open(PUBLISHER, 1, 0)
        assert (publisher.next, publisher.holes) == (batches[-1].next_sequence, holes)


def test_what_is_too_far_apart_shares_nothing() -> None:
    one = vhost("q")
    records = publish(one, message(0), message(1), message(2**32), message(2**32 + 2))
    assert [one.header.spread for one in records] == [False, True]
    assert [read_front(one.body).first for one in records] == [0, 2**32]
    assert read_front(records[1].body).stretch is None
    for there in (one, one.restarted()):
        publisher = there.publishers.open(PUBLISHER, 1, 0)
        assert publisher.holes == [(2, 2**32), (2**32 + 1, 2**32 + 2)]


@pytest.mark.parametrize("other", [(b"o" * 16, 1), (PUBLISHER, 2)], ids=["publisher", "epoch"])
@pytest.mark.parametrize("step", [1, 2], ids=["alike", "between each other"])
def test_dead_letters_of_two_are_no_stretch(other: tuple[bytes, int], step: int) -> None:
    """Nor do they share a record."""
    one = vhost("q", "r")
    both = [(PUBLISHER, 1), other]
    letters = [
        (make_batch(step * at + number * (step - 1), [b"x"], key=key, publisher=who, epoch=epoch),
         Properties())
        for number, (who, epoch) in enumerate(both)
        for at, key in enumerate("qrqr" if step == 1 else "qq")
    ]  # fmt: skip
    end = one.store.end
    one.vhost.intake.forward(letters, lambda _: [], 7)
    one.commit()
    fronts = [read_front(one.store.records[at].body) for at in range(end, one.store.end)]
    assert {(front.publisher, front.epoch) for front in fronts} == {*both}
    assert not any(front.stretch for front in fronts)
    again = one.restarted()
    known = again.publishers.open(*other, 0)
    assert (known.next, known.holes) == (4, [] if step == 1 else [(0, 1), (2, 3)])


@pytest.mark.parametrize("alone", ["q", "r"])
def test_what_a_lane_got_from_elsewhere_in_between_stays_before_what_follows(alone: str) -> None:
    """Both get 0, one of them 1, both 2: with 0 that would be before 1."""
    one = vhost("q", "r")
    one.change(bound("q"), bound("r"))
    one.commit()
    both = [message(at, exchange="amq.fanout") for at in (0, 2)]
    records = publish(one, both[0], message(1, alone), both[1])
    assert [one.header.grouped for one in records] == [False] * 3
    lane = one.registry.queue(alone).lanes[0]
    assert [run.position for run in lane.index.runs(0, 3)] == [one.position for one in records]


def test_what_comes_out_of_order_shares_nothing_with_what_is_later() -> None:
    one = vhost("q", "r")
    records = publish(one, message(4), message(5, "r"), message(0), message(1, "r"))
    assert [one.header.grouped for one in records] == [False] * 4
    assert one.publishers.open(PUBLISHER, 1, 0).holes == [(2, 4)]


def test_a_torn_append_leaves_no_more_holes_than_are_remembered() -> None:
    """Found: a batch that a headers exchange takes apart, message by message, to very many queues."""
    names = [f"q{number}" for number in range(30)]
    one = vhost(*names)
    count = 3 * HOLES_MAX
    written = publish(one, *[message(at, names[at % 30]) for at in range(count)])
    for lost in (1, len(written) // 2 + 7):
        again = one.restarted({record.position for record in written[lost:]})
        publisher = again.publishers.open(PUBLISHER, 1, 0)
        assert publisher.floor == 0
        assert 0 < len(publisher.holes) <= SPREAD_MAX


def test_a_group_has_an_end() -> None:
    one = vhost("q")
    records = publish(one, *[message(at) for at in range(BATCHES_MAX + 2)])
    assert [read_front(one.body).batches for one in records] == [BATCHES_MAX, 2]
    records = publish(one, *[message(1000 + at, size=20_000) for at in range(7)])
    assert [read_front(one.body).batches for one in records[:2]] == [3, 3]
    assert not records[2].header.grouped


def test_little_of_a_segment() -> None:
    """What does not fit at its end is left empty."""
    one = vhost("q")
    one.store.append_bytes_max = 16 * 500
    records = publish(one, *[message(at, size=100) for at in range(6)])
    assert max(one.header.body_bytes for one in records) < 600
    assert [one.header.grouped for one in records] == [True, True, True]


def test_nothing_is_shared_with_memory_nor_over_a_refusal() -> None:
    one = vhost("q", durability="memory")
    assert not publish(one, message(0), message(1))
    one = vhost("q", max_length=3, overflow="reject-publish")
    batches = [make_batch(0, [b"a", b"b"]), make_batch(2, [b"c", b"d"]), message(4)]
    (record,) = publish(one, *batches)
    assert read_front(record.body)[:2] == (2, 3), "the first of the second one fitted"
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    assert (publisher.next, publisher.holes) == (5, [(3, 5)])


def test_what_goes_to_memory_and_to_the_disk_shares_nothing() -> None:
    one = vhost("q")
    declare(one, "m", durability="memory")
    one.change(bound("q"), bound("m"))
    one.commit()
    records = publish(one, *[message(at, exchange="amq.fanout") for at in range(3)])
    assert [one.header.grouped for one in records] == [False] * 3
    assert [one.registry.queue(name).ready for name in ("q", "m")] == [3, 3]


def test_what_nobody_wants_between_two_is_not_taken_for_one_of_them() -> None:
    one = vhost("q")
    (record,) = publish(one, message(0), message(5, "nobody"), message(1))
    assert read_front(record.body)[:2] == (2, 2)
    assert one.registry.queue("q").ready == 2
    assert one.vhost.intake.counts.dropped == 1


def test_all_of_it_expires_as_each_would() -> None:
    one = vhost("q")
    publish(one, message(0, ttl_us=5), message(1, ttl_us=5))
    for queue in (one.registry.queue("q"), one.restarted(now_us=7).registry.queue("q")):
        assert (queue.may_expire, queue.ready) == (True, 2)
        assert queue.expire(11) == 0
        assert queue.expire(12) == 2


def test_after_a_restart_the_publisher_is_known_by_all_of_it() -> None:
    one = vhost("q")
    publish(one, message(3), message(4), message(5))
    publisher = one.restarted().publishers.open(PUBLISHER, 1, 0)
    assert (publisher.next, publisher.holes) == (6, [(0, 3)])


def test_a_part_of_it_dies_under_its_own_keys() -> None:
    one = vhost("graves")
    declare(one, "q", dead_letter_exchange="amq.fanout")
    one.change(bound("graves"))
    one.commit()
    (record,) = publish(one, *[message(at, "q") for at in range(6)])
    one.vhost.forward_dead(rejected(one, 6, 2, 5), batches_in(record.body, 0, 0, 6), 9)
    one.commit()
    assert one.registry.queue("graves").ready == 3
    last = one.store.records[max(at for at in one.store.records if one.store.records[at].targets)]
    letters = batches_in(last.body, 0, 0, 3)
    assert [batch.base_sequence for batch, _ in letters] == [2, 3, 4]
    assert all(part_of(batch, first, 0, 3).count == 1 for batch, first in letters)


def test_letters_that_nobody_wants_leave_nothing_ready_after_a_restart() -> None:
    """The settlement counts the records right before it, and there are fewer than letters."""
    one = vhost("graves")
    declare(one, "q", dead_letter_exchange="amq.direct")
    one.change(*[bound("graves", "amq.direct", key) for key in ("a", "c")])
    one.commit()
    keys = ("a", "b", "c")
    (record,) = publish(one, *[
        make_batch(at, [b"x"], key="q", properties=Properties(cc=(key,))) for at, key in enumerate(keys)
    ])  # fmt: skip
    dead = rejected(one, 3, 0, 3)
    (other,) = publish(one, message(9, "other"), message(10))
    one.vhost.forward_dead(dead, batches_in(record.body, 0, 0, 3), 9)
    one.commit()
    assert [one.registry.queue(name).ready for name in ("q", "graves")] == [1, 2]
    there = one.restarted(without=[other.position])
    assert there.registry.queue("q").ready == 0, "its message is gone, and the others are settled"
    assert there.registry.queue("graves").ready == 2
