"""All systems the bench knows, by name."""

from __future__ import annotations

from .jetstream import JetStream
from .mesh_durable import MeshDurable
from .mesh_requests import MeshRequests
from .mesh_topics import MeshTopics
from .nats import Nats
from .nats_raw import NatsRaw
from .system import System
from .zeromq import ZeroMQ

REFERENCE = "zeromq"
PACKAGES = ("redis-server", "nats-server", "rabbitmq-server", "mosquitto", "activemq")
"""Of Debian, with the servers."""
SYSTEMS: dict[str, System] = {
    one.name: one
    for one in (
        ZeroMQ(),
        ZeroMQ(packed=True),
        ZeroMQ(curve=True),
        MeshRequests(),
        MeshTopics(),
        MeshTopics(batches=True),
        MeshDurable(),
        Nats(),
        NatsRaw(),
        JetStream(),
    )
}
