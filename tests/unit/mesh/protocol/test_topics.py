from __future__ import annotations

import pytest

from mesh.config import AT_MOST, HEADERS_BYTES_MAX
from mesh.errors import InvalidName, LimitReached, NodeClosed
from mesh.names import TOPIC_BYTES_MAX
from mesh.protocol.batch import LOST, Batch
from mesh.protocol.frame import Kind
from mesh.protocol.inbox import Inbox
from mesh.protocol.interest import BLOCK, DROP_NEWEST, DROP_OLDEST
from mesh.protocol.link import RECORD_EXTRA_BYTES
from mesh.protocol.losses import STREAMS_MAX
from mesh.protocol.outbox import REQUESTS
from mesh.protocol.topics import PublisherStatistics
from tests.machines import ME, make_link, take_records

from .topic_bench import BATCH_BYTES, BODY, Bench, arrive


def test_one_batch_goes_to_every_link_and_inbox_that_wants_it() -> None:
    bench = Bench()
    one, other, third = bench.link(1), bench.link(2), bench.link(3)
    bench.subscribe(one, "a.>")
    bench.subscribe(other, "*.b")
    bench.subscribe(third, "b")
    inbox = bench.inbox("a.b")
    assert bench.publish("a.b", b"x", b"y")
    assert arrive(one) == arrive(other) == [("a.b", 0, [b"x", b"y"])]
    assert arrive(third) == []
    assert inbox.take().payloads == [b"x", b"y"]
    assert bench.to_flush == [one, other]
    assert bench.statistics() == PublisherStatistics(2, 1, 0, 0, 1)


def test_batches_say_who_when_and_what_number() -> None:
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, "a")
    bench.publish("a", b"x", b"y")
    bench.publish("a", b"z")
    (_, _, first), (_, _, second) = take_records(link)
    batch = Batch(second)
    assert (batch.publisher, batch.epoch, batch.time_us) == (ME, 100, 7)
    assert (Batch(first).base_sequence, batch.base_sequence) == (0, 2)


def test_headers_travel_with_their_messages() -> None:
    bench = Bench()
    inbox = bench.inbox("a")
    stream = bench.publisher.stream("a")
    stream.headers = [b"", b"\x80"]
    bench.publish("a", b"x", b"y")
    assert inbox.take().headers == [b"", b"\x80"]
    bench.publish("a", b"z")
    assert inbox.take().headers is None


def test_two_subscriptions_of_one_link_get_one_copy() -> None:
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, "a")
    bench.subscribe(link, ">")
    bench.publish("a", b"x")
    assert arrive(link) == [("a", 0, [b"x"])]


def test_what_nobody_wants_is_counted_and_takes_no_number() -> None:
    bench = Bench()
    assert bench.publish("a", b"x", b"y")
    stream = bench.publisher.stream("a")
    assert bench.publisher.make_room(stream, 1000)
    assert not bench.publisher.append(stream, bytes(1000), None)
    assert bench.statistics() == PublisherStatistics(0, 0, 3, 0, 1)
    inbox = bench.inbox("a")
    bench.publish("a", b"z")
    assert inbox.take().sequence == 0


def test_interest_that_comes_and_goes_is_noticed() -> None:
    bench = Bench()
    stream = bench.publisher.stream("a")
    assert (stream.limit_bytes, stream.has_subscribers) == (-1, False)
    inbox = bench.inbox("a")
    bench.publisher.refresh(stream)
    assert stream.limit_bytes > 1000
    bench.interest.remove(("a",), inbox)
    bench.publish("a", b"x")
    assert (stream.limit_bytes, bool(inbox)) == (-1, False)


def test_flushing_nothing_sends_nothing() -> None:
    bench = Bench()
    bench.inbox("a")
    assert bench.publish("a")
    assert bench.statistics().batches == 0


def test_a_message_larger_than_a_frame_travels_in_pieces() -> None:
    bench = Bench()
    link = bench.link(outbox_bytes=1 << 20)
    bench.subscribe(link, "a")
    bench.publish("a", bytes(5000))
    assert arrive(link) == [("a", 0, [bytes(5000)])]


