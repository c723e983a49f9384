from __future__ import annotations

import pytest

from mesh.protocol import stream_gaps as module
from mesh.protocol.batch import Batch, encode_lost
from mesh.protocol.inbox import Inbox
from mesh.protocol.interest import BLOCK, DROP_NEWEST, DROP_OLDEST, POLICIES
from mesh.protocol.stream_gaps import EPOCHS_MAX
from tests.machines import ME, OTHER, make_batch, make_link

BODY = b"1234567890"
KEPT_BYTES = len(BODY) + 4
"""What one BODY counts when the rest of its batch was dropped."""


def make_inbox(policy: str = DROP_OLDEST, limit: int = 1 << 20) -> tuple[Inbox, list[int]]:
    """An inbox, and a list that grows whenever it wakes its reader."""
    woken: list[int] = []
    return Inbox(1, ("t",), policy, limit, lambda: woken.append(1)), woken


def fill(inbox: Inbox, *ranges: range) -> None:
    for numbers in ranges:
        inbox.push(make_batch(numbers.start, [BODY] * len(numbers)), None)


def drain(inbox: Inbox) -> list[tuple[int, int, int]]:
    """(first sequence, how many, how many are missing before) of all that waits."""
    found = []
    while inbox:
        delivery = inbox.take()
        found.append((delivery.sequence, len(delivery), delivery.lost))
    return found


def lost(first: int, count: int, topic: str = "t", publisher: bytes = OTHER) -> Batch:
    return Batch(encode_lost(publisher, 1, first, 0, topic.encode(), count))


@pytest.mark.parametrize("policy", POLICIES)
def test_gives_what_came_in_order(policy: str) -> None:
    inbox, woken = make_inbox(policy)
    assert not inbox
    first = make_batch(5, [b"a", b"b"], headers=[b"", b"h"])
    inbox.push(first, None)
    inbox.push(make_batch(7, [b"c"]), None)
    assert len(woken) == 1, "woken when it stops being empty"
    delivery = inbox.take()
    assert (delivery.payloads, delivery.sequence, delivery.lost) == ([b"a", b"b"], 5, 0)
    assert (delivery.topic, delivery.sender) == ("t", OTHER)
    assert delivery.headers == [b"", b"h"]
    assert delivery.batch is first
    assert drain(inbox) == [(7, 1, 0)]
    assert not inbox
    fill(inbox, range(8, 9))
    assert len(woken) == 2


def test_taking_from_an_empty_one_is_an_error() -> None:
    with pytest.raises(IndexError):
        make_inbox()[0].take()


# Gaps


def test_a_gap_is_reported_with_what_follows_it() -> None:
    inbox, _ = make_inbox()
    fill(inbox, range(2), range(5, 6), range(6, 7))
    assert drain(inbox) == [(0, 2, 0), (5, 1, 3), (6, 1, 0)]
    assert inbox.statistics().lost == 3


def test_joining_late_is_no_loss() -> None:
    inbox, _ = make_inbox()
    fill(inbox, range(100, 101))
    assert drain(inbox) == [(100, 1, 0)]


def test_a_note_of_a_loss_is_a_place_to_measure_from() -> None:
    inbox, woken = make_inbox()
    inbox.push(lost(100, 3), None)
    assert (bool(inbox), woken) == (False, [])
    fill(inbox, range(104, 105))
    assert drain(inbox) == [(104, 1, 4)]


def test_a_note_for_a_known_stream_adds_nothing_to_the_gap() -> None:
    inbox, _ = make_inbox()
    fill(inbox, range(2))
    drain(inbox)
    inbox.push(lost(2, 3), None)
    fill(inbox, range(5, 6))
    assert drain(inbox) == [(5, 1, 3)]


def test_a_note_behind_what_waits_is_no_place_to_measure_from() -> None:
    """Found: what was dropped after it, and before anything was read, was then no gap."""
    inbox, _ = make_inbox(DROP_OLDEST, limit=2 * KEPT_BYTES)
    fill(inbox, range(3))
    inbox.push(lost(3, 1), None)
    assert drain(inbox) == [(1, 2, 1)]


