"""A publisher and subscribers that make it wait."""

from __future__ import annotations

import pytest

from mesh.errors import LimitReached
from mesh.protocol.interest import BLOCK, DROP_NEWEST, DROP_OLDEST
from mesh.protocol.topics import BATCH_EXTRA_BYTES, PublisherStatistics, TopicStream

from .topic_bench import BATCH_BYTES, BODY, Bench, arrive


def test_a_blocking_subscriber_is_sent_what_it_has_credit_for() -> None:
    bench = Bench()
    link = bench.link(outbox_bytes=1 << 20)
    subscription = bench.subscribe(link, "a", BLOCK, window=2 * BATCH_BYTES + 20)
    stream = bench.publisher.stream("a")
    assert bench.publish("a", BODY)
    assert bench.publish("a", BODY)
    assert not bench.publish("a", BODY)
    assert not bench.publish("a")
    assert (stream.blocked, stream.limit_bytes, bench.publisher.waiting) == (True, -1, True)
    assert not bench.freed(subscription)
    subscription.credit_bytes += BATCH_BYTES
    assert not bench.publisher.retry_blocked(), "nobody has said so"
    assert bench.freed(subscription)
    assert (stream.blocked, bench.publisher.waiting) == (False, False)
    assert [first for _, first, _ in arrive(link)] == [0, 1, 2]
    assert bench.statistics().dropped == 0


def test_a_batch_larger_than_the_whole_credit_goes_when_all_of_it_is_back() -> None:
    bench = Bench()
    subscription = bench.subscribe(bench.link(), "a", BLOCK, window=50)
    assert bench.publish("a", BODY)
    assert subscription.credit_bytes == 50 - BATCH_BYTES
    assert not bench.publish("a", BODY)
    subscription.credit_bytes = 50
    assert bench.freed(subscription)


def test_a_blocking_subscriber_waits_for_room_in_the_outbox() -> None:
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, "a", BLOCK)
    for _ in range(3):
        assert bench.publish("a", BODY)
    assert not bench.publish("a", BODY)
    assert len(arrive(link)) == 3
    assert bench.freed(link)
    assert arrive(link) == [("a", 3, [BODY])]


def test_a_blocking_inbox_of_this_node_is_waited_for() -> None:
    bench = Bench()
    inbox = bench.inbox("a", BLOCK, limit=BATCH_BYTES + 50)
    assert bench.publish("a", BODY)
    assert not bench.publish("a", BODY)
    inbox.take()
    assert bench.freed(inbox)
    assert inbox.take().sequence == 1


def test_a_blocking_inbox_of_this_node_is_sent_batches_for_which_it_has_room() -> None:
    """Found: whatever its limit, a whole frame of messages was gathered for it."""
    bench = Bench()
    inbox = bench.inbox("a", BLOCK, limit=1600)
    bench.inbox("a", limit=10)
    stream = bench.publisher.stream("a")
    assert stream.limit_bytes == 1600 - BATCH_EXTRA_BYTES
    bench.publish("a", bytes(600))
    assert stream.limit_bytes == 1600 - (64 + 1 + 4 + 600) - BATCH_EXTRA_BYTES
    bench.publish("a", bytes(600))
    assert stream.limit_bytes == 1600 // 4 - BATCH_EXTRA_BYTES, "it waits for more than is left"
    inbox.take()
    bench.publisher.refresh(stream)
    assert stream.limit_bytes == 1600 - (64 + 1 + 4 + 600) - BATCH_EXTRA_BYTES


def test_streams_that_wait_for_one_subscriber_go_in_order_as_it_takes_them() -> None:
    bench = Bench()
    link = bench.link(outbox_bytes=1 << 20)
    subscription = bench.subscribe(link, ">", BLOCK, window=BATCH_BYTES)
    for topic in "abcd":
        bench.publish(topic, BODY)
    for topic in "bcd":
        subscription.credit_bytes = BATCH_BYTES
        assert bench.freed(subscription) == [bench.publisher.stream(topic)]
    assert [topic for topic, _, _ in arrive(link)] == ["a", "b", "c", "d"]
    assert not bench.publisher.waiting


def test_a_new_topic_waits_behind_those_that_wait_for_the_same_subscriber() -> None:
    """Found: one message of each of 20,000 topics was taken, 200 MB for a limit of 100 KB."""
    bench = Bench()
    stuck = bench.subscribe(bench.link(), "s.*", BLOCK, window=BATCH_BYTES + 2)
    bench.subscribe(bench.link(2), "*.free", BLOCK)
    publisher, size = bench.publisher, len(BODY)

    def opens(topic: str) -> bool:
        return publisher.make_room(publisher.stream(topic), size)

    assert bench.publish("s.1", BODY)
    assert opens("s.2"), "one waits for whoever is full"
    assert not bench.publish("s.2", BODY)
    assert not bench.publish("s.3", BODY)
    assert not opens("s.4")
    assert not opens("s.free")
    assert opens("t.free"), "who has room is not to wait for it"
    assert publisher.blocking_stream(publisher.stream("s.2"), size) is publisher.streams["s.2"]
    for topic in ("s.4", "s.free"):
        assert publisher.blocking_stream(publisher.stream(topic), size) is publisher.streams["s.3"]
    stuck.credit_bytes = stuck.window_bytes
    assert bench.freed(stuck) == [publisher.streams["s.2"]]
    assert not opens("s.4")
    stuck.credit_bytes = stuck.window_bytes
    assert bench.freed(stuck) == [publisher.streams["s.3"]]
    assert opens("s.4")


