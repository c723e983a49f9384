from __future__ import annotations

from math import inf

import pytest

from mesh.errors import PeerLost, RemoteProtocolError, ServiceError
from mesh.protocol import patterns as module
from mesh.protocol.batch import NUMBERS_END, batch_pieces, encode_lost
from mesh.protocol.dispatch import Endpoint
from mesh.protocol.frame import Kind
from mesh.protocol.interest import BLOCK, DROP_OLDEST, RemoteSubscription
from mesh.protocol.patterns import BroadcastCounters
from mesh.protocol.request import PREFIX, REPLY_PREFIX
from mesh.protocol.subscriptions import CREDIT_DELAY_S
from mesh.protocol.values import decode_values, encode_values
from tests.machines import ME, OTHER, make_batch, make_link, take_records

from .patterns_bench import NOW_S, Bench, call, refused

# Requests


def test_a_request_reaches_its_handler_and_the_answer_the_caller() -> None:
    bench = Bench()
    bench.record(Kind.REQUEST, 5, call("depot", "get", b"payload", time_left_ms=1500))
    (job,) = bench.started
    assert (job.ident, job.endpoint, job.payload, job.deadline_s) == (5, "get", b"payload", 11.5)
    bench.dispatcher.replied(job, b"reply", NOW_S)
    ((kind, ident, body),) = bench.sent()
    assert (kind, ident, body[REPLY_PREFIX.size :]) == (Kind.REPLY, 5, b"reply")


def test_a_request_without_a_deadline() -> None:
    bench = Bench()
    bench.record(Kind.REQUEST, 5, call("depot", "get"))
    assert bench.started[0].deadline_s is None


def test_a_cluster_this_node_does_not_serve() -> None:
    bench, caller = Bench(), Bench()
    pending = caller.ask("shop")
    caller.sent()
    bench.record(Kind.REQUEST, pending.ident, call("other", "get"))
    ((kind, ident, body),) = bench.sent()
    assert (kind, ident) == (Kind.ERROR, pending.ident)
    caller.record(kind, ident, body)
    assert isinstance(pending.outcome, ServiceError)
    assert pending.outcome.code == "no_such_endpoint"


def test_answers_reach_the_requests() -> None:
    bench = Bench()
    replied, failed, busy = (bench.ask("shop") for _ in range(3))
    bench.sent()
    bench.record(Kind.REPLY, 1, REPLY_PREFIX.pack(5, 6) + b"reply")
    bench.record(Kind.ERROR, 2, REPLY_PREFIX.pack(5, 6) + encode_values("no", "because"))
    bench.record(Kind.BUSY, 3, encode_values(1, 2, True))
    assert replied.outcome == b"reply"
    assert str(failed.outcome) == "no: because"
    assert "busy" in str(busy.outcome)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "request of 0 bytes"),
        (bytes(6), "request of 6 bytes"),
        (PREFIX.pack(0, 0, 3, 3) + b"abcde", "do not fit"),
        (PREFIX.pack(0, 0, 255, 255), "do not fit"),
        (PREFIX.pack(0, 0, 1, 1) + b"a\xff", "not UTF-8"),
        (PREFIX.pack(0, 0, 1, 1) + b"\xffa", "not UTF-8"),
    ],
)
@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.BROADCAST])
def test_malformed_requests_are_refused(kind: int, body: bytes, says: str) -> None:
    refused(Bench(), kind, 1, body, says)


def test_cancelling_reaches_the_handler_or_the_request_that_is_yet_to_come() -> None:
    bench = Bench()
    bench.record(Kind.REQUEST, 1, call("depot", "get"))
    bench.record(Kind.CANCEL, 1, b"")
    assert bench.started[0].cancelled
    bench.record(Kind.CANCEL, 2, b"")
    bench.record(Kind.REQUEST, 2, call("depot", "get"))
    assert bench.dispatcher.load == 1, "the second one was never taken"
    bench.record(Kind.REQUEST, 2, call("depot", "get"))
    assert bench.dispatcher.load == 2, "it was cancelled once"
    assert bench.sent() == []


