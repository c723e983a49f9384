"""What a dead letter says of its deaths can be read again, whatever it said before."""

from __future__ import annotations

from durable.definitions import QueueDefinition
from durable.protocol.properties import (
    DEATHS_COUNTED_MAX,
    KEYS_MAX,
    Death,
    Properties,
    decode_properties,
)
from durable.queues.journal import Dead
from durable.vhost.deadletters import REJECTED, dead_letter
from tests.vhosts import make_batch

JOBS = QueueDefinition(name="jobs", dead_letter_exchange="", dead_letter_routing_key="graves")
DEAD = Dead("jobs", 1, 0, 1, REJECTED)


def deaths(properties: Properties) -> tuple[Death, ...]:
    """Of a letter with these, once it has died in `jobs`."""
    letter, _ = dead_letter(make_batch(0, [b"x"], properties=properties), DEAD, JOBS, 5)
    return decode_properties(letter.shared_headers).deaths


def test_its_own_key_and_all_others_there_may_be() -> None:
    cc = tuple(map(str, range(KEYS_MAX)))
    (one,) = deaths(Properties(cc=cc))
    assert one.keys == ("q", *cc)


def test_from_some_number_on_it_counts_no_further() -> None:
    """Found: a client that made one up had a dead letter that ended the broker."""
    most = Death("jobs", REJECTED, DEATHS_COUNTED_MAX, "", ("q",), 1)
    assert deaths(Properties(deaths=(most,))) == (most,)