def test_streams_are_publisher_epoch_and_topic() -> None:
    inbox, _ = make_inbox()
    fill(inbox, range(2))
    for other in (
        make_batch(7, [b""], publisher=ME), make_batch(7, [b""], epoch=2),
        make_batch(7, [b""], topic="u"),
    ):  # fmt: skip
        inbox.push(other, None)
    assert [missing for _, _, missing in drain(inbox)] == [0, 0, 0, 0]


def test_what_is_missing_at_the_end_of_an_epoch_is_told_with_the_next_one() -> None:
    """Found: a publisher of more topics than it keeps began one anew, and what had been dropped last
    of it was never seen missing."""
    size = make_batch(0, [BODY] * 3).size_bytes
    inbox, _ = make_inbox(DROP_NEWEST, limit=size)
    fill(inbox, range(3), range(3, 6))
    inbox.push(make_batch(0, [BODY], epoch=2), None)
    assert drain(inbox) == [(0, 3, 0)]
    inbox.push(make_batch(1, [BODY], epoch=2), None)
    assert drain(inbox) == [(1, 1, 3 + 1)]
    inbox.push(make_batch(0, [BODY], epoch=3), None)
    assert drain(inbox) == [(0, 1, 0)]
    assert inbox.statistics().lost == inbox.statistics().dropped == 4


def test_epochs_of_a_stream_that_are_remembered_are_bounded() -> None:
    inbox, _ = make_inbox(DROP_NEWEST, limit=1)
    for epoch in range(1, 4 * EPOCHS_MAX):
        inbox.push(make_batch(0, [BODY], epoch=epoch), None)
        assert len(inbox.streams._epochs[OTHER, "t"]) <= EPOCHS_MAX
    inbox.push(make_batch(0, [b""], epoch=4 * EPOCHS_MAX), None)
    inbox.limit_bytes = 1 << 20
    inbox.push(make_batch(1, [BODY], epoch=4 * EPOCHS_MAX), None)
    assert drain(inbox) == [(1, 1, 4 * EPOCHS_MAX)]


def test_of_more_epochs_than_are_told_apart_just_what_is_missing_counts() -> None:
    """Found: what waited of those it no longer told apart was counted as lost, and delivered."""
    inbox, _ = make_inbox()
    for epoch in range(1, 2 * EPOCHS_MAX):
        inbox.push(make_batch(0, [BODY] * 2, epoch=epoch), None)
        inbox.push(make_batch(2 + epoch % 2, [BODY], epoch=epoch), None)
    deliveries = drain(inbox)
    assert sum(count for _, count, _ in deliveries) == inbox.statistics().delivered
    assert sum(missing for _, _, missing in deliveries) == EPOCHS_MAX, "one in every other epoch"


def test_what_is_dropped_of_epochs_that_are_not_told_apart_is_missing_as_well() -> None:
    size = make_batch(0, [BODY]).size_bytes
    inbox, _ = make_inbox(DROP_OLDEST, limit=3 * EPOCHS_MAX * size)
    for epoch in range(1, 3 * EPOCHS_MAX + 1):
        inbox.push(make_batch(0, [BODY], epoch=epoch), None)
    fill_up = make_batch(0, [BODY] * EPOCHS_MAX, topic="u")
    inbox.push(fill_up, None)
    drain(inbox)
    assert 0 < inbox.statistics().lost == inbox.statistics().dropped < EPOCHS_MAX


