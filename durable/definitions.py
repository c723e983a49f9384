"""What people declare: queues, exchanges, bindings, streams, permissions. Values, compared as a whole.

Times are in seconds, sizes in bytes, None is no limit. The same names stand in the API, in the log
and in exported JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DROP_HEAD, REJECT_PUBLISH = "drop-head", "reject-publish"
DIRECT, FANOUT, TOPIC, HEADERS = "direct", "fanout", "topic", "headers"
PRIORITY_MAX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    name: str
    durability: str = "disk"
    """`disk`: a confirm means it is on stable storage. `memory`: never synced, gone with the broker."""
    exclusive: bool = False
    """Only the connection that declared it may use it, and it goes with that connection."""
    auto_delete: bool = False
    """It goes when its last consumer does."""
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = DROP_HEAD
    ttl_s: float | None = None
    """Messages older than this are dead-lettered or dropped."""
    expires_s: float | None = None
    """A queue that nobody has used for so long is deleted: no consumer, no get, no new declaration."""
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    """None: the key the message came with."""
    delivery_limit: int | None = None
    """A message that came back more often is dead-lettered or dropped."""
    max_priority: int = 0
    """0: no priorities; else messages have a priority of 0 to this, 9 at most."""
    single_active_consumer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDefinition:
    name: str
    type: str = DIRECT
    alternate: str | None = None
    """Exchange for what this one routes nowhere."""
    auto_delete: bool = False
    """It goes when the last binding from it does."""
    internal: bool = False
    """Clients may not publish to it, only exchanges may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingDefinition:
    exchange: str
    destination: str
    to_exchange: bool = False
    """Whether `destination` is an exchange rather than a queue or stream."""
    key: str = ""
    arguments: tuple[tuple[str, Any], ...] = ()
    """For headers exchanges, sorted by name; `x-match` is `all` (if absent) or `any`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition:
    name: str
    patterns: tuple[str, ...] = ()
    """Mesh topics to capture."""
    max_age_s: float | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionDefinition:
    """What one cluster may do in this vhost: regular expressions that the whole name must match."""

    cluster: str
    configure: str = ""
    write: str = ""
    read: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Everything declared in one vhost."""

    queues: tuple[QueueDefinition, ...] = ()
    exchanges: tuple[ExchangeDefinition, ...] = ()
    bindings: tuple[BindingDefinition, ...] = ()
    streams: tuple[StreamDefinition, ...] = ()
    permissions: tuple[PermissionDefinition, ...] = field(default=())
