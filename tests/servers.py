"""Servers that start slowly, started once for many cases of the bench: they run here, and are not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec

from bench.comparison.serving import Serve, Serving, serving
from bench.processes import Troupe
from bench.systems.activemq import ActiveMQSystem
from bench.systems.rabbitmq_durable import QUEUE
from bench.systems.rabbitmq_server import RabbitMQSystem
from bench.systems.system import HOST, System
from bench.systems.topics import MESSAGES, REQUESTS, reply_topic

CONNECTIONS_MAX = 2
"""The most that a case here has."""


def delete_queues(server: Serving) -> None:
    """Delete the queues of a case from RabbitMQ: those of another type have the same name."""
    pika = import_module("pika")
    replies = [reply_topic(number) for number in range(CONNECTIONS_MAX)]
    settings = pika.ConnectionParameters(HOST, server.place.ports[0])
    with pika.BlockingConnection(settings) as connection:
        channel = connection.channel()
        for queue in (QUEUE, MESSAGES, REQUESTS, *replies):
            channel.queue_delete(queue)


CLEAN_AFTER: dict[str, Callable[[Serving], None]] = {
    "rabbitmq": delete_queues,
    "activemq": lambda _: None,  # Topics without persistence: nothing stays.
}
"""Servers that take seconds of CPU to start, each in the same way for all its clients; tests/conftest.py names them."""


def server_of(system: System) -> str | None:
    """Return the name of the server that all clients of this kind can share, or None."""
    if isinstance(system, ActiveMQSystem):
        return "activemq"
    if isinstance(system, RabbitMQSystem) and find_spec("pika"):
        return "rabbitmq"
    return None  # Without pika there would be nothing to delete RabbitMQ's queues with.


class Shared:
    """A running server. Its troupe is that of the cases, which ends all of it if one of them fails."""

    def __init__(self, name: str, system: System) -> None:
        self._clean = CLEAN_AFTER[name]
        with ExitStack() as stack:
            self.troupe = stack.enter_context(Troupe())
            self._server = stack.enter_context(serving(self.troupe, system, CONNECTIONS_MAX))
            self._stack = stack.pop_all()

    @contextmanager
    def serve(
        self, troupe: Troupe, system: System, connections: int, roles: Sequence[str]
    ) -> Iterator[Serving]:
        assert troupe is self.troupe, "usage is asked of the server as well"
        assert connections <= CONNECTIONS_MAX
        place = Serving(troupe, system, self._server.place)
        place.summon(*roles)
        yield place
        assert len(troupe.usage()) == 1, "the clients have ended"
        self._clean(self._server)

    def close(self) -> None:
        self._stack.close()


class Servers:
    """Runs one shared server at a time, until a case needs another one or has failed."""

    def __init__(self) -> None:
        self._running: dict[str, Shared] = {}

    @contextmanager
    def of(self, system: System) -> Iterator[tuple[Troupe, Serve]]:
        """Give a case its troupe and its `serve`: with a server that runs already, or one of its own."""
        name = server_of(system)
        if name is None:
            with Troupe() as troupe:
                yield troupe, serving
            return
        if name not in self._running:
            self.close()
            self._running[name] = Shared(name, system)
        shared = self._running[name]
        try:
            yield shared.troupe, shared.serve
        except BaseException as error:
            shared.troupe.abandon(error)
            self.close()
            raise

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].close()
