"""What a program gives that cannot be: refused at once, by name, and nothing of it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durable.client.connection import Connection
from durable.definition_checks import NAME_BYTES_MAX
from durable.errors import InvalidDefinition
from durable.protocol.properties import KEYS_MAX, Properties
from tests.brokers import client, drain, serving

LONG = "k" * (NAME_BYTES_MAX + 1)
NO_TEXT = "\ud800"
"""Half of a character: no UTF-8."""


async def publish(shop: Connection, exchange: Any, **settings: Any) -> None:
    await shop.publish(exchange, "jobs", b"bad", **settings)


async def test_addresses_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    """Found: no exchange was the default one, and long keys made a dead letter that nobody could get."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        for exchange in (None, 5, [""], NO_TEXT, LONG):
            with pytest.raises(InvalidDefinition, match="message: exchange is"):
                await publish(shop, exchange)
        for field in ("cc", "bcc"):
            for key in (LONG, NO_TEXT, 5, ["k"]):
                with pytest.raises(InvalidDefinition, match=f"message: {field} is"):
                    await publish(shop, "", **{field: [key]})
            with pytest.raises(InvalidDefinition, match=f"{field} is .* at most {KEYS_MAX} keys"):
                await publish(shop, "", **{field: ["k"] * (KEYS_MAX + 1)})
        await shop.publish("", "jobs", b"good", cc=[LONG[1:]])
        assert await drain(shop, "jobs") == [b"good"]


async def test_no_exchange_is_not_the_one_of_the_message_before(tmp_path: Path) -> None:
    """Found: it went along with a message of the same key that had properties."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.publisher() as publisher:
            await publisher.send("", "jobs", b"good", properties=Properties("amq.fanout"))
            nothing: Any = None
            with pytest.raises(InvalidDefinition, match="message: exchange is None"):
                await publisher.send(nothing, "jobs", b"bad")
