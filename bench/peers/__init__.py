"""Other brokers, for comparison: their servers from Debian, their best Python clients from the extra `bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .jetstream import JetStream
from .rabbitmq import RabbitMQ

if TYPE_CHECKING:
    from .peer import Peer

PEERS: tuple[Peer, ...] = (RabbitMQ("classic"), RabbitMQ("quorum"), JetStream())


def peer(name: str) -> Peer:
    return next(one for one in PEERS if one.name == name)