@pytest.mark.parametrize(("full", "room"), [("outbox", 3), ("inbox", 12)])
def test_ever_new_topics_wait_for_a_full_outbox_or_inbox_as_for_credit(
    full: str, room: int
) -> None:
    """Found: a message of each was taken, until there were `topics_max` that waited."""
    bench = Bench()
    if full == "outbox":
        bench.subscribe(bench.link(), "t.*", BLOCK)
    else:
        bench.inbox("t.*", BLOCK, limit=room * BATCH_BYTES + 100)
    publisher = bench.publisher
    refused = [f"t.{number}" for number in range(50)]
    for _ in range(2):  # Who was told to wait may try again.
        topics, refused = refused, []
        for topic in topics:
            if publisher.make_room(publisher.stream(topic), len(BODY)):
                bench.publish(topic, BODY)
            else:
                refused.append(topic)
    assert len(refused) == 50 - room - 1, "for some there was room, and one waits"
    assert sum(1 for one in publisher.streams.values() if one.payloads) == 1


def test_who_waits_behind_a_topic_that_waits_for_another_now_is_told() -> None:
    """Or one stuck subscriber would stop those of topics that it has nothing to do with."""
    bench = Bench()
    slow = bench.subscribe(bench.link(), ">", BLOCK, window=BATCH_BYTES)
    stuck = bench.subscribe(bench.link(2), "a", BLOCK, window=BATCH_BYTES)
    publisher = bench.publisher
    assert bench.publish("a", BODY)
    assert not bench.publish("a", BODY)
    a, b = publisher.streams["a"], publisher.stream("b")
    assert publisher.blocking_stream(b, len(BODY)) is a
    slow.credit_bytes, stuck.credit_bytes = slow.window_bytes, 0
    assert bench.freed(slow) == [a]
    assert a.blocked
    assert publisher.blocking_stream(b, len(BODY)) is None


def test_of_many_that_wait_only_the_first_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: 20,000 topics of a subscriber that stood still, and each request took 0.9 s more."""
    bench = Bench(topics_max=2000)
    subscription = bench.subscribe(bench.link(outbox_bytes=1 << 20), ">", BLOCK, window=BATCH_BYTES)
    for n in range(1000):
        bench.publish(f"t{n}", BODY)
    tried: list[TopicStream] = []
    flush = bench.publisher.flush

    def counted(stream: TopicStream) -> bool:
        tried.append(stream)
        return flush(stream)

    monkeypatch.setattr(bench.publisher, "flush", counted)
    assert not bench.publisher.retry_blocked()
    assert not bench.freed(subscription)
    assert len(tried) == 1
    bench.publisher.flush(bench.publisher.stream("t0"))
    assert bench.publisher.waiting


def test_topics_that_are_blocked_are_not_looked_at_to_make_room_for_another() -> None:
    """Found: with 99,000 of them each new topic took 16 ms."""
    bench = Bench(topics_max=100)
    subscription = bench.subscribe(bench.link(outbox_bytes=1 << 20), "b.*", BLOCK, BATCH_BYTES)
    bench.inbox("idle.*")
    assert bench.publish("b.first", BODY)
    for n in range(98):
        assert not bench.publish(f"b.{n}", BODY)
    for n in range(50):
        bench.publish(f"idle.{n}", b"x")
        assert len(bench.publisher._evictable) == 2
    assert list(bench.publisher.streams)[-2:] == ["idle.48", "idle.49"]
    assert not bench.publish("b.last", BODY)
    assert not bench.publish("b.more", BODY)
    with pytest.raises(LimitReached, match="topics_max"):
        bench.publish("b.too_many", BODY)
    bench.interest.remove(("b", "*"), subscription)
    assert len(bench.freed(subscription)) == 100
    assert bench.publish("b.again", BODY)
    assert len(bench.publisher._evictable) == 100


def test_the_slowest_of_several_blocks_all() -> None:
    bench = Bench()
    slow, fast = bench.link(1, 1 << 20), bench.link(2, 1 << 20)
    bench.subscribe(slow, "a", BLOCK, window=BATCH_BYTES + 20)
    bench.subscribe(fast, "a")
    assert bench.publish("a", BODY)
    assert not bench.publish("a", BODY)
    assert len(arrive(fast)) == 1


def test_one_blocking_subscription_makes_the_link_block() -> None:
    bench = Bench()
    link = bench.link()
    bench.subscribe(link, "a", DROP_OLDEST)
    bench.subscribe(link, ">", BLOCK)
    bench.subscribe(link, "*", DROP_NEWEST)
    assert [bench.publish("a", BODY) for _ in range(4)] == [True, True, True, False]
    assert len(arrive(link)) == 3


def test_what_was_blocked_by_somebody_who_left_is_wanted_by_nobody() -> None:
    bench = Bench()
    subscription = bench.subscribe(bench.link(), "a", BLOCK, window=50)
    bench.publish("a", BODY)
    assert not bench.publish("a", BODY, BODY)
    bench.interest.remove(("a",), subscription)
    assert bench.freed(subscription)
    assert bench.statistics() == PublisherStatistics(1, 1, 2, 0, 1)


def test_little_credit_means_small_batches() -> None:
    bench = Bench()
    subscription = bench.subscribe(bench.link(), "a", BLOCK, window=1 << 20)
    stream = bench.publisher.stream("a")
    plenty = stream.limit_bytes
    subscription.credit_bytes = 1000
    bench.publisher.refresh(stream)
    assert 0 < stream.limit_bytes < 1000 < plenty < 2048
    subscription.credit_bytes = -5
    bench.publisher.refresh(stream)
    assert stream.limit_bytes == 1
