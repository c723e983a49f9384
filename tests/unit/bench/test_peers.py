"""How servers and clients of peers are set up: nothing waits in them, or works beside, that need not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.comparison import latency, throughput
from bench.latency.workloads import WORKLOADS
from bench.loops.blocking_loop import BlockingLoop
from bench.plan import Scale
from bench.systems import SYSTEMS, jetstream, mesh_durable, rabbitmq_durable, redis_streams
from bench.systems.system import HOST, Place, System
from bench.systems.topics import TopicSystem

CONNECTED_MQTT = b"\x20\x02\x00\x00"
CONNECTED_STOMP = b"CONNECTED\nversion:1.2\n\n\x00"


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """The port of a server that says that to who connects, and hangs up when told to."""
    with socket.create_server((HOST, 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)
                while (words := connection.recv(1 << 16)) and b"DISCONNECT" not in words:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("name", "module", "answer", "socket_of"),
    [
        ("mosquitto-paho", "paho", CONNECTED_MQTT, lambda client: client._client.socket()),
        ("activemq", "stomp", CONNECTED_STOMP, lambda client: client._sending.transport.socket),
    ],
)
def test_what_is_small_leaves_at_once(
    name: str, module: str, answer: bytes, socket_of: Callable[[Any], socket.socket]
) -> None:
    """Nagle's algorithm and a delayed acknowledgement made 40 ms of half a millisecond."""
    if find_spec(module) is None:
        pytest.skip(f"no Python module {module}")
    system, loop = SYSTEMS[name], BlockingLoop()
    assert isinstance(system, TopicSystem)

    async def main(port: int) -> None:
        place = Place(ports=[port], secret="", size_bytes=16, directory="")
        client = system.connect(place, loop, first=True)
        await client.open()
        assert socket_of(client).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await client.close()

    with answering(answer) as port:
        loop.run(lambda: main(port))


def test_activemq_is_told_so_too() -> None:
    """Its STOMP connector asks the kernel for nothing by itself (5.17.2, strace)."""
    place = Place(ports=[61613], secret="", size_bytes=16, directory="")
    (command,) = SYSTEMS["activemq"].commands(place)
    assert f"(stomp://{HOST}:61613?transport.tcpNoDelay=true)" in command.words[-1]


@pytest.mark.parametrize(
    "name",
    ["redis-streams", "redis-streams-each", "redis-streams-raw", "redis-streams-raw-each"],
)
def test_redis_does_not_rewrite_its_file_within_a_usual_load(name: str) -> None:
    place = Place(ports=[6379], secret="", size_bytes=16, directory="")
    (command,) = SYSTEMS[name].commands(place)
    assert " ".join(command.words).endswith(
        "--appendonly yes --appendfsync always --auto-aof-rewrite-min-size 4294967296"
    )


def test_a_server_that_is_compiled_while_it_runs_gets_more_time_before_what_counts(
    tmp_path: Path,
) -> None:
    """ActiveMQ needed a quarter more of CPU for each message in its first second."""
    nats, activemq = SYSTEMS["nats"], SYSTEMS["activemq"]
    assert throughput.warm_s(nats, 1.0, Scale()) == throughput.WARM_PART
    assert throughput.warm_s(activemq, 1.0, Scale()) == activemq.warm_s > 1.0
    assert throughput.warm_s(activemq, 20.0, Scale()) == throughput.warm_s(nats, 20.0, Scale())
    assert before_load_s(activemq, 0.3, tmp_path) - before_load_s(nats, 0.3, tmp_path) == (
        pytest.approx(activemq.warm_s - 0.3)
    )
    assert before_load_s(activemq, 5.0, tmp_path) == before_load_s(nats, 5.0, tmp_path)


def before_load_s(system: System, warm_s: float, directory: Path) -> float:
    """How long a run may take of which nothing but the warm-up differs."""
    case = latency.case(system, WORKLOADS["L1"], latency.Lasting(1.0, warm_s, 1), directory)
    assert case.seconds_max is not None
    return case.seconds_max(Scale())


def test_what_an_open_load_stores_and_nobody_reads_is_bounded_alike() -> None:
    """Who has to drop the oldest works more than who may keep it all."""
    bound = 1 << 30
    assert mesh_durable.Confirmed.limits == {"max_length_bytes": bound}
    assert jetstream.Requester.limits == {"max_bytes": bound}
    assert {"x-max-length-bytes": bound} == rabbitmq_durable.LIMITS
    assert ("XADD", "bench", "MAXLEN", "~", bound >> 10) == redis_streams.append(bytes(1024))[:5]