def test_cancellations_of_another_link_do_not_count() -> None:
    bench = Bench()
    bench.record(Kind.CANCEL, 2, b"", make_link())
    bench.record(Kind.REQUEST, 2, call("depot", "get"))
    assert len(bench.started) == 1


def test_cancellations_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANCELLED_MAX", 3)
    bench = Bench()
    for ident in range(10):
        bench.record(Kind.CANCEL, ident, b"")
    for ident in (9, 8, 7, 6):
        bench.record(Kind.REQUEST, ident, call("depot", "get"))
    assert [job.ident for job in bench.started] == [6], "the last three are remembered"


# Broadcasts


def test_a_broadcast_goes_to_all_and_is_counted() -> None:
    bench = Bench()
    assert bench.patterns.broadcast("shop", "flush", b"now") == 1
    assert bench.patterns.broadcast("nobody", "flush", b"now") == 0
    ((kind, _, body),) = bench.sent()
    assert kind == Kind.BROADCAST
    other = Bench()
    other.record(kind, 1, call("depot", "flush", b"now"))
    assert (other.started[0].payload, other.started[0].reply) == (b"now", False)
    other.record(kind, 1, body)
    assert bench.patterns.broadcasts == BroadcastCounters(sent=1)
    assert other.patterns.broadcasts == BroadcastCounters(received=2, unwanted=1)


def test_a_member_that_cannot_keep_up_is_skipped() -> None:
    bench = Bench()
    room = bench.link.outbox.room_bytes
    assert bench.patterns.broadcast("shop", "flush", bytes(room + 1)) == 1, "alone, it goes"
    assert bench.patterns.broadcast("shop", "flush", b"") == 0
    assert bench.patterns.broadcasts == BroadcastCounters(sent=1, skipped=1)


# Topics, as their subscriber


def test_batches_go_to_all_who_match_and_only_them() -> None:
    bench = Bench()
    inboxes = [bench.subscribe(pattern) for pattern in ("a.*", "a.>", "b")]
    bench.record(Kind.BATCH, 1, make_batch(0, [b"x"], topic="a.b").raw())
    assert [bool(inbox) for inbox in inboxes] == [True, True, False]
    assert bench.patterns.subscriptions.take(inboxes[0], NOW_S).payloads == [b"x"]
    bench.patterns.subscriptions.unsubscribe(inboxes[1])
    bench.patterns.subscriptions.unsubscribe(inboxes[1])
    late = bench.subscribe("a.b")
    bench.record(Kind.BATCH, 1, make_batch(1, [b"y"], topic="a.b").raw())
    assert len(inboxes[1].take()) == 1
    assert not inboxes[1]
    assert (bool(inboxes[0]), bool(late)) == (True, True)


def test_batches_nobody_wants_any_more_are_counted() -> None:
    bench = Bench()
    bench.record(Kind.BATCH, 1, make_batch(0, [b"x"]).raw())
    assert bench.patterns.subscriptions.unwanted_batches == 1


def test_a_node_speaks_for_itself_only() -> None:
    batch = make_batch(0, [b"x"], publisher=ME)
    refused(Bench(), Kind.BATCH, 1, batch.raw(), "another publisher")


@pytest.mark.parametrize("topic", ["", "a..b", "*", "a.>", "a b", "a\n", "\x1b[31m", "x" * 300])
def test_a_batch_of_a_topic_that_cannot_be_costs_its_link(topic: str) -> None:
    """Found: it was kept, stored and shown, up to 64 KB of it for each batch."""
    bench = Bench()
    bench.subscribe(">")
    said = "batch with an invalid topic: topic"
    refused(bench, Kind.BATCH, 1, make_batch(0, [b"x"], topic=topic).raw(), said)
    assert not bench.patterns.subscriptions._matches