def test_the_largest_payload_and_headers_the_settings_allow_are_not_lost() -> None:
    """Found: headers had no bound, and beside a large payload made a record that no peer takes."""
    topic, headers = "t" * TOPIC_BYTES_MAX, bytes(HEADERS_BYTES_MAX)
    bench = Bench()
    link = make_link(record_bytes_max=1000 + RECORD_EXTRA_BYTES, outbox_bytes=1 << 20)
    bench.subscribe(link, topic, BLOCK)
    stream = bench.publisher.stream(topic)
    bench.publisher.append(stream, bytes(1000), headers)
    assert bench.publisher.flush(stream)
    assert bench.statistics().dropped == 0
    assert AT_MOST["payload_bytes_max"] + RECORD_EXTRA_BYTES < 1 << 32, "a batch says its length"


# Streams


def test_a_bad_topic_is_refused() -> None:
    with pytest.raises(InvalidName):
        Bench().publisher.stream("a.*")


def test_an_idle_topic_makes_room_and_starts_a_new_epoch_when_it_is_back() -> None:
    bench = Bench(topics_max=2)
    inbox = bench.inbox(">")
    for topic in ("a", "b", "c", "a"):
        bench.publish(topic, b"x")
    epochs = [(one.topic, one.batch.epoch, one.sequence) for one in (inbox.take() for _ in "abca")]
    assert epochs == [("a", 100, 0), ("b", 101, 0), ("c", 102, 0), ("a", 103, 0)]
    assert list(bench.publisher.streams) == ["c", "a"]


def test_of_a_node_that_leaves_nothing_more_is_published_and_what_was_leaves() -> None:
    """Found: on a topic in use it was, while the node drained, and after it had left."""
    bench = Bench()
    inbox = bench.inbox("a")
    stream = bench.publisher.stream("a")
    bench.publisher.append(stream, b"x", None)
    bench.publisher.drain()
    assert stream.limit_bytes == -1
    assert bench.publisher.flush(stream)
    assert inbox.take().payloads == [b"x"]
    assert stream.limit_bytes == -1
    for topic in ("a", "b"):
        with pytest.raises(NodeClosed):
            bench.publisher.stream(topic)


def test_the_topic_that_is_idle_longest_makes_room() -> None:
    bench = Bench(topics_max=2)
    bench.subscribe(bench.link(), ">")
    bench.publish("t.first", b"1")
    bench.publish("t.second", b"1")
    bench.publish("t.first", b"2")
    bench.publish("t.third", b"1")
    assert list(bench.publisher.streams) == ["t.first", "t.third"]


def test_topics_with_messages_waiting_are_not_given_up() -> None:
    bench = Bench(topics_max=2)
    bench.inbox(">", BLOCK, 100)
    for topic in ("a", "b"):
        bench.publisher.stream(topic).payloads.append(b"x")
    with pytest.raises(LimitReached, match="topics_max is 2"):
        bench.publisher.stream("c")


def test_a_batch_is_one_that_every_subscriber_takes() -> None:
    """Found: batches were packed for us, and a peer that takes less lost them whole, small as
    their messages were; with `block` their credit was gone as well."""
    bench = Bench()
    small = make_link(bytes([1]) * 16, record_bytes_max=RECORD_EXTRA_BYTES + 500)
    subscription = bench.subscribe(small, "a", BLOCK)
    bench.subscribe(bench.link(2, 1 << 20), "a")
    stream = bench.publisher.stream("a")
    assert stream.limit_bytes == 500
    for n in range(20):
        assert bench.publisher.make_room(stream, 100)
        bench.publisher.append(stream, b"%0100d" % n, None)
    bench.publisher.flush(stream)
    assert (
        sum(len(payloads) for _, _, payloads in arrive(small) if isinstance(payloads, list)) == 20
    )
    credit_bytes = subscription.credit_bytes
    for size in (501, RECORD_EXTRA_BYTES + 501):
        bench.publish("a", bytes(size))
    assert bench.told(small) == [("a", 20, 2)]
    assert subscription.credit_bytes == credit_bytes, "what is not sent costs nothing"
    bench.publish("a", bytes(500))
    assert arrive(small) == [("a", 22, [bytes(500)])]


