"""Which topics a cluster may capture: with which patterns it may declare streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
from durable.client.connection import Connection
from durable.definitions import PermissionDefinition
from durable.errors import AccessRefused, DefinitionConflict, TooManyPatterns
from durable.log.bodies import decode_definitions, encode_definitions
from durable.log.record import Draft, Kind
from durable.vhost import changes
from durable.vhost.addition import build_addition
from security.files import new_cluster
from security.keyring import FileKeyring
from tests.brokers import QUIET, client, node_of, payloads, serving, take, until_told
from tests.nodes import node, subscribed
from tests.stores import make_store
from tests.waiting import until

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
ITS_OWN = {"configure": "crm-.*", "write": "crm-.*", "read": "crm-.*"}


def definitions(**groups: list[dict[str, Any]]) -> dict[str, Any]:
    return {"version": 1, "vhost": "/", **groups}


async def test_found_who_may_configure_a_stream_reads_what_it_is_not_trusted_with(
    tmp_path: Path,
) -> None:
    """Key files: crm is no cluster that shop trusts, and read shop's topics through the broker, which both trust."""
    keys = {one: new_cluster(tmp_path / "keys", one) for one in ("broker", "shop", "crm")}

    def ring(own: str, *trusted: str) -> FileKeyring:
        return FileKeyring([keys[own], *(keys[one].public_half() for one in trusted)])

    trusting: dict[str, Any] = {"network_secret": None, "keyring": ring("broker", "shop", "crm")}
    async with (
        serving(tmp_path / "data", **trusting) as broker,
        node("shop", node_of(broker), keyring=ring("shop", "broker")) as shop_node,
        node("crm", node_of(broker), keyring=ring("crm", "broker")) as crm_node,
    ):
        shop, crm = durable.connect(shop_node), durable.connect(crm_node)
        await shop.set_permission("shop", **EVERYTHING, capture=".*")
        await shop.set_permission("crm", **ITS_OWN)
        for pattern in ("orders.>", "orders.new", "*.new", ">", "crm.>"):
            with pytest.raises(AccessRefused) as refused:
                await crm.declare_stream("crm-all", patterns=pattern)
            error = refused.value
            assert (error.what, error.kind, error.name) == ("capture", "pattern", pattern)
            assert (error.cluster, error.vhost) == ("crm", "/")
            said = f"may not capture pattern '{pattern}' in vhost '/': give it a capture permission"
            assert said in str(error)
        await shop.set_permission("crm", **ITS_OWN, capture=r"crm\..*")
        for pattern in ("orders.>", "*.new", ">"):
            with pytest.raises(AccessRefused):
                await crm.declare_stream("crm-all", patterns=["crm.>", pattern])
        assert not (await shop.statistics())["streams"]
        await crm.declare_stream("crm-all", patterns="crm.>")
        await crm.declare_stream("crm-none")
        await shop.declare_stream("orders", patterns=["orders.>", "*.new"])
        for publisher in (shop_node, crm_node):
            await subscribed(publisher, "crm.new", 2)
        await shop_node.publish("orders.new", b"secret")
        await crm_node.publish("crm.new", b"own")
        await until_told(shop, lambda told: told["streams"]["orders"]["end"] == 2)
        await until_told(shop, lambda told: told["streams"]["crm-all"]["end"] == 1)
        async with crm.read("crm-all", start="first") as records:
            assert payloads(await take(records, 1)) == [b"own"]


async def test_as_long_as_no_permission_is_set_everybody_captures(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker, "crm") as crm:
        await crm.declare_stream("all", patterns=">")


