"""All systems the bench knows, by name."""

from __future__ import annotations

from .activemq import ActiveMQ
from .activemq_raw import ActiveMQRaw
from .jetstream import JetStream
from .mesh_durable import MeshDurable
from .mesh_requests import MeshRequests
from .mesh_topics import MeshTopics
from .mosquitto import MosquittoPaho
from .mosquitto_gmqtt import MosquittoGmqtt
from .mosquitto_raw import MosquittoRaw
from .nats import Nats
from .nats_raw import NatsRaw
from .nng import Nng
from .rabbitmq import RabbitMQ
from .rabbitmq_amqpstorm import RabbitMQStorm
from .rabbitmq_durable import RabbitMQDurable
from .rabbitmq_raw import RabbitMQRaw
from .redis import Redis
from .redis_raw import RedisRaw
from .redis_streams import RedisStreams
from .system import System
from .zenoh import Zenoh
from .zeromq import ZeroMQ

REFERENCE = "zeromq"
PACKAGES = ("redis-server", "nats-server", "rabbitmq-server", "mosquitto", "activemq")
"""Of Debian, with the servers."""
CLIENTS = (
    "pynng", "eclipse-zenoh", "redis", "hiredis", "nats-py", "pika", "amqpstorm", "paho-mqtt",
    "gmqtt", "stomp.py",
)  # fmt: skip
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
        Nng(),
        Zenoh(),
        Redis(),
        Redis(pipelined=True),
        RedisRaw(),
        RedisStreams(),
        Nats(),
        NatsRaw(),
        JetStream(),
        RabbitMQ(),
        RabbitMQStorm(),
        RabbitMQRaw(),
        RabbitMQDurable(),
        RabbitMQDurable(queue_type="quorum"),
        MosquittoPaho(),
        MosquittoGmqtt(),
        MosquittoPaho(qos=1),
        MosquittoRaw(),
        ActiveMQ(),
        ActiveMQRaw(),
    )
}
