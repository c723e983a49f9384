"""What a dead letter says of its deaths can be read again, whatever it said before."""

from __future__ import annotations

import pytest

from durable.definition_checks import NAME_BYTES_MAX
from durable.definitions import QueueDefinition
from durable.protocol.properties import (
    DEATHS_BYTES,
    DEATHS_COUNTED_MAX,
    KEYS_MAX,
    Death,
    Properties,
    decode_properties,
)
from durable.queues.journal import EXPIRED, MAXLEN, REJECTED, DeadRange
from durable.vhost.deadletters import DEATHS_MAX, dead_letter, is_cycle
from tests.vhosts import make_batch

JOBS = QueueDefinition(name="jobs", dead_letter_exchange="", dead_letter_routing_key="graves")
DEAD = DeadRange("jobs", 1, 0, 1, REJECTED)


def deaths(properties: Properties) -> tuple[Death, ...]:
    """Of a letter with these, once it has died in `jobs`."""
    letter, _ = dead_letter(make_batch(0, [b"x"], properties=properties), DEAD, JOBS, 5)
    return decode_properties(letter.shared_headers).deaths


def test_its_own_key_and_all_others_there_may_be() -> None:
    cc = tuple(map(str, range(KEYS_MAX)))
    (one,) = deaths(Properties(cc=cc))
    assert one.keys == ("q", *cc)


def test_it_keeps_its_headers_and_has_no_time_to_live_any_more() -> None:
    """It would expire where it was brought, too."""
    batch = make_batch(0, [b"x"], properties=Properties(ttl_us=1, priority=3), headers=[b"mine"])
    letter, properties = dead_letter(batch, DEAD, JOBS, 5)
    assert properties == decode_properties(letter.shared_headers)
    assert (properties.ttl_us, properties.priority) == (None, 3)
    assert letter.message_headers() == batch.message_headers() == [b"mine"]


def test_from_some_number_on_it_counts_no_further() -> None:
    """Found: a client that made one up had a dead letter that ended the broker."""
    most = Death("jobs", REJECTED, DEATHS_COUNTED_MAX, "", ("q",), 1)
    assert deaths(Properties(deaths=(most,))) == (most,)


@pytest.mark.parametrize(
    "cc",
    [
        tuple(f"{number:0{NAME_BYTES_MAX}}" for number in range(KEYS_MAX)),
        tuple(f"{number:070000}" for number in range(12)),
    ],
    ids=["as many and as long as they may be", "longer, from an earlier release"],
)
def test_however_often_it_dies_it_grows_by_no_more_than_consumers_have_room_for(
    cc: tuple[str, ...],
) -> None:
    """Found: each way out kept all keys, and what had died a few times was delivered to nobody."""
    batch = published = make_batch(0, [b"x"], properties=Properties(cc=cc))
    for number in range(DEATHS_MAX):
        jobs = QueueDefinition(name=f"jobs {number}", dead_letter_exchange="later")
        dead = DeadRange(jobs.name, 1, 0, 1, REJECTED)
        batch, _ = dead_letter(batch, dead, jobs, 5)
        assert batch.size_bytes - published.size_bytes <= DEATHS_BYTES
    story = decode_properties(batch.shared_headers).deaths
    assert [one.queue for one in story] == [f"jobs {n}" for n in reversed(range(DEATHS_MAX))]
    assert story[0].keys[0] == "q"


def test_a_story_that_is_not_long_keeps_the_keys_of_all_deaths() -> None:
    before = Death("before", REJECTED, 1, "", ("k" * NAME_BYTES_MAX,) * KEYS_MAX, 1)
    assert deaths(Properties(cc=("c",), deaths=(before,)))[1] == before


def test_it_comes_back_by_itself_however_many_queues_it_was_in_meanwhile() -> None:
    """Unless somebody rejected it since."""

    def went(*ways: tuple[str, str]) -> tuple[Death, ...]:
        """The latest first."""
        return tuple(Death(queue, reason, 1, "", ("k",), 0) for queue, reason in ways)

    round_ = went(("d", EXPIRED), ("c", MAXLEN), ("b", EXPIRED), ("a", EXPIRED))
    assert [is_cycle(queue, round_) for queue in "abcde"] == [True] * 4 + [False]
    rejected = went(("d", EXPIRED), ("c", REJECTED), ("b", EXPIRED))
    assert [is_cycle(queue, rejected) for queue in "bcd"] == [False, False, True]
    long = went(*((f"{number}", EXPIRED) for number in range(DEATHS_MAX)))
    assert is_cycle("next", long), "it may have been there before it forgot"
    assert not is_cycle("next", long[:-1])
    assert not is_cycle("next", (*long[:-1], *rejected[1:2]))