async def test_a_stream_that_is_there_is_declared_again_and_captures_whatever_is_permitted(
    tmp_path: Path,
) -> None:
    """A program that declares its streams at each start goes on, and nothing new is captured by that."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.set_permission("shop", **EVERYTHING)
        await shop.set_permission("crm", **ITS_OWN, capture=".*")
        await crm.declare_stream("crm-all", patterns="t.>")
        await shop.set_permission("crm", **ITS_OWN)
        await crm.declare_stream("crm-all", patterns="t.>")
        stream = {"name": "crm-all", "patterns": ["t.>"]}
        assert await crm.import_definitions(definitions(streams=[stream])) == {}
        with pytest.raises(DefinitionConflict):
            await crm.declare_stream("crm-all", patterns=["t.>", "u"])
        await subscribed(node_of(broker), "t.a")
        await node_of(broker).publish("t.a", b"1")
        await until_told(crm, lambda told: told["streams"]["crm-all"]["end"] == 1)
        await crm.delete_stream("crm-all")
        with pytest.raises(AccessRefused, match="may not capture"):
            await crm.declare_stream("crm-all", patterns="t.>")
        with pytest.raises(AccessRefused):  # Who administers may grant it to itself, and has to.
            await shop.declare_stream("all", patterns="t.>")


async def test_what_was_permitted_before_a_declaration_had_its_turn_does_not_count(
    tmp_path: Path,
) -> None:
    refused = list[AccessRefused]()
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.set_permission("shop", **EVERYTHING)
        await shop.set_permission("crm", **ITS_OWN, capture=".*")
        running = broker.hosted("/")

        async def declare() -> None:
            with pytest.raises(AccessRefused) as caught:
                await crm.declare_stream("crm-all", patterns=">")
            refused.append(caught.value)

        async with trio.open_nursery() as nursery, running.change_writer.gate.exclusive():
            nursery.start_soon(declare)
            await until(lambda: running.change_writer.gate.waiting > 0)
            said = PermissionDefinition(cluster="crm", **ITS_OWN, capture="")
            running.vhost.change(changes.permission(said), 0)
        assert [one.what for one in refused] == ["capture"]
        assert not (await shop.statistics())["streams"]


async def test_an_import_declares_nothing_if_a_pattern_is_not_permitted(tmp_path: Path) -> None:
    streams = [{"name": f"crm-{at}", "patterns": [f"t.{at}"]} for at in (1, 2)]
    asked = definitions(streams=streams, queues=[{"name": "crm-jobs"}])
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.set_permission("shop", **EVERYTHING)
        await shop.set_permission("crm", **ITS_OWN, capture=r"t\.1")
        with pytest.raises(AccessRefused, match=r"may not capture pattern 't\.2' in vhost '/'"):
            await crm.import_definitions(asked)
        told = await shop.statistics()
        assert (told["queues"], told["streams"]) == ({}, {})
        await shop.set_permission("crm", **ITS_OWN, capture=r"t\.[12]")
        assert await crm.import_definitions(asked) == {"queue": 1, "stream": 2}


@asynccontextmanager
async def clients(
    tmp_path: Path,
) -> AsyncIterator[tuple[durable.Broker, Connection, Connection, Connection]]:
    """A broker; shop, which administers `/`; crm there, and in a vhost `crm` that shop has not made yet."""
    async with (
        serving(tmp_path) as broker,
        client(broker) as shop,
        node("crm", node_of(broker)) as crm_node,
    ):
        await shop.set_permission("shop", **EVERYTHING, capture=".*")
        home, own = durable.connect(crm_node), durable.connect(crm_node, vhost="crm")
        yield broker, shop, home, own


async def declare(vhost: Connection, name: str) -> None:
    await vhost.declare_stream(name, patterns=["t.>", ">"])


async def import_stream(vhost: Connection, name: str) -> None:
    asked = definitions(streams=[{"name": name, "patterns": ["t.>", ">"]}])
    assert await vhost.import_definitions({**asked, "vhost": "crm"}) == {"stream": 1}


@pytest.mark.parametrize("make", [declare, import_stream])
async def test_found_who_may_make_a_vhost_captures_there_what_it_may_not_capture(
    tmp_path: Path, make: Callable[[Connection, str], Awaitable[None]]
) -> None:
    """A vhost without permissions allows everything; what reaches the node is the broker's, not that vhost's."""
    own_vhost = {**ITS_OWN, "configure": r"crm-.*|mesh\.vhost\.crm"}
    async with clients(tmp_path) as (broker, shop, home, own):
        await shop.set_permission("crm", **own_vhost, capture=r"t\..*")
        await home.create_vhost("crm")
        await own.declare_stream("none")
        with pytest.raises(AccessRefused, match="may not capture pattern '>' in vhost '/'") as told:
            await make(own, "all")
        error = told.value
        assert (error.what, error.name, error.vhost) == ("capture", ">", "/")
        await own.set_permission(
            "crm", **EVERYTHING, capture=".*"
        )  # It may say there what it likes.
        with pytest.raises(AccessRefused, match="in vhost '/'"):
            await make(own, "all")
        assert [*(await own.statistics())["streams"]] == ["none"]
        await shop.set_permission("crm", **own_vhost, capture=r"t\..*|>")
        await make(own, "all")
        await own.set_permission("crm", **EVERYTHING, capture=r"t\..*")
        with pytest.raises(AccessRefused, match="may not capture pattern '>' in vhost 'crm'"):
            await make(own, "more")
        await subscribed(node_of(broker), "x")
        await node_of(broker).publish("x", b"1")
        await until_told(own, lambda told: told["streams"]["all"]["end"] == 1)


@pytest.mark.parametrize("make", [declare, import_stream])
async def test_found_who_has_no_permission_in_the_default_vhost_captures_in_another(
    tmp_path: Path, make: Callable[[Connection, str], Awaitable[None]]
) -> None:
    async with clients(tmp_path) as (_, shop, _, own):
        await shop.create_vhost("crm")
        for permitted in (False, True):  # In the vhost; without any, all is.
            if permitted:
                await own.set_permission("crm", **EVERYTHING, capture=".*")
            with pytest.raises(AccessRefused, match=r"may not capture pattern 't\.>' in vhost '/'"):
                await make(own, "all")
        await shop.set_permission("crm", capture=".*")
        await make(own, "all")


async def test_as_long_as_no_permission_is_set_in_the_default_vhost_that_of_another_counts(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker, node("crm", node_of(broker)) as crm:
        await durable.connect(crm).create_vhost("crm")
        own = durable.connect(crm, vhost="crm")
        await own.set_permission("crm", **EVERYTHING, capture=r"t\..*")
        await own.declare_stream("some", patterns="t.>")
        with pytest.raises(AccessRefused, match="may not capture pattern '>' in vhost 'crm'"):
            await own.declare_stream("all", patterns=">")


@pytest.mark.parametrize("make", [declare, import_stream])
async def test_who_may_not_capture_is_told_so_before_there_are_too_many_patterns(
    tmp_path: Path, make: Callable[[Connection, str], Awaitable[None]]
) -> None:
    """Found: it heard TooManyPatterns."""
    async with serving(tmp_path, subscriptions_max=1) as broker, client(broker) as shop:
        await shop.create_vhost("crm")
        own = durable.connect(shop._channel._node, vhost="crm")
        await shop.set_permission("shop", **EVERYTHING)
        with pytest.raises(AccessRefused, match="in vhost '/'"):
            await make(own, "all")
        await shop.set_permission("shop", **EVERYTHING, capture=".*")
        with pytest.raises(TooManyPatterns):
            await make(own, "all")


async def test_what_was_permitted_in_the_default_vhost_before_the_turn_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate that an import holds is that of its vhost: permissions in `/` may change while it is being checked."""
    async with clients(tmp_path) as (broker, shop, _, own):

        def forbidden_meanwhile(*given: Any) -> Any:
            said = PermissionDefinition(cluster="crm", capture="")
            broker.hosted("/").vhost.change(changes.permission(said), 0)
            return build_addition(*given)

        monkeypatch.setattr("durable.broker.defining.build_addition", forbidden_meanwhile)
        await shop.create_vhost("crm")
        await shop.set_permission("crm", capture=".*")
        with pytest.raises(AccessRefused, match="in vhost '/'"):
            await import_stream(own, "all")
        assert not (await own.statistics())["streams"]


