"""What clusters may do: callers are known by the key they showed."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
from durable.errors import (
    AccessRefused,
    InvalidDefinition,
    NoAdministrator,
    QueueFull,
    Unconfirmed,
    UnknownExchange,
    UnknownQueue,
    UnknownVhost,
)
from durable.log.bodies import encode_definitions
from durable.log.record import Draft, Kind
from durable.vhost import changes
from tests.brokers import SMALL, client, drain, node_of, numbered, payloads, serving, take
from tests.nodes import node
from tests.stores import make_store
from tests.waiting import PATIENCE_S, until


async def test_as_long_as_nothing_was_said_everybody_may(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await crm.declare_queue("jobs")
        await shop.publish("", "jobs", b"x")
        assert await drain(crm, "jobs") == [b"x"]


async def test_the_refusal_of_an_export_names_what_the_caller_sees(tmp_path: Path) -> None:
    """Found: it named the first queue, whoever asked."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.declare_queue("payroll")
        with pytest.raises(AccessRefused) as error:
            await crm.export_definitions()
        assert error.value.name == ""
        assert "payroll" not in str(error.value)
        await shop.set_permission("crm", read="payroll")
        with pytest.raises(AccessRefused, match="payroll"):
            await crm.export_definitions()


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
            crm.unbind("amq.fanout", "jobs"), crm.delete_cursor("jobs-audit", "billing"),
            crm.create_vhost("billing"), crm.delete_vhost("billing"), crm.export_definitions(),
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


async def test_nobody_shuts_everybody_out(tmp_path: Path) -> None:
    only_reads = {"cluster": "shop", "configure": "", "write": "", "read": "x"}
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(NoAdministrator):
            await shop.set_permission("shop", read="x")
        exported = await shop.export_definitions()
        with pytest.raises(NoAdministrator):
            await shop.import_definitions({**exported, "permissions": [only_reads]})
        await shop.set_permission("shop", configure=".*")
        await shop.set_permission("crm", write="amq.default")
        with pytest.raises(NoAdministrator):
            await shop.clear_permission("shop")
        assert await shop.clear_permission("crm") is True
        assert await shop.clear_permission("crm") is False
        await shop.clear_permission("shop")
        await shop.declare_queue("jobs")