def test_what_is_remembered_of_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: notes of losses, which a peer may send for any topic, were remembered without end."""
    monkeypatch.setattr(module, "STREAMS_MAX", 3)
    inbox, _ = make_inbox()
    for n in range(10):
        inbox.push(lost(0, 1, topic=f"a{n}"), None)
    for n in range(10):
        inbox.push(make_batch(5, [b""], topic=f"b{n}"), None)
    drain(inbox)
    for n in (9, 6):
        inbox.push(make_batch(7, [b""], topic=f"b{n}"), None)
    assert drain(inbox) == [(7, 1, 1), (7, 1, 0)], "the latest is remembered, an early one is not"


# Full


def test_drop_oldest_drops_message_by_message_from_the_front() -> None:
    size = make_batch(0, [BODY] * 3).size_bytes
    inbox, woken = make_inbox(DROP_OLDEST, limit=2 * size)
    fill(inbox, range(3), range(3, 6), range(6, 9))
    assert inbox.statistics().waiting_bytes <= 2 * size
    assert drain(inbox) == [(3, 3, 3), (6, 3, 0)]
    assert (inbox.statistics().dropped, inbox.statistics().lost) == (3, 3)
    inbox, woken = make_inbox(DROP_OLDEST, limit=2 * size + 2 * KEPT_BYTES)
    fill(inbox, range(3), range(3, 6), range(6, 9))
    assert inbox.statistics().waiting_bytes == 2 * size + 2 * KEPT_BYTES
    assert drain(inbox) == [(1, 2, 1), (3, 3, 0), (6, 3, 0)]
    assert len(woken) == 1


def test_what_waits_is_not_looked_at_for_each_message_that_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: a full inbox of large batches, and each small one walked over all of the oldest."""
    large = make_batch(0, [BODY] * 10_000)
    inbox, _ = make_inbox(DROP_OLDEST, limit=large.size_bytes)
    inbox.push(large, None)
    looked_at: list[int] = []
    message_bytes = Batch.message_bytes

    def counted(batch: Batch) -> list[int]:
        looked_at.append(batch.count)
        return message_bytes(batch)

    monkeypatch.setattr(Batch, "message_bytes", counted)
    fill(inbox, *(range(n, n + 1) for n in range(10_000, 11_000)))
    assert sum(looked_at) < 20_000
    dropped = inbox.statistics().dropped
    assert dropped == -((64 + 1 - 1000 * 79) // KEPT_BYTES), "as many as have to go, and no more"
    assert drain(inbox)[0] == (dropped, 10_000 - dropped, dropped)


def test_drop_newest_keeps_what_waits() -> None:
    size = make_batch(0, [BODY] * 3).size_bytes
    inbox, _ = make_inbox(DROP_NEWEST, limit=size + 2 * KEPT_BYTES)
    fill(inbox, range(3), range(3, 6), range(6, 9))
    assert drain(inbox) == [(0, 3, 0), (3, 2, 0)]
    assert inbox.statistics().dropped == 4
    fill(inbox, range(9, 10))
    assert drain(inbox) == [(9, 1, 4)]


@pytest.mark.parametrize("policy", [DROP_OLDEST, DROP_NEWEST])
def test_drops_before_anything_was_delivered_are_seen(policy: str) -> None:
    inbox, woken = make_inbox(policy, limit=50)
    inbox.push(make_batch(0, [bytes(100)]), None)
    assert (bool(inbox), woken) == (False, [])
    inbox.push(make_batch(1, [bytes(10)]), None)
    assert drain(inbox) == [(1, 1, 1)]


def test_shortened_deliveries_have_the_right_headers() -> None:
    headers = [b"h0", b"h1", b"h2"]
    for policy, kept in ((DROP_OLDEST, headers[1:]), (DROP_NEWEST, headers[:2])):
        inbox, _ = make_inbox(policy, limit=2 * (KEPT_BYTES + len(b"h0") + 4))
        inbox.push(make_batch(7, [BODY] * 3, headers=headers), None)
        assert inbox.take().headers == kept
    inbox, _ = make_inbox(DROP_OLDEST, limit=2 * KEPT_BYTES)
    fill(inbox, range(3))
    assert inbox.take().headers is None


@pytest.mark.parametrize("policy", [DROP_OLDEST, DROP_NEWEST])
def test_a_few_messages_left_do_not_keep_the_rest_in_memory(policy: str) -> None:
    headers = [b"h%d" % n for n in range(100)]
    batch = make_batch(7, [b"%010d" % n for n in range(100)], headers=headers)
    inbox, _ = make_inbox(policy, limit=100)
    inbox.push(batch, None)
    delivery = inbox.take()
    first = delivery.sequence - 7
    assert 3 <= len(delivery) <= 5
    assert first == (100 - len(delivery) if policy == DROP_OLDEST else 0)
    assert delivery.payloads == batch.payloads[first : first + len(delivery)]
    assert delivery.headers == headers[first : first + len(delivery)]
    assert delivery.batch.payloads == delivery.payloads, "it holds no others"
    assert (delivery.batch.topic, delivery.batch.epoch) == (batch.topic, batch.epoch)


# Blocking


def test_a_peer_that_ignores_its_credit_fills_no_memory() -> None:
    """One window, and what may have been on its way when the subscription began."""
    rogue, honest = make_link(), make_link()
    size = make_batch(0, [BODY]).size_bytes
    inbox = Inbox(1, ("t",), BLOCK, 2 * size, lambda: None, in_flight_bytes=3 * size)
    for n in range(9):
        inbox.push(make_batch(n, [BODY]), rogue)
    assert inbox.statistics().dropped == 4
    assert inbox.statistics().waiting_bytes == 5 * size
    inbox.push(make_batch(0, [BODY], topic="u"), honest)
    assert inbox.statistics().dropped == 4, "nobody else pays for it"
    assert [inbox.take().sequence for _ in range(6)] == [0, 1, 2, 3, 4, 0]
    inbox.push(make_batch(9, [BODY]), rogue)
    assert drain(inbox) == [(9, 1, 4)], "the loss is seen"


def test_one_message_larger_than_the_credit_is_let_in() -> None:
    inbox, _ = make_inbox(BLOCK, limit=10)
    inbox.push(make_batch(0, [bytes(1000)]), make_link())
    assert drain(inbox) == [(0, 1, 0)]


def test_block_never_drops_and_remembers_what_it_owes() -> None:
    one, other = make_link(), make_link()
    inbox, _ = make_inbox(BLOCK, limit=200)
    sizes = []
    for first, link in ((0, one), (1, one), (2, other), (3, None)):
        batch = make_batch(first, [BODY])
        sizes.append(batch.size_bytes)
        inbox.push(batch, link)
    assert inbox.owed_bytes == {}
    assert drain(inbox) == [(0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)]
    assert inbox.owed_bytes == {one: sizes[0] + sizes[1], other: sizes[2]}


def test_others_owe_nothing() -> None:
    inbox, _ = make_inbox(DROP_OLDEST)
    inbox.push(make_batch(0, [BODY]), make_link())
    inbox.take()
    assert inbox.owed_bytes == {}


@pytest.mark.parametrize(
    ("policy", "waiting", "size", "may"),
    [
        (BLOCK, 0, 1000, True), (BLOCK, 1, 100 - 79, True), (BLOCK, 1, 100 - 78, False),
        (DROP_OLDEST, 1, 1000, True), (DROP_NEWEST, 1, 1000, True),
    ],
)  # fmt: skip
def test_publishers_of_this_node_ask_first(policy: str, waiting: int, size: int, may: bool) -> None:
    inbox, _ = make_inbox(policy, limit=100)
    fill(inbox, *[range(1)] * waiting)
    assert inbox.statistics().waiting_bytes == 79 * waiting
    assert inbox.has_room(size) is may


def test_what_others_sent_does_not_count_against_a_publisher_of_this_node() -> None:
    """Found: it starved while two peers kept the inbox full, each within its own credit."""
    inbox, _ = make_inbox(BLOCK, limit=100)
    for n, link in enumerate((make_link(b"1" * 16), make_link(b"2" * 16))):
        inbox.push(make_batch(n, [BODY]), link)
    assert inbox.has_room(100)
    fill(inbox, range(2, 3))
    assert (inbox.has_room(100 - 79), inbox.has_room(100 - 78)) == (True, False)
    drain(inbox)
    assert inbox.has_room(1000)


def test_statistics_name_the_subscription() -> None:
    statistics = Inbox(1, ("a", "*", ">"), BLOCK, 10, lambda: None).statistics()
    assert (statistics.pattern, statistics.when_full, statistics.limit_bytes) == (
        "a.*.>",
        BLOCK,
        10,
    )
