"""What clusters may do: callers are known by the key they showed."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable.errors import AccessRefused, UnknownVhost
from tests.brokers import client, drain, node_of, numbered, serving, take
from tests.nodes import node


async def test_as_long_as_nothing_was_said_everybody_may(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await crm.declare_queue("jobs")
        await shop.publish("", "jobs", b"x")
        assert await drain(crm, "jobs") == [b"x"]


async def test_each_operation_needs_its_permission(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.declare_queue("jobs")
        await shop.declare_queue("jobs-other")
        await shop.declare_stream("jobs-audit")
        for refused in (
            crm.declare_queue("jobs"), crm.publish("", "jobs", b""), crm.purge_queue("jobs"),
            crm.delete_queue("jobs"), crm.bind("amq.fanout", "jobs"), crm.declare_exchange("x"),
            crm.declare_stream("s"), crm.delete_stream("jobs-audit"), crm.delete_exchange("x"),
            crm.set_permission("crm", configure=".*"), crm.clear_permission("shop"),
        ):  # fmt: skip
            with pytest.raises(AccessRefused) as error:
                await refused
            assert error.value.cluster == "crm"
        with pytest.raises(AccessRefused):
            async with crm.consume("jobs"):
                pass
        with pytest.raises(AccessRefused):
            async with crm.read("jobs-audit"):
                pass
        await shop.set_permission("crm", write="amq.default", read="jobs|jobs-audit")
        await crm.publish_many("", "jobs", numbered(3))
        async with crm.consume("jobs") as deliveries:
            await take(deliveries, 3)
        async with crm.read("jobs-audit"):
            pass
        with pytest.raises(AccessRefused):
            async with crm.consume("jobs-other"):
                pass
        with pytest.raises(AccessRefused):
            await crm.publish("amq.fanout", "", b"")


async def test_a_publisher_goes_on_after_a_refusal(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.declare_queue("jobs")
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", write="amq.default")
        async with crm.publisher() as publisher:
            await publisher.publish("", "jobs", [b"1"])
            with pytest.raises(AccessRefused):
                await publisher.publish("amq.direct", "jobs", [b"2"])
            await publisher.publish("", "jobs", [b"3"])
        assert await drain(shop, "jobs") == [b"1", b"3"]


async def test_there_is_no_such_vhost(tmp_path: Path) -> None:
    import durable

    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        with pytest.raises(UnknownVhost):
            await durable.connect(joined, vhost="/none").statistics()
        await durable.connect(joined).statistics()


async def test_permissions_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.set_permission("shop", configure=".*", read=".*")
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(AccessRefused):
            await shop.publish("", "jobs", b"")
        await shop.clear_permission("shop")
        await shop.publish("", "jobs", b"")