async def test_nobody_publishes_as_another_clusters_publisher(tmp_path: Path) -> None:
    """Found by taking shop's name: crm's messages made shop's pass for stored."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        for queue in ("jobs", "crm.jobs"):
            await shop.declare_queue(queue)
        async with shop.numbered_publisher("orders") as ours:
            assert await ours.send(0, "", "jobs", numbered(1)) == 0
            await ours.flush()
            async with crm.numbered_publisher("orders") as theirs:
                assert await theirs.send(0, "", "crm.jobs", numbered(10)) == 0
            async with crm.publisher() as stolen:
                stolen._token = ours.id  # As a consumer of `jobs` reads it.
                await stolen.publish("", "crm.jobs", numbered(20))
            assert await ours.send(1, "", "jobs", numbered(9, first=1)) == 0
        assert await drain(shop, "jobs") == numbered(10)


async def test_whose_cluster_is_another_now_sends_nothing_under_its_old_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        with pytest.raises(Unconfirmed, match="another cluster"), trio.fail_after(PATIENCE_S):
            async with shop.publisher() as publisher:
                await publisher.publish("", "jobs", [b"1"])
                monkeypatch.setattr("durable.broker.publishing._publisher_id", lambda *_: bytes(16))
                session: Any = next(iter(broker.hosted("/")._publishers.values()))
                session._tunnel.abort("the connection ends")
                while True:
                    await publisher.publish("", "jobs", [b"2"])


async def test_whose_cluster_is_another_now_goes_on_when_nothing_was_to_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: it ended, and told of 0 messages that nobody knows of."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.publisher() as publisher, shop.numbered_publisher("rows") as rows:
            await publisher.publish("", "jobs", [b"1"])
            assert await rows.send(0, "", "jobs", [b"2"]) == 0
            await rows.flush()
            monkeypatch.setattr(
                "durable.broker.publishing._publisher_id", lambda token, _: token[::-1]
            )
            sessions: list[Any] = list(broker.hosted("/")._publishers.values())
            for session in sessions:
                session._tunnel.abort("the connection ends")
            both = (publisher, rows)
            await until(lambda: all(one.id == one._token[::-1] for one in both))
            await publisher.publish("", "jobs", [b"3"])
            assert await rows.send(1, "", "jobs", [b"4"]) == 0
        assert await drain(shop, "jobs") == numbered(4, first=1)
        async with shop.numbered_publisher("rows") as rows:
            assert await rows.send(0, "", "jobs", [b"2", b"4"]) == 1, "under its new id"


async def test_a_cluster_with_many_publishers_has_none_of_another_forgotten(tmp_path: Path) -> None:
    """Found by reading: it needed no right, and what others did again was stored again."""
    config = replace(SMALL, publishers_max=4)
    async with (
        serving(tmp_path, config=config) as broker,
        client(broker) as shop,
        client(broker, "crm") as crm,
    ):
        await shop.declare_queue("jobs")
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", read="nothing")
        async with shop.numbered_publisher("orders") as ours:
            assert await ours.send(0, "", "jobs", numbered(10)) == 0
        for number in range(8):
            async with crm.numbered_publisher(f"{number}"):
                pass
        async with shop.numbered_publisher("orders") as again:
            assert await again.send(0, "", "jobs", numbered(10)) == 10
        assert await drain(shop, "jobs") == numbered(10)


async def test_there_is_no_such_vhost(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("configure", ["(" * 486 + ".*" + ")" * 486, "(", 5])
async def test_a_permission_that_cannot_be_read_grants_nothing_and_costs_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, configure: Any
) -> None:
    """Found: it had been declared where less was on the stack, and the broker never started again."""
    said = {"cluster": "shop", "configure": configure}
    admin = {"cluster": "crm", "configure": ".*", "read": ".*"}
    body = encode_definitions([[changes.PERMISSION, one] for one in (said, admin)])
    make_store(tmp_path, [Draft(Kind.DEFINITIONS, body)])
    for _ in range(2):  # The second time it stands in a snapshot.
        caplog.clear()
        async with (
            serving(tmp_path) as broker,
            client(broker) as shop,
            client(broker, "crm") as crm,
        ):
            (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
            assert "permission of 'shop': configure is invalid and grants nothing" in line
            with pytest.raises(AccessRefused):
                await shop.declare_queue("jobs")
            with pytest.raises(AccessRefused):
                await shop.import_definitions({"version": 1, "vhost": "/"})
            found = (await crm.export_definitions())["permissions"]
            assert [one["configure"] for one in found] == [configure, ".*"]
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await crm.set_permission("shop", configure="jobs")
        await shop.declare_queue("jobs")


async def test_what_cannot_be_compiled_everywhere_is_not_declared(tmp_path: Path) -> None:
    deep = "(" * 486 + ".*" + ")" * 486
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(InvalidDefinition, match="nested at most 100 deep"):
            await shop.set_permission("shop", configure=deep)
        said = [{"cluster": "shop", "configure": ".*"}, {"cluster": "crm", "configure": deep}]
        with pytest.raises(InvalidDefinition, match=r"permissions\[1\]: configure .* 100 deep"):
            await shop.import_definitions({"version": 1, "vhost": "/", "permissions": said})
        assert (await shop.export_definitions())["permissions"] == []


async def test_a_vhost_is_not_deleted_from_one_where_everybody_may_do_everything(
    tmp_path: Path,
) -> None:
    """Found: who may do nothing in a vhost, nor in `/`, deleted it from a third one."""
    async with (
        serving(tmp_path) as broker,
        node("shop", node_of(broker)) as shop_node,
        node("crm", node_of(broker)) as crm_node,
    ):
        shop = durable.connect(shop_node)
        for vhost in ("open", "secret", "shared"):
            await shop.create_vhost(vhost)
        for vhost in ("/", "secret"):
            there = durable.connect(shop_node, vhost=vhost)
            await there.set_permission("shop", configure=".*", write=".*", read=".*")
        crm = durable.connect(crm_node, vhost="open")
        for refused in (crm.delete_vhost("secret"), crm.create_vhost("mine")):
            with pytest.raises(AccessRefused, match=r"'mesh\.vhost\."):
                await refused
        # Its own permissions protect it from whoever may delete others.
        await shop.set_permission("crm", configure=r"mesh\.vhost\..*")
        await crm.delete_vhost("shared")
        with pytest.raises(AccessRefused):
            await crm.delete_vhost("secret")
        assert await shop.vhosts() == ["/", "open", "secret"]


async def test_who_configures_queues_of_its_name_says_nothing_of_what_it_may_do(
    tmp_path: Path,
) -> None:
    """Found: `crm.*`, meant for queues, is what cluster crm is called, too: it gave itself the rest."""
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.set_permission("shop", **everything)
        await shop.set_permission("crm", configure="crm.*", write="crm.*", read="crm.*")
        permission = {"cluster": "crm", **everything}
        asked = {"version": 1, "vhost": "/", "permissions": [permission]}
        for refused in (
            crm.set_permission("crm", **everything), crm.clear_permission("crm"),
            crm.import_definitions(asked),
        ):  # fmt: skip
            with pytest.raises(AccessRefused, match=r"'mesh\.permissions\.crm'"):
                await refused
        await shop.set_permission("crm", configure=r"mesh\.permissions\.crm")
        await crm.set_permission("crm", **everything)


async def test_nobody_learns_of_what_it_may_do_nothing_with(tmp_path: Path) -> None:
    """Found: names, sizes and cursors in the statistics, and names in hints."""
    async with (
        serving(tmp_path) as broker, client(broker) as shop, node("crm", node_of(broker)) as joined
    ):  # fmt: skip
        crm = durable.connect(joined)
        await shop.create_vhost("billing")
        await shop.declare_queue("crm-jobs")
        await shop.declare_queue("crn-jobs")
        await shop.declare_stream("salaries")
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", read="crm-.*|cr.-job")
        found = await crm.statistics()
        assert (list(found["queues"]), list(found["streams"]), found["hidden"]) == (
            ["crm-jobs"], [], 2,
        )  # fmt: skip
        assert (await shop.statistics())["hidden"] == 0
        for name in ("crm-jobs", "salaries"):
            await shop.bind("amq.direct", name)
        assert [one["destination"] for one in await crm.bindings()] == ["crm-jobs"]
        with pytest.raises(AccessRefused):
            await crm.consume("salarie").__aenter__()
        with pytest.raises(AccessRefused):
            await crm.read("salarie").__aenter__()
        with pytest.raises(UnknownQueue, match="declare it first"):
            await crm.purge_queue("crn-job")
        with pytest.raises(UnknownQueue, match="declare it first"):
            await crm.consume("crn-job").__aenter__()
        with pytest.raises(UnknownQueue, match="mean 'crm-jobs'"):
            await crm.purge_queue("crm-job")
        assert await crm.vhosts() == ["/", "billing"]
        await shop.clear_permission("crm")
        assert await crm.vhosts() == ["billing"]
        elsewhere = durable.connect(joined, vhost="billin")
        with pytest.raises(UnknownVhost, match="mean 'billing'"):
            await elsewhere.statistics()


async def test_a_full_queue_behind_an_exchange_is_not_told_to_who_may_do_nothing_with_it(
    tmp_path: Path,
) -> None:
    """Found: the refusal told its name and its limits."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.declare_queue("salaries", max_length=1, overflow="reject-publish")
        await shop.bind("amq.direct", "salaries", "in")
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", write="amq.direct")
        await crm.publish("amq.direct", "in", b"x")
        with pytest.raises(QueueFull) as hidden:
            await crm.publish("amq.direct", "in", b"x")
        assert (hidden.value.queue, hidden.value.max_length) == ("", None)
        assert "salaries" not in str(hidden.value)
        with pytest.raises(QueueFull, match=r"'salaries' is full \(1 messages\)"):
            await shop.publish("amq.direct", "in", b"x")


