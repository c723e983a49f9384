"""The first words of a tunnel: those that do not come, and those of another release."""

from __future__ import annotations

import logging
from pathlib import Path

import msgpack
import pytest
import trio

from tests.brokers import node_of, serving
from tests.nodes import linked, node


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
        assert "a session of cluster shop ends" in caplog.text
        assert "no hello within 0.1 s" in caplog.text
