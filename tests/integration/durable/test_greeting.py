"""The first words of a tunnel: those that do not come, and those of another release."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio

import durable
import mesh
from durable.client import channel
from durable.errors import Malformed
from durable.protocol.calls import VERSION, decode_hello, encode_hello
from durable.protocol.parts import encode_ended
from tests.brokers import client, drain, node_of, serving
from tests.nodes import linked, node
from tests.waiting import PATIENCE_S


async def test_a_client_that_says_nothing_holds_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by reading: it held one for as long as it lived, of the 10,000 that a node may have."""
    monkeypatch.setattr("durable.broker.sessions.HELLO_S", 0.1)
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as silent:
        await linked(silent, node_of(broker))
        with caplog.at_level(logging.WARNING, "durable"):
            async with silent.open_tunnel("broker/durable") as tunnel:
                with trio.fail_after(10):
                    (said,) = [part async for part in tunnel]
        assert msgpack.unpackb(said[1:])[0] == "Malformed"
        assert "a session of cluster shop ended" in caplog.text
        assert "no hello within 0.1 s" in caplog.text


async def test_what_makes_no_sense_is_a_warning_once_for_each_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: a client could fill the disk that the log is written to, with a line for each tunnel."""
    async with (
        serving(tmp_path) as broker,
        node("shop", node_of(broker)) as shop,
        node("audit", node_of(broker)) as audit,
    ):
        with caplog.at_level(logging.INFO, "durable"), trio.fail_after(PATIENCE_S):
            for hostile in (shop, audit, shop, shop):
                await linked(hostile, node_of(broker))
                async with hostile.open_tunnel("broker/durable") as tunnel:
                    await tunnel.send(b"no hello")
                    assert len([part async for part in tunnel]) == 1
    told = [one for one in caplog.records if "a session of cluster" in one.getMessage()]
    assert [one.levelname for one in told] == ["WARNING", "WARNING", "INFO", "INFO"]


async def test_a_client_of_an_earlier_version_is_told_both_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: the version was the same when publishers lost their ids, and a greeting made no sense."""

    def before(*args: Any, **fields: Any) -> bytes:
        hello: bytes = msgpack.packb({**msgpack.unpackb(encode_hello(*args, **fields)), "v": 1})
        return hello

    both = f"version 1, and this broker speaks {VERSION}"
    async with serving(tmp_path) as broker:
        with monkeypatch.context() as earlier, caplog.at_level(logging.WARNING, "durable"):
            earlier.setattr(channel, "encode_hello", before)
            async with client(broker) as shop:
                for call in (shop.declare_queue("jobs"), shop.publish("", "jobs", b"1")):
                    with pytest.raises(Malformed, match=both):
                        await call
        assert "a session of cluster shop ended: " in caplog.text
        assert both in caplog.text
        async with client(broker) as shop:
            await shop.declare_queue("jobs")
            assert await drain(shop, "jobs") == []


async def test_a_client_of_a_later_version_is_told_both_at_once() -> None:
    """By a broker of version 1, in its words."""
    service = mesh.Service("broker")

    @service.tunnel("durable")
    async def refuse(tunnel: mesh.Tunnel) -> None:
        assert decode_hello(await anext(tunnel)).kind == "control"
        refusal = Malformed("a hello of version 2; this broker speaks 1")
        await tunnel.send(encode_ended(refusal))

    async with node(service) as old, node("shop", old) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        with pytest.raises(Malformed, match="version 2; this broker speaks 1"):
            await shop.declare_queue("jobs")
        with pytest.raises(Malformed, match="version 2; this broker speaks 1"):
            async with shop.publisher() as publisher:
                await publisher.publish("", "jobs", [b"1"])


async def test_a_broker_that_leaves_does_not_wait_for_its_clients(tmp_path: Path) -> None:
    """They stay for as long as they like, and find its next start."""
    async with node("shop") as joined:
        shop = durable.connect(joined)
        with trio.fail_after(PATIENCE_S):
            async with serving(tmp_path, drain_s=2 * PATIENCE_S, seeds=[joined.endpoints[0]]):
                await shop.declare_queue("jobs")
                await shop.consume("jobs").__aenter__()