async def test_a_mistyped_exchange_suggests_to_a_publisher_only_what_it_may_know(
    tmp_path: Path,
) -> None:
    """Found: calls left the suggestion out, publishes did not."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.declare_exchange("salaries-eu")
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", write="salaries-e")
        with pytest.raises(UnknownExchange) as hidden:
            await crm.publish("salaries-e", "in", b"x")
        assert (hidden.value.name, hidden.value.nearest) == ("salaries-e", "")
        assert "salaries-eu" not in str(hidden.value)
        with pytest.raises(UnknownExchange, match="did you mean 'salaries-eu'"):
            await shop.publish("salaries-e", "in", b"x")


async def test_whoever_may_use_a_name_learns_that_it_is_of_another_kind(tmp_path: Path) -> None:
    """Found by reading: the advice was left out like a name, and replaced by "declare it first"."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.declare_stream("audit")
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", read="audit")
        with pytest.raises(UnknownQueue, match="no queue 'audit': a stream has that name"):
            await crm.purge_queue("audit")


@pytest.mark.parametrize("cleared", [True, False])
async def test_who_may_not_read_any_more_gets_nothing_more(tmp_path: Path, cleared: bool) -> None:
    """Found: consumers and readers went on for as long as they liked."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", read="jobs|audit")
        for name in ("jobs", "audit"):
            await shop.publish("", name, b"0")
        async with crm.consume("jobs") as deliveries, crm.read("audit", start="first") as records:
            (first,) = await take(deliveries, 1)
            await take(records, 1)
            await first.ack()
            await deliveries.synced()
            await shop.set_permission("crm", read="jobs|audit", write="amq.default")
            await shop.publish("", "jobs", b"1")
            await take(deliveries, 1)
            if cleared:
                await shop.clear_permission("crm")
            else:
                await shop.set_permission("crm", write="amq.default")
            for name in ("jobs", "audit"):
                await shop.publish("", name, b"2")
            for feed in (deliveries, records):
                with pytest.raises(AccessRefused):
                    await take(feed, 1)
        async with shop.consume("jobs") as deliveries:
            assert payloads(await take(deliveries, 2)) == [b"1", b"2"]


async def test_an_import_does_not_tell_of_what_its_sender_may_not_declare(tmp_path: Path) -> None:
    """Found: the conflict said how a queue was declared, before anybody asked who wanted to know."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.declare_queue("salaries", max_length=7)
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", configure="crm-.*", write="crm-.*", read="crm-.*")
        for group in ("queues", "streams"):
            for settings in ({}, {"max_length": 8}):
                entry = {"name": "salaries", **settings}
                with pytest.raises(AccessRefused):
                    await crm.import_definitions({"version": 1, "vhost": "/", group: [entry]})


async def test_an_import_needs_what_each_of_its_entries_does(tmp_path: Path) -> None:
    entries = {
        "exchanges": {"name": "events"}, "queues": {"name": "jobs"}, "streams": {"name": "audit"},
        "bindings": {"exchange": "amq.fanout", "destination": "crm-jobs"},
        "permissions": {"cluster": "crm", "configure": ".*"},
    }  # fmt: skip
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.declare_queue("crm-jobs")
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.set_permission("crm", configure="crm-.*", write="crm-.*", read="crm-.*")
        before = await shop.export_definitions()
        for group, entry in entries.items():
            with pytest.raises(AccessRefused):
                await crm.import_definitions({"version": 1, "vhost": "/", group: [entry]})
        assert await shop.export_definitions() == before
