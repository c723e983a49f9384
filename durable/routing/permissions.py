"""What clusters may do in a vhost, and which permission each operation needs. As in RabbitMQ:

    operation                            configure    write             read
    declare or delete a queue, stream    it
    ... with a dead-letter exchange      it           that exchange     it
    declare or delete an exchange        it
    ... with an alternate exchange       it           the alternate     it
    bind or unbind                                    the destination   the exchange
    publish                                           the exchange
    consume, get, purge, read                                           the queue or stream
    say what a cluster may do            mesh.permissions.CLUSTER
    import definitions                   anything
    make or delete a vhost               mesh.vhost.NAME, in `/`; deleted, in that vhost as well

Each permission is a regular expression that the whole name must match. The default exchange goes by
the name `amq.default`, so what is sent straight to a queue needs to write that one. Clusters and vhosts
go by names that no queue can have: who may configure `shop.*` says nothing of what cluster shop may do.
As long as nothing has been said about any cluster, every trusted one may do everything; from then on,
only what was said, and somebody may always say something else. What stands in a log and cannot be read
counts as said, and grants nothing. Who may say so has to be trusted: a regular expression can be made to take for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..definitions import (
    DEFAULT_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from ..errors import AccessRefused, NoAdministrator
from ..expressions import NOTHING, compiled_or_nothing, problem_of
from .cache import Cache

CONFIGURE, WRITE, READ = "configure", "write", "read"
EXCHANGE, QUEUE, STREAM = ExchangeDefinition.kind, QueueDefinition.kind, StreamDefinition.kind
DEFAULT_NAME = "amq.default"
CACHED_DECISIONS_MAX = 10_000


class Need(NamedTuple):
    """A permission that an operation needs."""

    what: str
    kind: str
    name: str


class Permissions:
    """Who may do what in one vhost."""

    def __init__(self) -> None:
        self._definitions: dict[str, PermissionDefinition] = {}
        self._patterns: dict[tuple[str, str], re.Pattern[str]] = {}
        self._decisions: Cache[tuple[str, str, str], bool] = Cache(CACHED_DECISIONS_MAX)
        self._decided = self._decisions.young.get

    def declare(self, definition: PermissionDefinition) -> None:
        """Say what a cluster may do, in place of what was said before."""
        cluster = definition.cluster
        self._definitions[cluster] = definition
        for what in (CONFIGURE, WRITE, READ):
            self._patterns[cluster, what] = compiled_or_nothing(getattr(definition, what))
        self._decisions.clear()

    def extend(self, others: Permissions) -> None:
        """As `declare` with each of them."""
        self._definitions.update(others._definitions)
        self._patterns.update(others._patterns)
        self._decisions.clear()

    def remove(self, cluster: str) -> None:
        """What was said of it, if anything; with the last one everybody may do everything again."""
        if self._definitions.pop(cluster, None) is not None:
            for what in (CONFIGURE, WRITE, READ):
                del self._patterns[cluster, what]
            self._decisions.clear()

    def check_administered(
        self, said: Iterable[PermissionDefinition], forgotten: str | None = None
    ) -> None:
        """Raises NoAdministrator: with this `said`, nobody could ever change anything of it.

        Whoever may change what is said of a cluster, be it another one, may let it change everything.

        Args:
            forgotten: a cluster of which nothing is said any more.
        """
        said = list(said)
        after = {cluster: self._patterns[cluster, CONFIGURE] for cluster in self._definitions}
        after |= {one.cluster: compiled_or_nothing(one.configure) for one in said}
        after.pop(forgotten or "", None)
        if not after or any(one.fullmatch(_own(cluster)) for cluster, one in after.items()):
            return
        # Each with each: of thousands that say the same, once.
        names = [_own(cluster) for cluster in after]
        if not any(one.fullmatch(name) for one in set(after.values()) for name in names):
            raise NoAdministrator(forgotten or said[-1].cluster)

    def definitions(self) -> tuple[PermissionDefinition, ...]:
        return tuple(self._definitions.values())

    def unreadable(self) -> Iterator[str]:
        """A line for each regular expression that cannot be compiled."""
        for (cluster, what), pattern in self._patterns.items():
            if pattern is NOTHING:
                why = problem_of(getattr(self._definitions[cluster], what))
                yield (
                    f"permission of {cluster!r}: {what} grants nothing, as it cannot be read ({why}): "
                    "set it again"
                )

    def may(self, cluster: str, what: str, name: str) -> bool:
        """Whether `cluster` may `what` (configure, write, read) the exchange, queue or stream."""
        if not self._definitions:
            return True
        found = self._decided((cluster, what, name))
        return self._decide(cluster, what, name) if found is None else found

    def sees(self, cluster: str, name: str) -> bool:
        """Whether it may do anything with a queue or stream; else it is not to learn of it. Who may
        write the default exchange may send to each straight away, as a replay does."""
        return self.may(cluster, WRITE, DEFAULT_EXCHANGE) or any(
            self.may(cluster, what, name) for what in (CONFIGURE, WRITE, READ)
        )

    def admits(self, cluster: str) -> bool:
        """Whether it may do anything here."""
        return not self._definitions or cluster in self._definitions

    def check(self, cluster: str, needs: Iterable[Need]) -> None:
        """Raises AccessRefused, naming the first of `needs` that `cluster` lacks."""
        for what, kind, name in needs:
            if not self.may(cluster, what, name):
                raise AccessRefused(cluster, what, kind, name or DEFAULT_NAME)

    def check_configures(self, cluster: str) -> None:
        """Whether it may configure anything at all. Raises AccessRefused."""
        pattern = self._patterns.get((cluster, CONFIGURE), NOTHING)
        if self._definitions and (pattern is NOTHING or not pattern.pattern):
            raise AccessRefused(cluster, CONFIGURE, "anything", "")

    def _decide(self, cluster: str, what: str, name: str) -> bool:
        found = self._decisions.get((cluster, what, name))
        if found is None:
            pattern = self._patterns.get((cluster, what))
            full = DEFAULT_NAME if name == DEFAULT_EXCHANGE else name
            found = pattern is not None and pattern.fullmatch(full) is not None
            self._decisions.put((cluster, what, name), found)
        return found


def for_declare_queue(definition: QueueDefinition) -> Iterator[Need]:
    yield Need(CONFIGURE, QUEUE, definition.name)
    if definition.dead_letter_exchange is not None:
        yield Need(READ, QUEUE, definition.name)
        yield Need(WRITE, EXCHANGE, definition.dead_letter_exchange)


def for_declare_stream(definition: StreamDefinition) -> Iterator[Need]:
    yield Need(CONFIGURE, STREAM, definition.name)


def for_declare_exchange(definition: ExchangeDefinition) -> Iterator[Need]:
    yield Need(CONFIGURE, EXCHANGE, definition.name)
    if definition.alternate is not None:
        yield Need(READ, EXCHANGE, definition.name)
        yield Need(WRITE, EXCHANGE, definition.alternate)


def for_delete(kind: str, name: str) -> Iterator[Need]:
    yield Need(CONFIGURE, kind, name)


def for_permissions(cluster: str) -> Iterator[Need]:
    yield Need(CONFIGURE, "permissions", _own(cluster))


def _own(cluster: str) -> str:
    return f"mesh.permissions.{cluster}"


def for_vhost(name: str) -> Iterator[Need]:
    yield Need(CONFIGURE, "vhost", f"mesh.vhost.{name}")


def for_bind(binding: BindingDefinition) -> Iterator[Need]:
    """To bind and to unbind."""
    yield Need(WRITE, EXCHANGE if binding.to_exchange else QUEUE, binding.destination)
    yield Need(READ, EXCHANGE, binding.exchange)


def for_publish(exchange: str) -> Iterator[Need]:
    yield Need(WRITE, EXCHANGE, exchange)


def for_read(kind: str, name: str) -> Iterator[Need]:
    """To consume from a queue, get from it or purge it; to read a stream."""
    yield Need(READ, kind, name)
