"""The four patterns on top of links: passes each record to its state machine, and tells these of links.

    REQUEST ──> dispatcher          REPLY, ERROR, BUSY ──> request table       CANCEL ──> dispatcher
    BATCH ──> subscriptions         SUBSCRIBE, UNSUBSCRIBE, CREDIT ──> subscribers
    BROADCAST ──> dispatcher        TUNNEL_* ──> tunnel table

Not safe for threads; the core calls it and flushes the links for which it requests that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from ..config import MeshConfig
from ..errors import RemoteProtocolError
from .balancer import choose_of_two
from .dispatch import Dispatcher, Job, refuse_unserved
from .frame import Kind
from .interest import Interest
from .latest import Latest
from .link import Link, Received, largest_record
from .outbox import REQUESTS
from .request import pack_head, read_head
from .requests import RequestTable
from .rotation import Rotation
from .subscribers import Subscribers
from .subscriptions import Subscriptions
from .timers import Timers
from .topics import AnySubscription, Publisher
from .tunnels import Opened, TunnelTable

CANCELLED_MAX = 10_000
"""Most cancellations that are remembered because they overtook their request, on the other lane."""


@dataclass(slots=True)
class BroadcastCounters:
    sent: int = 0
    skipped: int = 0
    received: int = 0
    unwanted: int = 0


class Patterns:
    """State machines of one node. Calls `request_flush` with every link that has something to send now, and
    `audience_grew` when a peer has subscribed to something."""

    def __init__(
        self, me: bytes, incarnation: int, config: MeshConfig, rotation: Rotation, timers: Timers,
        rng: Random, *, opened: Opened, audience_grew: Callable[[], object],
        request_flush: Callable[[Link], None], wall_us: Callable[[], int],
    ) -> None:  # fmt: skip
        self._rotation, self._request_flush = rotation, request_flush
        self._idempotent: dict[bytes, frozenset[str]] = {}
        self.requests = RequestTable(
            rotation.candidates, choose_of_two, timers, rng, settle_s=config.settle_s,
            requests_max=config.requests_max, request_flush=request_flush, present=rotation.present,
            idempotent=lambda node, target: target in self._idempotent.get(node, ()),
        )  # fmt: skip
        self.tunnels = TunnelTable(
            tunnels_max=config.tunnels_max, window_bytes=config.tunnel_window_bytes,
            opened=opened, request_flush=request_flush,
        )  # fmt: skip
        self.interest: Interest[AnySubscription] = Interest()
        self.publisher = Publisher(
            me, self.interest, frame_bytes_max=config.frame_bytes_max,
            gathered_bytes_max=config.window_bytes // 2, topics_max=config.topics_max,
            epoch=incarnation, wall_us=wall_us, request_flush=request_flush,
        )  # fmt: skip
        record_bytes_max = largest_record(config.payload_bytes_max)
        self.subscriptions = Subscriptions(
            self.interest, self.publisher, timers, topics_max=config.topics_max,
            # An empty outbox takes a record of any size.
            in_flight_bytes=config.window_bytes + max(config.outbox_bytes, record_bytes_max),
            record_bytes_max=record_bytes_max, request_flush=request_flush,
        )  # fmt: skip
        self.subscribers = Subscribers(
            self.interest, self.publisher, subscriptions_max=config.subscriptions_max,
            audience_grew=audience_grew,
        )  # fmt: skip
        self.dispatchers: dict[str, Dispatcher] = {}
        self.broadcasts = BroadcastCounters()
        self._cancelled: Latest[tuple[Link, int], None] = Latest(CANCELLED_MAX)
        self._handlers: dict[int, Callable[[Link, Received, float], None]] = {
            int(Kind.BATCH): self.subscriptions.on_batch,
            int(Kind.REQUEST): self._on_request,
            int(Kind.REPLY): self.requests.on_reply,
            int(Kind.ERROR): self.requests.on_error,
            int(Kind.BUSY): self.requests.on_busy,
            int(Kind.CANCEL): self._on_cancel,
            int(Kind.BROADCAST): self._on_broadcast,
            int(Kind.SUBSCRIBE): self.subscribers.on_subscribe,
            int(Kind.UNSUBSCRIBE): self.subscribers.on_unsubscribe,
            int(Kind.CREDIT): self.subscribers.on_credit,
        }

    # Records

    def on_record(self, link: Link, record: Received, now_s: float) -> None:
        """Process one complete record of a link. Raises RemoteProtocolError."""
        kind = record[0]
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(link, record, now_s)
        elif Kind.TUNNEL_OPEN <= kind <= Kind.TUNNEL_BLOCKED:
            _, ident, data, start, end = record
            self.tunnels.on_record(link, kind, ident, bytes(data[start:end]))
        else:
            raise RemoteProtocolError(f"unexpected record type {kind} on a link")

    def _on_request(self, link: Link, record: Received, now_s: float) -> None:
        _, ident, data, start, end = record
        if self._cancelled and self._cancelled.pop((link, ident), False) is None:
            return
        cluster, endpoint, at, time_left_ms, flags = read_head(data, start, end)
        link.check_payload(end - at)
        deadline_s = now_s + time_left_ms / 1000 if time_left_ms else None
        job = Job(link, ident, endpoint, bytes(data[at:end]), deadline_s)
        dispatcher = self.dispatchers.get(cluster)
        if dispatcher is not None:
            dispatcher.offer(job, flags, now_s)
        else:
            refuse_unserved(link, ident, cluster)
            self._request_flush(link)

    def _on_cancel(self, link: Link, record: Received, _now_s: float) -> None:
        ident = record[1]
        if any(one.cancel_request(link, ident) for one in self.dispatchers.values()):
            return
        # It may have overtaken its request on the other lane.
        self._cancelled[link, ident] = None

    def _on_broadcast(self, link: Link, record: Received, now_s: float) -> None:
        _, ident, data, start, end = record
        cluster, endpoint, at, _, _ = read_head(data, start, end)
        link.check_payload(end - at)
        self.broadcasts.received += 1
        dispatcher = self.dispatchers.get(cluster)
        if dispatcher is None:
            self.broadcasts.unwanted += 1
            return
        job = Job(link, ident, endpoint, bytes(data[at:end]), deadline_s=None, reply=False)
        dispatcher.offer_broadcast(job, now_s)

    # Broadcast

    def broadcast(self, cluster: str, endpoint: str, payload: bytes) -> int:
        """Send a broadcast to every member linked now; return to how many."""
        prefix = pack_head(cluster, endpoint)
        count = 0
        for _, link in self._rotation.linked(cluster):
            size = len(payload)
            if size > link.payload_bytes_max or not link.outbox.has_room(REQUESTS, size):
                self.broadcasts.skipped += 1
                continue
            link.outbox.push_unordered(Kind.BROADCAST, link.new_id(), payload, prefix=prefix)
            self._request_flush(link)
            count += 1
        self.broadcasts.sent += count
        return count

    # Links

    def link_up(self, link: Link, idempotent: Sequence[str]) -> None:
        self._idempotent[link.peer] = frozenset(idempotent)
        self.subscriptions.link_up(link)

    def close(self, reason: str) -> None:
        """End requests, topics, tunnels and subscriptions, and wake who waits for them: the node has left."""
        self.requests.close(reason)
        self.publisher.close()
        for end in list(self.tunnels):
            end.mark_broken(reason)
        self.subscriptions.close()

    def link_down(self, link: Link, reason: str, now_s: float, *, left: bool = False) -> None:
        """Forget a link that is gone for good, and end what depends on it. `left`: see `RequestTable.lost`."""
        self.subscribers.link_down(link)
        self.publisher.forget(link)
        self.subscriptions.link_down(link)
        self.tunnels.lost(link, reason)
        for dispatcher in self.dispatchers.values():
            dispatcher.lost(link)
        for key in [key for key in self._cancelled if key[0] is link]:
            del self._cancelled[key]
        self.requests.lost(link, now_s, left=left)
        self._idempotent.pop(link.peer, None)
