"""Mosquitto 2.0 of Debian, and paho with a thread for each connection. Topics are those of MQTT.

QoS 0 has no acks. With QoS 1 the server acks each publish, and a consumer each delivery. Nagle's algorithm is turned
off on both sides: with it a QoS 1 message takes 40 ms instead of half a millisecond.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.loops.loop import Loop, drive

from .system import HOST, Command, LoopName, Place, Received, not_installed, send_at_once
from .topics import Connection, TopicSystem

PROGRAM = "/usr/sbin/mosquitto"
INFLIGHT = 2000
"""Messages without an ack, in each direction; both sides default to 20."""
ANSWER_S_MAX = 60.0
CONFIGURATION = """\
listener {port} {host}
allow_anonymous true
set_tcp_nodelay true
persistence false
max_queued_messages 0
max_inflight_messages {inflight}
log_dest stderr
log_type error
user root
"""
"""`max_queued_messages 0` means no limit; beyond a limit Mosquitto drops messages. `user root`: started by
root, it would otherwise become another user, and the kernel then no longer kills it with its parent
(roles/stage.py).
"""


class MosquittoSystem(TopicSystem):
    modules: tuple[str, ...] = ()

    def missing(self) -> str | None:
        return not_installed(program=PROGRAM, package="mosquitto", modules=self.modules)

    def commands(self, place: Place) -> list[Command]:
        file = Path(place.directory) / "mosquitto.conf"
        file.write_text(CONFIGURATION.format(port=place.ports[0], host=HOST, inflight=INFLIGHT))
        return [Command([PROGRAM, "-c", str(file)])]


class MosquittoPaho(MosquittoSystem):
    modules = ("paho.mqtt.client",)
    loop: LoopName = "blocking"

    def __init__(self, *, qos: int = 0) -> None:
        self._qos = qos
        self.name = f"mosquitto-paho{'-qos1' * qos}"
        self.client = f"paho, loop_start, QoS {qos}, MQTT 3.1.1"

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Paho:
        return Paho(place, self._qos)


class Paho(Connection):
    def __init__(self, place: Place, qos: int) -> None:
        self._place, self._qos = place, qos
        self._last: Any = None
        self._answers = False

    async def open(self) -> None:
        mqtt = import_module("paho.mqtt.client")
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
        self._client.max_inflight_messages_set(INFLIGHT)
        connected = threading.Event()
        self._client.on_connect = lambda *_: connected.set()
        self._client.on_socket_open = lambda _, __, opened: send_at_once(opened)
        self._client.connect(HOST, self._place.ports[0])
        self._client.loop_start()
        wait(connected)

    async def subscribe(self, topic: str, received: Received) -> None:
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.on_message = lambda _, __, message: drive(received((message.payload,)))
        self._answers = True
        self._client.subscribe(topic, self._qos)
        wait(subscribed)

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Publish, and wait for the payloads of the call before: those of at most two calls wait in the client.

        A connection that subscribes does not wait: it sends from a callback, which runs in the thread it would wait
        for.
        """
        publish, before = self._client.publish, self._last
        for payload in payloads:
            self._last = publish(topic, payload, self._qos)
        if before is not None and not self._answers:
            wait_published(before)

    async def flush(self) -> None:
        wait_published(self._last)

    async def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def wait(answered: threading.Event) -> None:
    if not answered.wait(ANSWER_S_MAX):
        raise TimeoutError(f"no answer for {ANSWER_S_MAX:.0f} s")


def wait_published(last: Any) -> None:
    """Wait until a message is written, or with QoS 1 acked. Raises TimeoutError after ANSWER_S_MAX."""
    last.wait_for_publish(ANSWER_S_MAX)
    if not last.is_published():
        raise TimeoutError(f"a message is not published after {ANSWER_S_MAX:.0f} s")


SYSTEMS = (MosquittoPaho(), MosquittoPaho(qos=1))