def test_what_had_gathered_when_a_peer_that_takes_less_subscribed_is_lost_for_it() -> None:
    bench = Bench()
    bench.subscribe(bench.link(2, 1 << 20), "a")
    stream = bench.publisher.stream("a")
    for size in (10, 501):
        assert bench.publisher.make_room(stream, size)
        bench.publisher.append(stream, bytes(size), None)
    small = make_link(bytes([1]) * 16, record_bytes_max=RECORD_EXTRA_BYTES + 500)
    bench.subscribe(small, "a")
    bench.publisher.flush(stream)
    assert bench.told(small) == [("a", 0, 2)]


# A link that cannot keep up


def test_drop_oldest_makes_room() -> None:
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, "*")
    for _ in range(5):
        bench.publish("a", BODY)
    assert bench.told(link) == [("a", 0, 2)]
    assert arrive(link) == [("a", 2, [BODY]), ("a", 3, [BODY]), ("a", 4, [BODY])]
    assert bench.statistics().dropped == 2


def test_drop_newest_keeps_what_waits() -> None:
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, "a", DROP_NEWEST)
    for _ in range(5):
        bench.publish("a", BODY)
    assert bench.told(link) == [("a", 3, 2)]
    assert arrive(link) == [("a", 0, [BODY]), ("a", 1, [BODY]), ("a", 2, [BODY])]
    bench.publish("a", BODY)
    assert bench.told(link) == []
    assert arrive(link) == [("a", 5, [BODY])]


def test_losses_are_told_once_for_each_topic() -> None:
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, ">", DROP_NEWEST)
    for topic in ("a", "b", "c", "a", "b", "b"):
        bench.publish(topic, BODY)
    assert sorted(bench.told(link)) == [("a", 1, 1), ("b", 1, 2)]
    assert bench.told(link) == []


def test_losses_of_a_topic_that_was_evicted_in_between_are_told_in_their_order() -> None:
    """Found: the last epoch's came first, and whoever had heard of it ignored those before it."""
    bench = Bench(topics_max=2)
    link = bench.link()
    bench.subscribe(link, ">", DROP_NEWEST)
    inbox = Inbox(1, (">",), DROP_NEWEST, 1 << 20, lambda: None)

    def deliver() -> None:
        bench.publisher.losses.report(link)
        for _, _, body in take_records(link):
            inbox.push(Batch(body), link)

    bench.publish("a", BODY)
    deliver()
    for topics in ("a" * (3 + 7), "bc", "a" * 5):  # Three have room. `a` is evicted for `c`.
        for topic in topics:
            bench.publish(topic, BODY)
    deliver()
    bench.publish("a", BODY)
    deliver()
    lost = {"a": 0, "b": 0, "c": 0}
    while inbox:
        delivery = inbox.take()
        lost[delivery.topic] += delivery.lost
    assert lost["a"] == 7 + 5


def test_more_losses_than_a_note_can_name() -> None:
    """Found: 2^32 drops for one subscriber that stood still, and its publisher's node crashed."""
    bench = Bench()
    link = bench.link()
    inbox = bench.inbox("a")
    stream = bench.publisher.stream("a")
    for _ in range(1 << 12):
        bench.publisher.losses.add(link, stream, stream.sequence, 1 << 20)
        stream.sequence += 1 << 20
    assert bench.publisher.losses.by_link[link][stream].count == 1 << 32
    bench.publisher.losses.report(link)
    (note,) = (Batch(body) for _, _, body in take_records(link))
    assert (note.kind, note.base_sequence, note.count) == (LOST, 0, (1 << 32) - 1)
    inbox.push(note, link)
    bench.publish("a", b"x")
    assert inbox.take().lost == 1 << 32, "the next message tells them all"


