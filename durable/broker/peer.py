"""The client at the other end of a session, and what it may do."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..definitions import BindingDefinition
from ..errors import DurableError, ExclusiveQueue, QueueFull, Unknown, UnknownExchange
from ..protocol.error_codec import describe_error
from ..protocol.parts import Refusal
from ..queues.queue import Queue
from ..routing.permissions import WRITE, Need, Permissions, for_publish

_PRUNE_MIN = 64


@dataclass(slots=True, eq=False)
class Peer:
    """One connection: its cluster, proved by a key, and the queues that are deleted with it."""

    cluster: str
    permissions: Permissions
    session: bytes
    exclusive_lanes: set[int] = field(default_factory=set)
    """The first lanes of its exclusive queues. Not their names: a name may be given to another queue."""
    _kept_count: int = _PRUNE_MIN

    def add_exclusive(self, lane: int, lanes: Container[int]) -> None:
        """Note an exclusive queue that this connection declares.

        Args:
            lanes: first lanes of all queues. Queues that no longer exist are forgotten when about half may
                be such.
        """
        if len(self.exclusive_lanes) > 2 * self._kept_count:
            self.exclusive_lanes = {one for one in self.exclusive_lanes if one in lanes}
            self._kept_count = max(_PRUNE_MIN, len(self.exclusive_lanes))
        self.exclusive_lanes.add(lane)

    def check_publish(self, exchange: str) -> None:
        """Raises AccessRefused if it may not publish. Like `check`, without making a Need for each batch."""
        if not self.permissions.may(self.cluster, WRITE, exchange):
            self.permissions.check(self.cluster, for_publish(exchange))

    def check(self, needs: Iterable[Need]) -> None:
        """Raises AccessRefused if it lacks any of these."""
        self.permissions.check(self.cluster, needs)

    def check_configures(self) -> None:
        """Raises AccessRefused if it may not configure anything here."""
        self.permissions.check_configures(self.cluster)

    def sees(self, name: str) -> bool:
        """Whether it has any permission for this name."""
        return self.permissions.sees(self.cluster, name)

    def redacted(self, refusal: Refusal) -> Refusal:
        """Return the refusal as this client may see it, without names that it has no permission for: of a full
        queue behind an exchange, which is left out with its limits, and of an exchange that is suggested."""
        visible: DurableError
        details = refusal.details
        if refusal.code == QueueFull.__name__ and not self.sees(details["queue"]):
            visible = QueueFull("", None, None)
        elif refusal.code == UnknownExchange.__name__ and self._hides(details["nearest"]):
            visible = UnknownExchange(details["name"], beside=UnknownExchange.FOR_QUEUE)
        else:
            return refusal
        return refusal._replace(details=describe_error(visible)[1])

    @contextmanager
    def hide_suggestions(self) -> Iterator[None]:
        """Errors about unknown names suggest a similar name; remove the suggestion if the caller has no
        permission for it."""
        try:
            yield
        except Unknown as error:
            if self._hides(error.nearest):
                raise type(error)(error.name) from None
            raise

    def _hides(self, suggestion: str) -> bool:
        """Whether a suggestion has to be removed. The empty one stands for none, and permissions are not asked for it."""
        return bool(suggestion) and not self.sees(suggestion)

    def check_own(self, queue: Queue) -> None:
        """Raises ExclusiveQueue if the queue belongs to another connection."""
        if queue.definition.exclusive and queue.lanes[0].id not in self.exclusive_lanes:
            raise ExclusiveQueue(queue.name)

    def check_destination(self, binding: BindingDefinition, queues: Mapping[str, Queue]) -> None:
        """Raises ExclusiveQueue if the binding leads to a queue of another connection."""
        queue = None if binding.to_exchange else queues.get(binding.destination)
        if queue is not None:
            self.check_own(queue)
