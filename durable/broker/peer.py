"""Who is at the other end of a session, and what it may do."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..definitions import BindingDefinition
from ..errors import ExclusiveQueue, QueueFull, Unknown
from ..protocol.failures import take_apart
from ..protocol.parts import Refusal
from ..queues.queue import Queue
from ..routing.permissions import WRITE, Need, Permissions, for_publish

_TIDY_FROM = 64


@dataclass(slots=True, eq=False)
class Peer:
    """One connection: a cluster, known by its key, and the queues that end with it."""

    cluster: str
    permissions: Permissions
    session: bytes
    exclusive: set[int] = field(default_factory=set)
    """First lanes of queues that are its own: a name may come to mean another queue."""
    _there: int = _TIDY_FROM

    def owns(self, lane: int, there: Container[int]) -> None:
        """A queue that is declared now is its own.

        Args:
            there: first lanes of all queues. What has gone by itself is forgotten, when it is half.
        """
        if len(self.exclusive) > 2 * self._there:
            self.exclusive = {one for one in self.exclusive if one in there}
            self._there = max(_TIDY_FROM, len(self.exclusive))
        self.exclusive.add(lane)

    def may_publish(self, exchange: str) -> None:
        """Raises AccessRefused. As `check`, which would make a need for each batch."""
        if not self.permissions.may(self.cluster, WRITE, exchange):
            self.permissions.check(self.cluster, for_publish(exchange))

    def check(self, needs: Iterable[Need]) -> None:
        """Raises AccessRefused."""
        self.permissions.check(self.cluster, needs)

    def check_configures(self) -> None:
        """Raises AccessRefused: it may not configure anything here."""
        self.permissions.check_configures(self.cluster)

    def sees(self, name: str) -> bool:
        """Whether it may do anything with what has this name."""
        return self.permissions.sees(self.cluster, name)

    def as_told(self, refusal: Refusal) -> Refusal:
        """Without the name and limits of a queue that it does not see, which exchanges lead to."""
        if refusal.code != QueueFull.__name__ or self.sees(refusal.details["queue"]):
            return refusal
        _, details = take_apart(QueueFull("", None, None))
        return refusal._replace(details=details)

    @contextmanager
    def hints(self) -> Iterator[None]:
        """What is not there may be misspelt; only what the caller sees is suggested to it."""
        try:
            yield
        except Unknown as error:
            if not self.sees(error.nearest):
                raise type(error)(error.name) from None
            raise

    def check_own(self, queue: Queue) -> None:
        """Raises ExclusiveQueue: it is another connection's."""
        if queue.definition.exclusive and queue.lanes[0].id not in self.exclusive:
            raise ExclusiveQueue(queue.name)

    def check_destination(self, binding: BindingDefinition, queues: Mapping[str, Queue]) -> None:
        """Raises ExclusiveQueue: it leads to another connection's."""
        queue = None if binding.to_exchange else queues.get(binding.destination)
        if queue is not None:
            self.check_own(queue)