@pytest.mark.parametrize(
    ("epoch", "base", "count"),
    [(1, NUMBERS_END - 1, 2), (1, 2**64 - 1, 1), (NUMBERS_END, 0, 1)],
)
def test_a_batch_of_numbers_that_nobody_reaches_costs_its_link(
    epoch: int, base: int, count: int
) -> None:
    """Found: a subscription that was full cut it, could not pack what was left, and the node ended."""
    bench = Bench()
    inbox = bench.subscribe("t", limit=100)
    one = make_batch(base, [b"x"] * count, epoch=epoch).raw()
    lost = encode_lost(OTHER, epoch, base, 0, b"t", count)
    for body in (one, lost):
        refused(bench, Kind.BATCH, 1, body, f"epoch {epoch}, sequence {base}")
    assert not inbox
    bench.record(Kind.BATCH, 1, make_batch(NUMBERS_END - 1, [b"x"]).raw())
    assert inbox.take().sequence == NUMBERS_END - 1


def test_a_batch_that_lies_costs_its_link_and_not_the_subscriber() -> None:
    """Found: its lengths were looked at when the subscriber read it, who then got the error."""
    bench = Bench()
    inbox = bench.subscribe("t")
    raw = bytearray(make_batch(0, [b"abc", b"def"]).raw())
    raw[65] = 2
    refused(bench, Kind.BATCH, 1, bytes(raw), "do not add up")
    assert not inbox


def test_a_message_over_the_limit_costs_its_link_and_one_of_just_that_does_not() -> None:
    """Found: whoever ignored it, or knew nothing of it, was taken for up to 64 KiB more."""
    bench = Bench()
    inbox = bench.subscribe("t")
    most = bench.link.payload_bytes_max
    bench.record(Kind.BATCH, 1, make_batch(0, [bytes(most), b"x"]).raw())
    assert len(inbox.take()) == 2
    over = make_batch(2, [b"x", bytes(most + 1)]).raw()
    refused(bench, Kind.BATCH, 1, over, f"payload of {most + 1} bytes, the limit is {most}")
    assert not inbox


def test_topics_remembered_are_bounded() -> None:
    bench = Bench(topics_max=3)
    bench.subscribe("a9")
    for n in range(10):
        bench.record(Kind.BATCH, 1, make_batch(0, [b"x"], topic=f"a{n}").raw())
    assert len(bench.patterns.subscriptions._matches) <= 3
    assert bench.patterns.subscriptions.unwanted_batches == 9


def test_a_small_batch_does_not_keep_its_frame_alive() -> None:
    """Found: an inbox of 10 KiB could pin every large frame of which it wanted one small batch."""
    bench = Bench()
    inbox = bench.subscribe("t")
    raw = make_batch(3, [b"x"]).raw()
    for filler in (0, 300, 100_000):
        frame = memoryview(bytes(filler) + raw + bytes(filler))
        record = (int(Kind.BATCH), 1, frame, filler, filler + len(raw))
        bench.patterns.on_record(bench.link, record, NOW_S)
        delivery = bench.patterns.subscriptions.take(inbox, NOW_S)
        assert (delivery.payloads, delivery.sequence) == ([b"x"], 3)
        assert delivery.batch.raw() == raw
        assert len(delivery.batch.buffer) <= 4 * len(raw) or filler == 300
        assert len(delivery.batch.buffer) < 100_000


def test_subscriptions_are_announced_with_policy_and_window() -> None:
    bench = Bench()
    inbox = bench.subscribe("a.>", BLOCK, 1000)
    bench.patterns.subscriptions.send_subscribe(bench.link, inbox)
    assert bench.sent() == [(Kind.SUBSCRIBE, inbox.ident, encode_values("a.>", 2, 1000))]
    other = bench.subscribe("b")
    bench.patterns.link_up(bench.link, ())
    assert [ident for _, ident, _ in bench.sent()] == [inbox.ident, other.ident]


def test_credit_comes_back_by_the_quarter() -> None:
    bench = Bench()
    batch = make_batch(0, [b"x" * 31])
    inbox = bench.subscribe("t", BLOCK, 4 * batch.size_bytes + 4)
    for first in range(4):
        bench.record(Kind.BATCH, 1, make_batch(first, [b"x" * 31]).raw())
    returned = []
    while inbox:
        bench.patterns.subscriptions.take(inbox, NOW_S)
        returned.append([decode_values(body, "", (int,)) for _, _, body in bench.sent()])
    assert returned == [[], [[2 * batch.size_bytes]], [], [[2 * batch.size_bytes]]]


