"""What `send` says of a message and what its properties say: both count."""

from __future__ import annotations

import pytest

from durable.errors import InvalidDefinition
from durable.protocol.properties import Properties, together

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
    assert together(exchange, mandatory, properties) == both


def test_two_exchanges_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"exchange is 'other': want 'events'"):
        together("other", False, Properties("events"))
