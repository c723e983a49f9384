"""What a publisher is told, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from durable.broker.confirms import Confirms
from durable.protocol.parts import encode_confirm
from durable.vhost.publishers import Publisher


class Tunnel:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send_nowait(self, part: bytes) -> None:
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
