"""Everything that users declare: queues, exchanges, bindings, streams, permissions. Values, compared as a
whole.

Times are in seconds, sizes in bytes; None means no limit. The API, the log and exported JSON use the same
field names. Constructing a value checks nothing, so whatever an older release logged can always be read;
`check()` is for what users ask. Queues and streams share one namespace, because bindings lead to both.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from .definition_checks import (
    check_arguments,
    check_choice,
    check_cluster_name,
    check_counts,
    check_flags,
    check_key,
    check_level,
    check_name,
    check_own_name,
    check_patterns,
    check_reference,
    check_regex,
    check_seconds,
)
from .errors import BuiltIn, DefinitionConflict, InvalidDefinition

DISK, MEMORY = "disk", "memory"
DROP_HEAD, REJECT_PUBLISH = "drop-head", "reject-publish"
DIRECT, FANOUT, TOPIC, HEADERS = "direct", "fanout", "topic", "headers"
PRIORITY_MAX = 9

X_MATCH = "x-match"
MATCH_ALL, MATCH_ANY = "all", "any"
MATCH_ALL_WITH_X, MATCH_ANY_WITH_X = "all-with-x", "any-with-x"
MATCHES = (MATCH_ALL, MATCH_ANY, MATCH_ALL_WITH_X, MATCH_ANY_WITH_X)

ANYTHING = ".*"
"""Matches every name and pattern."""

DEFAULT_EXCHANGE = ""
"""Leads to the queue whose name is the routing key; nothing can be bound to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    kind: ClassVar[str] = "queue"

    name: str
    durability: str = DISK
    """`disk`: a confirm means that the message is on stable storage. `memory`: never synced, lost when the
    broker ends."""
    exclusive: bool = False
    """Only the connection that declared the queue may use it; it is deleted with that connection."""
    auto_delete: bool = False
    """The queue is deleted when its last consumer leaves."""
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = DROP_HEAD
    ttl_s: float | None = None
    """Messages older than this are dead-lettered or dropped."""
    expires_s: float | None = None
    """The queue is deleted when it has been unused for this long: no consumer, no get, no new declaration."""
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    """None keeps the key that the message came with."""
    delivery_limit: int | None = None
    """A message that was returned more often than this is dead-lettered or dropped."""
    max_priority: int = 0
    """0: no priorities; else messages have a priority from 0 to this number, which is at most 9."""
    single_active_consumer: bool = False

    @property
    def transient(self) -> bool:
        """Whether the queue ends with the broker and is in no log."""
        return self.exclusive or self.durability == MEMORY

    def check(self) -> None:
        """Raises InvalidDefinition if a field has an invalid value."""
        check_own_name(self.kind, self.name)
        check_choice(self.kind, "durability", self.durability, (DISK, MEMORY))
        check_choice(self.kind, "overflow", self.overflow, (DROP_HEAD, REJECT_PUBLISH))
        check_flags(
            self.kind,
            exclusive=self.exclusive,
            auto_delete=self.auto_delete,
            single_active_consumer=self.single_active_consumer,
        )
        check_counts(
            self.kind,
            max_length=self.max_length,
            max_length_bytes=self.max_length_bytes,
            delivery_limit=self.delivery_limit,
        )
        check_seconds(self.kind, ttl_s=self.ttl_s, expires_s=self.expires_s)
        check_level(self.kind, "max_priority", self.max_priority, PRIORITY_MAX)
        if self.dead_letter_exchange is not None:
            check_reference(self.kind, "dead_letter_exchange", self.dead_letter_exchange)
        if self.dead_letter_routing_key is not None:
            key = self.dead_letter_routing_key
            check_key(self.kind, "dead_letter_routing_key", key)
            if self.dead_letter_exchange is None:
                allowed = "None without a dead_letter_exchange"
                raise InvalidDefinition(self.kind, "dead_letter_routing_key", key, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDefinition:
    kind: ClassVar[str] = "exchange"

    name: str
    type: str = DIRECT
    alternate: str | None = None
    """Exchange that gets the messages that this one routes nowhere."""
    auto_delete: bool = False
    """The exchange is deleted when the last binding from it is."""
    internal: bool = False
    """Clients may not publish to it; only exchanges may."""

    def check(self) -> None:
        """Raises InvalidDefinition if a field has an invalid value."""
        check_own_name(self.kind, self.name, BUILT_IN)
        check_choice(self.kind, "type", self.type, (DIRECT, FANOUT, TOPIC, HEADERS))
        if self.alternate is not None:
            check_reference(self.kind, "alternate", self.alternate)
        check_flags(self.kind, auto_delete=self.auto_delete, internal=self.internal)


BUILT_IN: Mapping[str, ExchangeDefinition] = {
    f"amq.{one}": ExchangeDefinition(name=f"amq.{one}", type=one)
    for one in (DIRECT, FANOUT, TOPIC, HEADERS)
}
"""Exchanges that every vhost has besides the default one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingDefinition:
    kind: ClassVar[str] = "binding"

    exchange: str
    destination: str
    to_exchange: bool = False
    """Whether `destination` is an exchange rather than a queue or stream."""
    key: str = ""
    arguments: tuple[tuple[str, Any], ...] = ()
    """For headers exchanges, sorted by name; `x-match` is `all` (the default), `any`, `all-with-x` or
    `any-with-x`. Without `-with-x`, other names that begin with `x-` are ignored."""

    @property
    def identity(self) -> Hashable:
        """A key that is equal for equal bindings only. It includes the types of arguments: in Python 1, 1.0
        and True are equal, as header values they are not."""
        typed = tuple((name, type(value), value) for name, value in self.arguments)
        return self.exchange, self.destination, self.to_exchange, self.key, typed

    def check(self) -> None:
        """Raises InvalidDefinition if a field has an invalid value."""
        check_reference(self.kind, "exchange", self.exchange)
        check_flags(self.kind, to_exchange=self.to_exchange)
        if self.to_exchange:
            check_reference(self.kind, "destination", self.destination)
        else:
            check_name(self.kind, "destination", self.destination)
        check_key(self.kind, "key", self.key)
        check_arguments(self.kind, "arguments", self.arguments, MATCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition:
    kind: ClassVar[str] = "stream"

    name: str
    patterns: tuple[str, ...] = ()
    """Patterns of the mesh topics to capture."""
    max_age_s: float | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None

    def check(self) -> None:
        """Raises InvalidDefinition if a field has an invalid value."""
        check_own_name(self.kind, self.name)
        check_patterns(self.kind, "patterns", self.patterns)
        check_seconds(self.kind, max_age_s=self.max_age_s)
        check_counts(self.kind, max_length=self.max_length, max_length_bytes=self.max_length_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionDefinition:
    """Permissions of one cluster in one vhost: regular expressions that must match the whole name, `capture` the
    whole text of a pattern."""

    kind: ClassVar[str] = "permission"

    cluster: str
    configure: str = ""
    write: str = ""
    read: str = ""
    capture: str = ANYTHING
    """Patterns that streams may be declared with. Where this is absent, an earlier release wrote it, which asked
    for no such permission."""

    def check(self) -> None:
        """Raises InvalidDefinition if a field has an invalid value."""
        check_cluster_name(self.kind, "cluster", self.cluster)
        check_regex(self.kind, "configure", self.configure)
        check_regex(self.kind, "write", self.write)
        check_regex(self.kind, "read", self.read)
        check_regex(self.kind, "capture", self.capture)


Definition = (
    QueueDefinition
    | ExchangeDefinition
    | BindingDefinition
    | StreamDefinition
    | PermissionDefinition
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Everything declared in one vhost."""

    queues: tuple[QueueDefinition, ...] = ()
    exchanges: tuple[ExchangeDefinition, ...] = ()
    bindings: tuple[BindingDefinition, ...] = ()
    streams: tuple[StreamDefinition, ...] = ()
    permissions: tuple[PermissionDefinition, ...] = field(default=())


def differences(existing: Definition, requested: Definition) -> list[str]:
    """Return how two definitions of the same kind differ, each as `max_length: existing 10, requested 20`."""
    pairs = [
        (one.name, getattr(existing, one.name), getattr(requested, one.name))
        for one in fields(existing)
    ]
    return [
        f"{name}: existing {was!r}, requested {new!r}"
        for name, was, new in pairs
        if _unordered(was) != _unordered(new)
    ]


def _unordered(value: Any) -> Any:
    """Return the value without its order: patterns may come from a set, whose order differs between processes."""
    return frozenset(value) if isinstance(value, tuple) else value


def check_same(
    existing: QueueDefinition | StreamDefinition | ExchangeDefinition,
    requested: QueueDefinition | StreamDefinition | ExchangeDefinition,
) -> None:
    """Raises DefinitionConflict if they differ."""
    if existing != requested and (found := differences(existing, requested)):
        raise DefinitionConflict(existing.kind, existing.name, found)


def sorted_arguments(arguments: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return arguments in the form that BindingDefinition has them."""
    return tuple((name, arguments[name]) for name in sorted(arguments))


def check_built_in(requested: ExchangeDefinition) -> None:
    """Raises BuiltIn if a built-in exchange is asked for with other settings."""
    if requested.name == DEFAULT_EXCHANGE:
        raise BuiltIn(requested.name, "it cannot be declared")
    existing = BUILT_IN.get(requested.name)
    if existing is not None and existing != requested:
        raise BuiltIn(
            requested.name, f"it cannot be changed ({'; '.join(differences(existing, requested))})"
        )


def check_bindable(binding: BindingDefinition) -> None:
    """Raises BuiltIn if one end is the default exchange."""
    if binding.exchange == DEFAULT_EXCHANGE:
        raise BuiltIn(
            DEFAULT_EXCHANGE, "each queue is bound to it by its name, and nothing else can be"
        )
    if binding.to_exchange and binding.destination == DEFAULT_EXCHANGE:
        raise BuiltIn(DEFAULT_EXCHANGE, "it cannot be bound to another exchange")
