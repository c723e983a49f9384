"""Who is at the other end of a session, and what it may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, TypeVar

from ..errors import ExclusiveQueue, Malformed
from ..protocol.calls import Hello
from ..queues.queue import Queue
from ..routing.permissions import WRITE, Need, Permissions, for_publish

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Peer:
    """One connection: a cluster, known by its key, and the queues that end with it."""

    cluster: str
    permissions: Permissions
    session: bytes
    exclusive: set[int] = attribute(default_factory=set)
    """First lanes of queues that are its own: a name may come to mean another queue."""

    def may_publish(self, exchange: str) -> None:
        """Raises AccessRefused."""
        if not self.permissions.may(self.cluster, WRITE, exchange):
            self.permissions.check(self.cluster, for_publish(exchange))

    def check(self, needs: Iterable[Need]) -> None:
        """Raises AccessRefused."""
        self.permissions.check(self.cluster, needs)

    def check_own(self, queue: Queue) -> None:
        """Raises ExclusiveQueue: it is another connection's."""
        if queue.definition.exclusive and queue.lanes[0].id not in self.exclusive:
            raise ExclusiveQueue(queue.name)


def field(hello: Hello, name: str, kind: type[T], default: Any = ...) -> T:
    """A field of a hello. Raises Malformed."""
    value = hello.fields.get(name, default)
    if value is default and default is not ...:
        return value  # type: ignore[no-any-return]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Malformed(f"a hello whose {name} is {type(value).__name__}, not {kind.__name__}")
    return value