def test_little_credit_comes_back_a_little_later_all_of_it_at_once() -> None:
    """Found: each message read alone was answered with a frame of credit, as large as itself."""
    bench = Bench()
    batch = make_batch(0, [b"x"])
    inboxes = [bench.subscribe("t", BLOCK, 100 * batch.size_bytes) for _ in range(2)]
    for first in range(3):
        bench.record(Kind.BATCH, 1, make_batch(first, [b"x"]).raw())
        for inbox in inboxes:
            bench.patterns.subscriptions.take(inbox, NOW_S)
    assert bench.sent() == []
    assert bench.timers.due_s() == NOW_S + CREDIT_DELAY_S
    bench.timers.run(NOW_S + CREDIT_DELAY_S)
    owed = encode_values(3 * batch.size_bytes)
    assert bench.sent() == [(Kind.CREDIT, inbox.ident, owed) for inbox in inboxes]
    assert bench.timers.due_s() == inf


def test_credit_nobody_waits_for_any_more_is_not_sent() -> None:
    bench = Bench()
    inbox = bench.subscribe("t", BLOCK)
    bench.record(Kind.BATCH, 1, make_batch(0, [b"x"]).raw())
    bench.patterns.subscriptions.take(inbox, NOW_S)
    bench.patterns.subscriptions.unsubscribe(inbox)
    bench.timers.run(NOW_S + CREDIT_DELAY_S)
    assert bench.sent() == []


def test_no_credit_for_a_link_that_is_down_or_a_policy_that_drops() -> None:
    bench = Bench()
    for policy, up in ((BLOCK, False), (DROP_OLDEST, True)):
        inbox = bench.subscribe("t", policy)
        bench.record(Kind.BATCH, 1, make_batch(0, [b"x"]).raw())
        bench.link.up = up
        bench.patterns.subscriptions.take(inbox, NOW_S)
        bench.link.up = True
        assert bench.sent() == []
        bench.patterns.subscriptions.unsubscribe(inbox)


# Topics, as their publisher


def subscribe(pattern: str = "t", policy: int = 0, window: int = 1000) -> bytes:
    return encode_values(pattern, policy, window)


def test_a_peer_subscribes_and_unsubscribes() -> None:
    bench = Bench()
    bench.record(Kind.SUBSCRIBE, 7, subscribe("t.*"))
    assert bench.publish("t.a", b"x")
    assert [kind for kind, _, _ in bench.sent()] == [Kind.BATCH]
    bench.record(Kind.UNSUBSCRIBE, 7, b"")
    bench.publish("t.a", b"x")
    assert bench.sent() == []
    bench.record(Kind.SUBSCRIBE, 7, subscribe("t.*"))


@pytest.mark.parametrize(
    "body",
    [
        subscribe("a..b"), subscribe(""), subscribe("a.>.b"), subscribe(policy=3),
        subscribe(policy=-1), subscribe(window=0), subscribe(window=-1), b"", encode_values("t", 1),
        subscribe("x" * 256), encode_values(b"t", 0, 1), encode_values("t", 2, 1000, -1),
    ],
)  # fmt: skip
def test_impossible_subscriptions_are_refused(body: bytes) -> None:
    bench = Bench()
    with pytest.raises(RemoteProtocolError):
        bench.record(Kind.SUBSCRIBE, 7, body)
    assert bench.patterns.interest.match("t") == []


def test_control_characters_that_an_earlier_release_allowed_do_not_cost_its_link() -> None:
    bench = Bench()
    inbox = bench.subscribe("t.*")
    bench.record(Kind.SUBSCRIBE, 7, subscribe("t.\x9f"))
    assert bench.patterns.subscribers.patterns() == {"t.\x9f"}
    bench.record(Kind.BATCH, 1, make_batch(0, [b"x"], topic="t.\x9f").raw())
    assert bench.patterns.subscriptions.take(inbox, NOW_S).topic == "t.\x9f"
    bench.record(Kind.UNSUBSCRIBE, 7, b"")
    assert bench.patterns.subscribers.patterns() == set()


