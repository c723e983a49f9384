"""What `send` says of a message and what its properties say: both count."""

from __future__ import annotations

import pytest

from durable.errors import InvalidDefinition
from durable.protocol.properties import (
    Properties,
    decode_properties,
    encode_properties,
    merge_properties,
)

URGENT = Properties(priority=9)


@pytest.mark.parametrize(
    ("exchange", "mandatory", "properties", "both"),
    [
        ("", False, None, Properties()),
        ("events", True, None, Properties("events", mandatory=True)),
        ("events", False, URGENT, Properties("events", priority=9)),
        ("", True, URGENT, Properties(priority=9, mandatory=True)),
        ("", False, Properties("events", mandatory=True), Properties("events", mandatory=True)),
        ("events", False, Properties("events"), Properties("events")),
    ],
)
def test_properties_say_the_rest(
    exchange: str, mandatory: bool, properties: Properties | None, both: Properties
) -> None:
    """Found by a new user: the exchange of `send` was passed over, and the default one got it."""
    assert merge_properties(exchange, mandatory, properties) == both


def test_two_exchanges_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"exchange is 'other': want 'events'"):
        merge_properties("other", False, Properties("events"))


def test_only_short_properties_are_kept_decoded() -> None:
    """Found: 1,000 messages whose properties took 1 MB each held 1 GB of a broker, for ever."""
    short, long = (encode_properties(Properties(cc=("k" * size,))) for size in (100, 2_000))
    assert decode_properties(short) is decode_properties(short)
    first = decode_properties(long)
    assert decode_properties(long) == first
    assert decode_properties(long) is not first