def test_losses_that_could_not_be_told_take_little_memory() -> None:
    """Found: one subscriber that stood still, 20 s of new topics, 340 MiB of notes about them."""
    bench = Bench(topics_max=10_000)
    link = bench.link()
    bench.subscribe(link, ">")
    for n in range(2 * STREAMS_MAX):
        bench.publish(f"t{n}", BODY)
    assert link.outbox.size_bytes <= link.outbox.limit_bytes + BATCH_BYTES
    assert len(bench.publisher.losses.by_link[link]) == STREAMS_MAX
    told = bench.told(link)
    assert len(told) == STREAMS_MAX
    assert (f"t{2 * STREAMS_MAX - 4}", 0, 1) in told, "the latest are told"


def test_other_traffic_is_not_dropped_for_topics() -> None:
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, "a")
    link.outbox.push(REQUESTS, Kind.REPLY, 1, bytes(600))
    bench.publish("a", BODY)
    link.outbox.take(1 << 20)
    assert bench.told(link) == [("a", 0, 1)]
    assert arrive(link) == []


@pytest.mark.parametrize("kept", [BLOCK, DROP_NEWEST])
def test_one_subscription_never_drops_what_another_one_keeps(kept: str) -> None:
    """Found: drop_oldest of one topic took the batches of a subscriber that blocks, for good."""
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, "kept", kept)
    bench.subscribe(link, "a", DROP_OLDEST)
    small = BODY[:-3]  # The topic is longer by three.
    for _ in range(3):
        assert bench.publish("kept", small)
    bench.publish("a", BODY)
    assert arrive(link) == [
        ("kept", 0, [small]), ("kept", 1, [small]), ("kept", 2, [small]),
    ]  # fmt: skip
    assert bench.told(link) == [("a", 0, 1)]


@pytest.mark.parametrize("policy", [DROP_OLDEST, DROP_NEWEST])
def test_a_message_larger_than_the_outbox_goes_when_it_is_alone(policy: str) -> None:
    """Found: the largest payload is as large as the default outbox, and never left."""
    bench = Bench()
    link = bench.link(outbox_bytes=1000)
    bench.subscribe(link, "a", policy)
    bench.publish("a", bytes(1000))
    bench.publish("a", bytes(1001))
    expected = {
        DROP_OLDEST: [("a", 1, [bytes(1001)])],
        DROP_NEWEST: [("a", 0, [bytes(1000)])],
    }
    assert arrive(link) == expected[policy]


def test_what_was_noted_for_a_lost_link_is_forgotten() -> None:
    bench = Bench()
    link = bench.link()
    subscription = bench.subscribe(link, "a")
    for _ in range(5):
        bench.publish("a", BODY)
    bench.interest.remove(("a",), subscription)
    bench.publisher.forget(link)
    fresh = bench.link()
    bench.subscribe(fresh, "a")
    bench.publish("a", BODY)
    assert arrive(fresh) == [("a", 5, [BODY])]


def test_the_more_topics_gather_the_less_each_may() -> None:
    """Found: each of them gathered a frame's worth, a quarter of a gigabyte of a thousand topics."""
    bench = Bench(gathered_bytes_max=3000)
    bench.inbox(">")
    streams = [bench.publisher.stream(topic) for topic in "abc"]
    whole = streams[0].limit_bytes
    for stream in streams:
        assert bench.publisher.append(stream, b"x", None)
    assert [stream.limit_bytes for stream in streams] == [whole, 1500, 1000]
    bench.publisher.flush_gathered()
    assert [stream.limit_bytes for stream in streams] == [whole] * 3


def test_topics_that_begin_with_much_are_enough_before_any_is_full() -> None:
    bench = Bench(gathered_bytes_max=3000)
    bench.inbox(">")
    enough: list[bool] = []
    for topic in "abc":
        bench.publisher.append(bench.publisher.stream(topic), bytes(1000), None)
        enough.append(bench.publisher.flush_due)
    assert enough == [False, False, True]
    bench.publisher.flush_gathered()
    assert not bench.publisher.flush_due
