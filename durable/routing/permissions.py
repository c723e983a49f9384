"""Permissions of clusters in a vhost, and the permissions that each operation needs. As in RabbitMQ:

    operation                            configure    write             read
    declare or delete a queue, stream    its name
    ... a stream that is not there yet   its name, and `capture` of each of its patterns, there and in `/`
    ... with a dead-letter exchange      its name     that exchange     its name
    declare or delete an exchange        its name
    ... with an alternate exchange       its name     the alternate     its name
    bind or unbind                                    the destination   the exchange
    publish                                           the exchange
    consume, get, purge, read                                           the queue or stream
    set or clear permissions             mesh.permissions.CLUSTER
    import definitions                   anything
    make or delete a vhost               mesh.vhost.NAME, in `/`; to delete, in that vhost as well

Each permission is a regular expression that the whole name must match. That of `capture` must match the whole
text of a pattern, whatever topics the pattern matches. The default exchange is named
`amq.default` here, so publishing straight to a queue needs write permission for that name. Clusters and vhosts
have names that no queue can have, so configure permission for `shop.*` does not allow changing the permissions
of the cluster shop.
As long as no cluster has permissions set, every trusted cluster may do everything. From then on a cluster may
do only what its permissions allow, and at least one cluster must be able to change permissions. An expression
in the log that cannot be compiled counts as set, and grants nothing. A cluster that may set permissions has to
be trusted: a regular expression can be written so that matching it never ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

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

CONFIGURE, WRITE, READ, CAPTURE = "configure", "write", "read", "capture"
WITH_NAMES = (CONFIGURE, WRITE, READ)
"""Those that are for names; CAPTURE is for patterns."""
EXCHANGE, QUEUE, STREAM = ExchangeDefinition.kind, QueueDefinition.kind, StreamDefinition.kind
DEFAULT_NAME = "amq.default"
CACHED_DECISIONS_MAX = 10_000


class Need(NamedTuple):
    """One permission that an operation needs."""

    what: str
    kind: str
    name: str


class Permissions:
    """The permissions of all clusters in one vhost."""

    def __init__(self) -> None:
        self._definitions: dict[str, PermissionDefinition] = {}
        self._patterns: dict[tuple[str, str], re.Pattern[str]] = {}
        self._decisions: Cache[tuple[str, str, str], bool] = Cache(CACHED_DECISIONS_MAX)
        self._decided = self._decisions.young.get
        self.version = 0
        """Differs after each change."""

    def declare(self, definition: PermissionDefinition) -> None:
        """Set a cluster's permissions, replacing earlier ones."""
        cluster = definition.cluster
        self._definitions[cluster] = definition
        for what in (*WITH_NAMES, CAPTURE):
            self._patterns[cluster, what] = compiled_or_nothing(getattr(definition, what))
        self._note_change()

    def extend(self, others: Permissions) -> None:
        """Set the permissions of `others`, as by calling `declare` for each."""
        self._definitions.update(others._definitions)
        self._patterns.update(others._patterns)
        self._note_change()

    def remove(self, cluster: str) -> None:
        """Clear a cluster's permissions, if it has any; without the last one every cluster may do everything again."""
        if self._definitions.pop(cluster, None) is not None:
            for what in (*WITH_NAMES, CAPTURE):
                del self._patterns[cluster, what]
            self._note_change()

    def _note_change(self) -> None:
        self._decisions.clear()
        self.version += 1

    def check_administered(
        self, declared: Iterable[PermissionDefinition], removed: str | None = None
    ) -> None:
        """Check that after this change some cluster can still change permissions.

        Configure permission for the permissions of any cluster, also of another one, is enough: who has it
        may grant everything to that cluster.

        Args:
            declared: permissions that are to be set.
            removed: a cluster whose permissions are to be cleared.
        Raises:
            NoAdministrator: no cluster could change permissions any more.
        """
        declared = list(declared)
        after = {cluster: self._patterns[cluster, CONFIGURE] for cluster in self._definitions}
        after |= {one.cluster: compiled_or_nothing(one.configure) for one in declared}
        after.pop(removed or "", None)
        if not after or any(
            one.fullmatch(_permission_name(cluster)) for cluster, one in after.items()
        ):
            return
        # Every pattern against every name. The set tries equal patterns once: thousands of clusters may have the same.
        names = [_permission_name(cluster) for cluster in after]
        if not any(one.fullmatch(name) for one in set(after.values()) for name in names):
            raise NoAdministrator(removed or declared[-1].cluster)

    def definitions(self) -> tuple[PermissionDefinition, ...]:
        return tuple(self._definitions.values())

    def invalid_patterns(self) -> Iterator[str]:
        """Yield a line of text for each regular expression that cannot be compiled."""
        for (cluster, what), pattern in self._patterns.items():
            if pattern is NOTHING:
                why = problem_of(getattr(self._definitions[cluster], what))
                yield (
                    f"permission of {cluster!r}: {what} is invalid and grants nothing ({why}): "
                    "set it again"
                )

    def may(self, cluster: str, what: str, name: str) -> bool:
        """Return whether `cluster` has permission `what` (configure, write, read) for the exchange, queue or stream
        called `name`, or `capture` for the pattern."""
        if not self._definitions:
            return True
        found = self._decided((cluster, what, name))
        return self._decide(cluster, what, name) if found is None else found

    def sees(self, cluster: str, name: str) -> bool:
        """Return whether `cluster` may know that a queue or stream exists: whether it has any permission for it.
        Write permission for the default exchange is enough, because with it a cluster may publish straight to
        every queue, as a replay does."""
        return self.may(cluster, WRITE, DEFAULT_EXCHANGE) or any(
            self.may(cluster, what, name) for what in WITH_NAMES
        )

    def admits(self, cluster: str) -> bool:
        """Return whether `cluster` may do anything in this vhost."""
        return not self._definitions or cluster in self._definitions

    def check(self, cluster: str, needs: Iterable[Need], vhost: str = "") -> None:
        """Raises AccessRefused, naming the first of `needs` that `cluster` lacks, and `vhost`, which is given for
        patterns."""
        for what, kind, name in needs:
            if not self.may(cluster, what, name):
                raise AccessRefused(cluster, what, kind, name or DEFAULT_NAME, vhost)

    def check_configures(self, cluster: str) -> None:
        """Raises AccessRefused if `cluster` may configure nothing at all."""
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


