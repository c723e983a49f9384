"""The counters of a node, frozen at one moment: plain ints, collected when asked for, never per message."""

from __future__ import annotations

from dataclasses import dataclass

from .protocol.core import Core
from .protocol.dispatch import ServiceStatistics
from .protocol.inbox import SubscriptionStatistics
from .protocol.link import LinkStatistics
from .protocol.topics import PublisherStatistics
from .protocol.tunnel import TunnelStatistics


@dataclass(frozen=True, slots=True)
class RequestStatistics:
    """Requests that this node made. `late`: answers that came after their request had ended."""

    outstanding: int
    sent: int
    replied: int
    failed: int
    busy: int
    retried: int
    late: int


@dataclass(frozen=True, slots=True)
class BroadcastStatistics:
    """`skipped`: members whose outbox was full, or that accept no payload of that size; `unwanted`: broadcasts received
    without a handler for them.
    """

    sent: int
    skipped: int
    received: int
    unwanted: int


@dataclass(frozen=True, slots=True)
class TunnellingStatistics:
    """Tunnels since the node started. `late`: records received for tunnels that had ended here."""

    opened: int
    accepted: int
    refused: int
    closed: int
    broken: int
    late: int


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """All counters of a node. `tunnels`: the open ones. `refused`: refused connections and announcements by reason.

    `unwanted_batches`: batches received for subscriptions that had just ended.
    """

    links: tuple[LinkStatistics, ...]
    requests: RequestStatistics
    services: tuple[ServiceStatistics, ...]
    publishing: PublisherStatistics
    subscriptions: tuple[SubscriptionStatistics, ...]
    unwanted_batches: int
    broadcasts: BroadcastStatistics
    tunnels: tuple[TunnelStatistics, ...]
    tunnelling: TunnellingStatistics
    refused: dict[str, int]


def node_statistics(core: Core) -> NodeStatistics:
    patterns = core.patterns
    requests, broadcasts, tunnels = patterns.requests, patterns.broadcasts, patterns.tunnels
    return NodeStatistics(
        links=tuple(link.statistics() for link in core.peering.links.values()),
        requests=RequestStatistics(
            len(requests), requests.sent, requests.replied, requests.failed, requests.busy,
            requests.retried, requests.late,
        ),
        services=tuple(one.statistics() for one in patterns.dispatchers.values()),
        publishing=patterns.publisher.statistics(),
        subscriptions=tuple(inbox.statistics() for inbox in patterns.subscriptions.inboxes.values()),
        unwanted_batches=patterns.subscriptions.unwanted_batches,
        broadcasts=BroadcastStatistics(
            broadcasts.sent, broadcasts.skipped, broadcasts.received, broadcasts.unwanted
        ),
        tunnels=tuple(end.statistics() for end in patterns.tunnels),
        tunnelling=TunnellingStatistics(
            tunnels.opened, tunnels.accepted, tunnels.refused, tunnels.closed, tunnels.broken,
            tunnels.late,
        ),
        refused=dict(core.refusals.counts),
    )  # fmt: skip
