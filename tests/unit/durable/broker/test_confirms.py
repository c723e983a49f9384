"""What a publisher is told, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from durable.broker import confirms as confirms_module
from durable.broker.confirms import Confirms
from durable.protocol.parts import Refusal, decode_confirm, encode_confirm
from durable.vhost.publishers import Publisher
from mesh.errors import TunnelBroken


class Tunnel:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send_nowait(self, part: bytes) -> None:
        self.sent.append(part)


class FullTunnel(Tunnel):
    """Takes nothing until its client reads, or is gone."""

    part_bytes_max = 1
    """So each confirm has one refusal."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.broken = trio.Event(), False

    def send_nowait(self, part: bytes) -> None:
        raise trio.WouldBlock

    async def send(self, part: bytes) -> None:
        await self.released.wait()
        if self.broken:
            raise TunnelBroken("the client is gone")
        self.sent.append(part)


def test_after_the_last_confirm_the_broker_looks_for_what_comes_next() -> None:
    """Who waits for each of its confirms sends the next message then. While the disk works the broker would
    be in the way of the thread that writes, whoever's messages these are."""
    answered: list[None] = []
    spinner = SimpleNamespace(answered=lambda: answered.append(None))
    publisher, tunnel, running = Publisher(bytes(16), 1), Tunnel(), SimpleNamespace(is_quiet=False)
    confirms = Confirms(cast("Any", tunnel), cast("Any", running), publisher, cast("Any", spinner))
    confirms.note_received(2, [])
    publisher.confirmed = 1
    confirms.confirm()
    assert not answered
    publisher.confirmed, running.is_quiet = 2, True
    confirms.confirm()
    assert len(answered) == 1
    confirms.confirm()
    assert len(answered) == 1, "there was nothing more to tell"
    assert tunnel.sent == [encode_confirm(1, []), encode_confirm(2, [])]


@pytest.mark.parametrize("broken", [False, True])
async def test_a_publisher_that_reads_no_refusals_is_waited_for_until_it_does_or_is_gone(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirms_module, "REFUSALS_MAX", 2)
    publisher, tunnel, anything = Publisher(bytes(16), 1), FullTunnel(), cast("Any", None)
    confirms = Confirms(cast("Any", tunnel), anything, publisher, anything)
    refusals = [Refusal(number, 1, "QueueFull", {}) for number in range(5)]
    confirms.note_received(5, refusals)
    publisher.confirmed = 5
    caught_up = trio.Event()

    async def catch_up() -> None:
        await confirms.catch_up()
        caught_up.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(confirms.run)
        nursery.start_soon(catch_up)
        await wait_all_tasks_blocked()
        assert not caught_up.is_set()
        tunnel.broken = broken
        tunnel.released.set()
        await wait_all_tasks_blocked()
        assert caught_up.is_set()
        nursery.cancel_scope.cancel()
    told = [decode_confirm(part) for part in tunnel.sent]
    ends = [0, 0, 0, 0, 5]
    assert told == (
        [] if broken else [(end, [one]) for end, one in zip(ends, refusals, strict=True)]
    )