def test_subscriptions_of_a_peer_are_bounded_and_have_numbers_of_their_own() -> None:
    bench = Bench(subscriptions_max=2)
    bench.record(Kind.SUBSCRIBE, 7, subscribe())
    refused(bench, Kind.SUBSCRIBE, 7, subscribe(), "SUBSCRIBE 7")
    bench.record(Kind.SUBSCRIBE, 8, subscribe())
    refused(bench, Kind.SUBSCRIBE, 9, subscribe(), "more than 2")
    bench.record(Kind.SUBSCRIBE, 7, subscribe(), make_link())
    refused(bench, Kind.UNSUBSCRIBE, 9, b"", "UNSUBSCRIBE 9 without SUBSCRIBE")


def credit(bench: Bench) -> int:
    (subscription,) = bench.patterns.interest.match("t")
    assert isinstance(subscription, RemoteSubscription)
    return subscription.credit_bytes


def test_credit_of_a_peer() -> None:
    bench = Bench()
    bench.record(Kind.SUBSCRIBE, 7, subscribe(policy=2, window=1000))
    bench.publish("t", bytes(100))
    assert credit(bench) == 1000 - 64 - 1 - 4 - 100
    bench.record(Kind.CREDIT, 7, encode_values(100))
    assert credit(bench) == 1000 - 64 - 1 - 4
    for size in (0, -1):
        refused(bench, Kind.CREDIT, 7, encode_values(size), "credit of")
    refused(bench, Kind.CREDIT, 7, encode_values("1"), "invalid field")
    bench.record(Kind.CREDIT, 8, encode_values(100))


def test_credit_for_what_was_sent_before_the_subscription_is_no_crime() -> None:
    """Found: batches on their way when a blocking one was added cost its node the link.

    They match the new subscription as well, so it returns credit that was never taken from it.
    """
    publisher, subscriber = Bench(), Bench()
    publisher.record(Kind.SUBSCRIBE, 1, subscribe("*"))
    publisher.publish("t", b"x")
    ((kind, ident, body),) = publisher.sent()
    blocking = subscriber.subscribe("t", BLOCK, 1000)
    raw = b"".join(batch_pieces(OTHER, 100, 0, 7, b"t", [b"x"])[0])
    assert len(raw) == len(body)
    subscriber.record(kind, ident, raw)
    subscriber.patterns.subscriptions.take(blocking, NOW_S)
    subscriber.timers.run(NOW_S + CREDIT_DELAY_S)
    ((kind, _, returned),) = subscriber.sent()
    publisher.record(Kind.SUBSCRIBE, 2, subscribe("t", 2, 1000))
    publisher.record(kind, 2, returned)
    found = publisher.patterns.interest.match("t")
    assert [one.credit_bytes for one in found if isinstance(one, RemoteSubscription)] == [
        1000,
        1000,
    ]


def test_a_new_link_has_the_credit_that_earlier_ones_left() -> None:
    """Found: each was given a whole window, so a reader that stood still kept as much for every link."""
    publisher, subscriber = Bench(), Bench()
    batches = [make_batch(first, [b"x" * 31]) for first in range(3)]
    size, window = batches[0].size_bytes, 4 * batches[0].size_bytes
    inbox = subscriber.subscribe("t", BLOCK, window)
    for batch in batches:
        subscriber.record(Kind.BATCH, 1, batch.raw())
    subscriber.patterns.link_down(subscriber.link, "lost", NOW_S)
    subscriber.patterns.subscriptions.take(inbox, NOW_S)
    link = make_link()
    subscriber.patterns.link_up(link, ())
    subscriber.patterns.link_up(stranger := make_link(b"s" * 16), ())
    assert take_records(stranger) == [(Kind.SUBSCRIBE, 1, encode_values("t", 2, window))]
    (said,) = take_records(link)
    publisher.record(*said)
    assert credit(publisher) == window - 2 * size
    subscriber.record(Kind.BATCH, 1, make_batch(3, [b"x" * 31]).raw(), link)
    while inbox:
        subscriber.patterns.subscriptions.take(inbox, NOW_S)
    subscriber.timers.run(NOW_S + CREDIT_DELAY_S)
    returned = [decode_values(body, "", (int,))[0] for _, _, body in take_records(link)]
    assert sum(returned) == 3 * size


