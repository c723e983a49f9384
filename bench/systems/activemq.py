"""ActiveMQ 5.17 of Debian, without persistence, and stomp.py with a thread for each connection. Topics are JMS topics.

Debian packages it for embedding in applications, so it is started by its main class. Nagle's algorithm is turned off on
both sides, which neither does by default: a delivery is one write, and would wait for 40 ms now and then.
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

PROGRAM = "java"
JARS = Path("/usr/share/java")
MAIN = "org.apache.activemq.console.Main"
ANSWER_S_MAX = 60.0


class ActiveMQSystem(TopicSystem):
    modules: tuple[str, ...] = ()
    warm_s = 3.0

    def missing(self) -> str | None:
        broker = str(JARS / "activemq-broker.jar")
        return (
            not_installed(program=PROGRAM, package="activemq")
            or not_installed(program=broker, package="activemq", modules=self.modules)
        )  # fmt: skip

    def commands(self, place: Place) -> list[Command]:
        """Return the command with the options of ActiveMQ's own script, except for where it writes."""
        directory = Path(place.directory)
        listen = f"stomp://{HOST}:{place.ports[0]}?transport.tcpNoDelay=true"
        return [
            Command([
                PROGRAM, f"-Dactivemq.base={directory}", f"-Dactivemq.data={directory / 'data'}",
                f"-Djava.io.tmpdir={directory}", "-XX:-UsePerfData", "-cp", f"{JARS}/*", MAIN,
                "start", f"broker:({listen})?persistent=false&useJmx=false",
            ])
        ]  # fmt: skip


class ActiveMQ(ActiveMQSystem):
    name = "activemq"
    client = (
        "stomp.py, STOMP 1.2, a listener called for each message; sends over another connection"
    )
    modules = ("stomp",)
    loop: LoopName = "blocking"

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Stomp:
        return Stomp(place)


class Stomp(Connection):
    """Sends over one connection and receives over another.

    While a listener sends, its connection is not read. With a single connection, the server waited for the client
    to read while it held the lock that it needs to accept what the client sends: a deadlock.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._connections: list[Any] = []

    async def open(self) -> None:
        self._sending = self._connected()

    async def subscribe(self, topic: str, received: Received) -> None:
        receiving = self._connected()
        listener, answered = listener_of(received)
        receiving.set_listener("", listener)
        receiving.subscribe(destination(topic), id="1", ack="auto", receipt="1")
        if not answered.wait(ANSWER_S_MAX):
            raise TimeoutError(f"no receipt for {ANSWER_S_MAX:.0f} s")

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Send; over a lost connection nothing is sent, and the receiver counts the missing messages."""
        send, where = self._sending.send, destination(topic)
        if not self._sending.is_connected():
            return
        for payload in payloads:
            send(where, payload)

    async def close(self) -> None:
        for connection in self._connections:
            if connection.is_connected():
                connection.disconnect()

    def _connected(self) -> Any:
        connection = import_module("stomp").StompConnection12(
            [(HOST, self._place.ports[0])], auto_decode=False, reconnect_attempts_max=1
        )
        connection.connect(wait=True)
        send_at_once(connection.transport.socket)
        self._connections.append(connection)
        return connection


def destination(topic: str) -> str:
    return f"/topic/{topic}"


def listener_of(received: Received) -> tuple[Any, threading.Event]:
    """Return a listener, and an event that is set once the server has confirmed the subscription.

    The class is made here because its base class exists only where stomp.py is installed.
    """
    answered = threading.Event()

    class Listener(import_module("stomp").ConnectionListener):  # type: ignore[misc]
        def on_message(self, frame: Any) -> None:
            drive(received((frame.body,)))

        def on_receipt(self, frame: Any) -> None:
            answered.set()

    return Listener(), answered


SYSTEMS = (ActiveMQ(),)