async def test_definitions_exported_before_allow_every_pattern_and_others_what_they_say(
    tmp_path: Path,
) -> None:
    said = [
        {"cluster": "shop", **EVERYTHING}, {"cluster": "crm", **ITS_OWN, "capture": r"crm\..*"}
    ]  # fmt: skip
    told = [{"capture": ".*", **one} for one in said]
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        await shop.import_definitions(definitions(permissions=said))
        exported = await shop.export_definitions()
        assert exported["permissions"] == told
        await shop.declare_stream("all", patterns=">")
        with pytest.raises(AccessRefused):
            await crm.declare_stream("crm-all", patterns=">")
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        assert (await shop.export_definitions())["permissions"] == told
        assert await shop.import_definitions(exported) == {}
        with pytest.raises(AccessRefused):
            await crm.declare_stream("crm-all", patterns=">")
        await crm.declare_stream("crm-all", patterns="crm.*")


async def test_permissions_in_a_log_from_before_allow_every_pattern(tmp_path: Path) -> None:
    change = [changes.PERMISSION, {"cluster": "shop", **EVERYTHING}]
    make_store(tmp_path, [Draft(Kind.DEFINITIONS, encode_definitions([change]))])
    for name in ("first", "second"):  # The second time it is in a snapshot.
        async with serving(tmp_path) as broker, client(broker) as shop:
            await shop.declare_stream(name, patterns=f"{name}.>")
            (found,) = (await shop.export_definitions())["permissions"]
            assert found["capture"] == ".*"


@pytest.mark.parametrize("imported", [False, True])
async def test_what_is_set_is_in_the_log_as_earlier_releases_can_read_it(
    tmp_path: Path, imported: bool
) -> None:
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        log = broker.hosted("/").log
        for capture in (".*", "", "a.*"):
            said = {"cluster": "shop", **EVERYTHING, "capture": capture}
            begin = log.end
            if imported:
                await shop.import_definitions(definitions(permissions=[said]))
            else:
                await shop.set_permission(**said)
            records = [*await log.read(begin, 1 << 20)]
            wanted = changes.permission(PermissionDefinition(**said))
            assert [[*decode_definitions(one)] for one in records] == [wanted, wanted]


async def test_an_earlier_client_sets_what_it_meant(tmp_path: Path) -> None:
    """It sends three expressions; nor does one of this release send `capture` where it is everything."""
    sent = list[dict[str, Any]]()
    async with serving(tmp_path) as broker, client(broker) as shop:
        channel = shop._channel
        await channel.call("set_permission", definition={"cluster": "shop", **EVERYTHING})
        await shop.declare_stream("all", patterns=">")
        call = channel.call

        async def noting(operation: str, **arguments: Any) -> Any:
            sent.append(arguments["definition"])
            return await call(operation, **arguments)

        channel.call = noting  # type: ignore[method-assign]
        await shop.set_permission("crm", capture=".*")
        await shop.set_permission("crm", read="x")
    empty = {"cluster": "crm", "configure": "", "write": ""}
    assert sent == [{**empty, "read": ""}, {**empty, "read": "x", "capture": ""}]