# Other records, and links


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.WELCOME, Kind.INTRODUCE, Kind.HEARTBEAT, 0])
def test_records_that_do_not_belong_on_a_link_are_refused(kind: int) -> None:
    refused(Bench(), kind, 1, b"", f"record type {int(kind)} on a link")


def test_tunnel_records_go_to_the_tunnels() -> None:
    bench = Bench()
    bench.patterns.tunnels.endpoints = {"depot": {"store": Endpoint()}}
    bench.record(Kind.TUNNEL_OPEN, 3, encode_values("depot", "store", 100))
    (end,) = bench.patterns.tunnels
    assert end.target == "depot/store"
    bench.record(Kind.TUNNEL_RESET, 3, encode_values("aborted", "why"))
    assert end.reason == "aborted at the other end: why"


@pytest.mark.parametrize("left", [True, False])
def test_nothing_remains_of_a_link_that_is_gone(left: bool) -> None:
    bench = Bench()
    bench.patterns.link_up(bench.link, ("shop/get",))
    bench.record(Kind.SUBSCRIBE, 7, subscribe())
    bench.record(Kind.SUBSCRIBE, 8, subscribe("other.>"))
    bench.record(Kind.REQUEST, 1, call("depot", "get"))
    bench.record(Kind.CANCEL, 9, b"")
    bench.record(Kind.TUNNEL_OPEN, 3, encode_values("depot", "store", 100))
    inbox = bench.subscribe("t", BLOCK)
    for first in (0, 1):
        bench.record(Kind.BATCH, 1, make_batch(first, [b"x"]).raw())
    bench.patterns.subscriptions.take(inbox, NOW_S)
    pending = bench.ask("shop")
    bench.sent()
    bench.link.up = False
    bench.patterns.link_down(bench.link, "left" if left else "gone", NOW_S)
    patterns = bench.patterns
    assert patterns.interest.match("t") == [inbox]
    assert patterns.interest.match("other.a") == []
    assert (patterns.subscribers._remote, patterns._cancelled, patterns._idempotent) == ({}, {}, {})
    assert (len(patterns.tunnels), inbox.owed_bytes) == (0, {})
    assert bench.started[0].cancelled
    assert isinstance(pending.outcome, PeerLost)
    patterns.link_down(make_link(), "a stranger", NOW_S)


def test_who_waits_for_room_on_the_way_to_one_that_is_gone_goes_on() -> None:
    bench = Bench()
    bench.record(Kind.SUBSCRIBE, 7, subscribe(policy=2, window=1 << 20))
    while bench.publish("t", bytes(1000)):
        pass
    assert credit(bench) > 1 << 19, "it is the outbox that is full"
    bench.patterns.link_down(bench.link, "lost", NOW_S)
    publisher = bench.patterns.publisher
    assert publisher.retry_blocked() == [publisher.streams["t"]]
    assert not publisher.waiting


def test_idempotent_targets_are_those_the_member_named() -> None:
    bench = Bench()
    bench.patterns.link_up(bench.link, ("shop/get",))
    get, put = bench.ask("shop/get"), bench.ask("shop/put")
    take_records(bench.link)
    bench.patterns.link_down(bench.link, "lost", NOW_S)
    assert get.outcome is None, "safe to ask twice: it waits for somebody else"
    assert isinstance(put.outcome, PeerLost)


def test_a_note_of_a_loss_reaches_the_inbox() -> None:
    bench = Bench()
    inbox = bench.subscribe("t")
    bench.record(Kind.BATCH, 0, encode_lost(OTHER, 1, 5, 0, b"t", 2))
    bench.record(Kind.BATCH, 1, make_batch(7, [b"x"]).raw())
    assert bench.patterns.subscriptions.take(inbox, NOW_S).lost == 2