def for_capture(patterns: Iterable[str]) -> Iterator[Need]:
    """Yield the needs of declaring streams with these patterns that are not there yet."""
    for pattern in patterns:
        yield Need(CAPTURE, "pattern", pattern)


def for_declare_exchange(definition: ExchangeDefinition) -> Iterator[Need]:
    yield Need(CONFIGURE, EXCHANGE, definition.name)
    if definition.alternate is not None:
        yield Need(READ, EXCHANGE, definition.name)
        yield Need(WRITE, EXCHANGE, definition.alternate)


def for_delete(kind: str, name: str) -> Iterator[Need]:
    yield Need(CONFIGURE, kind, name)


def for_permissions(cluster: str) -> Iterator[Need]:
    yield Need(CONFIGURE, "permissions", _permission_name(cluster))


def _permission_name(cluster: str) -> str:
    return f"mesh.permissions.{cluster}"


def for_vhost(name: str) -> Iterator[Need]:
    yield Need(CONFIGURE, "vhost", f"mesh.vhost.{name}")


def for_bind(binding: BindingDefinition) -> Iterator[Need]:
    """Yield the needs of binding and of unbinding."""
    yield Need(WRITE, EXCHANGE if binding.to_exchange else QUEUE, binding.destination)
    yield Need(READ, EXCHANGE, binding.exchange)


def for_publish(exchange: str) -> Iterator[Need]:
    yield Need(WRITE, EXCHANGE, exchange)


def for_read(kind: str, name: str) -> Iterator[Need]:
    """Yield the need of consuming from a queue, getting from it, purging it, or reading a stream."""
    yield Need(READ, kind, name)


def narrowed_to_permissions(configure: Any) -> str:
    """Return an expression that allows of what `configure` does only permissions: no vhost, and no stream, as
    nothing that is declared may have a name like theirs."""
    narrowed = rf"(?=mesh\.permissions\.)(?:{configure})"
    return "" if problem_of(configure) or problem_of(narrowed) else narrowed
