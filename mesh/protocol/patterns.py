"""The four patterns on top of links: which record goes to which machine, and what links do to them.

    REQUEST ──> dispatcher          REPLY, ERROR, BUSY ──> request table       CANCEL ──> dispatcher
    BATCH ──> inboxes               SUBSCRIBE, UNSUBSCRIBE, CREDIT ──> interest, publisher
    BROADCAST ──> dispatcher        TUNNEL_* ──> tunnel table

Not safe for threads; the core calls it and flushes what it touched.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from random import Random

from ..config import MeshConfig
from ..errors import InvalidName, RemoteProtocolError
from ..names import check_pattern, read_pattern, read_topic
from .balancer import choose_of_two
from .batch import NUMBERS_END, Batch
from .dispatch import RETRY_MS_MAX, Dispatcher, Job
from .frame import Kind
from .inbox import Delivery, Inbox
from .interest import BLOCK, POLICIES, Interest, RemoteSubscription
from .link import Link, Received
from .outbox import REQUESTS
from .request import REPLY_PREFIX, pack_busy, pack_head, read_head
from .requests import RequestTable
from .rotation import Rotation
from .sharing import Sharing, one_of_each, overlap
from .timers import Timers
from .topics import Publisher, Wanted
from .tunnels import Opened, TunnelTable
from .values import clip, decode_values, encode_values

OWED_S = 0.05
"""Credit for less than a quarter of a subscription's window waits so long for more: a frame of its own takes
both ends as long as one of messages. Only a message of more than three quarters of the window waits for it."""

CANCELLED_MAX = 10_000
"""Cancellations remembered because they overtook their request on the other lane."""


@dataclass(slots=True)
class BroadcastCounters:
    sent: int = 0
    skipped: int = 0
    received: int = 0
    unwanted: int = 0


class Patterns:
    """Machines of one node. `touched` is called with every link that got something to send, `subscribed`
    when a peer wants more than before."""

    def __init__(
        self, me: bytes, incarnation: int, config: MeshConfig, rotation: Rotation, timers: Timers,
        rng: Random, *, opened: Opened, subscribed: Callable[[], object],
        touched: Callable[[Link], None], wall_us: Callable[[], int],
    ) -> None:  # fmt: skip
        self._config, self._rotation, self._touched = config, rotation, touched
        self._timers, self._subscribed = timers, subscribed
        self._idempotent: dict[bytes, frozenset[str]] = {}
        self.requests = RequestTable(
            rotation.of_cluster, choose_of_two, timers, rng, settle_s=config.settle_s,
            requests_max=config.requests_max, touched=touched, present=rotation.present,
            idempotent=lambda node, target: target in self._idempotent.get(node, ()),
        )  # fmt: skip
        self.tunnels = TunnelTable(
            tunnels_max=config.tunnels_max, window_bytes=config.tunnel_window_bytes,
            opened=opened, touched=touched,
        )  # fmt: skip
        self.interest: Interest[Wanted] = Interest()
        self.publisher = Publisher(
            me, self.interest, frame_bytes_max=config.frame_bytes_max,
            gathered_bytes_max=config.window_bytes // 2, topics_max=config.topics_max,
            epoch=incarnation, wall_us=wall_us, touched=touched,
        )  # fmt: skip
        self.inboxes: dict[int, Inbox] = {}
        self.dispatchers: dict[str, Dispatcher] = {}
        self.broadcasts = BroadcastCounters()
        self._local: Interest[Inbox] = Interest()
        self._matches: dict[str, list[Inbox]] = {}
        self._remote: dict[Link, dict[int, RemoteSubscription]] = {}
        self._cancelled: OrderedDict[tuple[Link, int], None] = OrderedDict()
        self._next_inbox = 0
        self._owing: dict[Inbox, None] = {}
        """Subscriptions read from since credit for less than a quarter of a window was last returned."""
        self.unwanted_batches = 0
        self._on: dict[int, Callable[[Link, Received, float], None]] = {
            int(Kind.BATCH): self._on_batch,
            int(Kind.REQUEST): self._on_request,
            int(Kind.REPLY): self.requests.replied_to,
            int(Kind.ERROR): self.requests.error_for,
            int(Kind.BUSY): self.requests.busy_for,
            int(Kind.CANCEL): self._on_cancel,
            int(Kind.BROADCAST): self._on_broadcast,
            int(Kind.SUBSCRIBE): self._on_subscribe,
            int(Kind.UNSUBSCRIBE): self._on_unsubscribe,
            int(Kind.CREDIT): self._on_credit,
        }

    # Records

    def record(self, link: Link, record: Received, now_s: float) -> None:
        """One whole record of a link. Raises RemoteProtocolError."""
        kind = record[0]
        handler = self._on.get(kind)
        if handler is not None:
            handler(link, record, now_s)
        elif Kind.TUNNEL_OPEN <= kind <= Kind.TUNNEL_BLOCKED:
            _, ident, data, start, end = record
            self.tunnels.record(link, kind, ident, bytes(data[start:end]))
        else:
            raise RemoteProtocolError(f"record type {kind} on a link")

    def _on_batch(self, link: Link, record: Received, _now_s: float) -> None:
        _, _, data, start, end = record
        if len(data) > 4 * (end - start):  # What waits for a subscription keeps no frame alive.
            data, start, end = bytes(data[start:end]), 0, end - start
        batch = Batch(data, start, end)
        if batch.publisher != link.peer:
            raise RemoteProtocolError("batch of another publisher")
        if batch.next_sequence > NUMBERS_END or batch.epoch >= NUMBERS_END:
            raise RemoteProtocolError(
                f"batch of epoch {batch.epoch}, sequence {batch.base_sequence}"
            )
        inboxes = self._matches.get(batch.topic)
        if inboxes is None:
            inboxes = self._match(batch.topic)
        if not inboxes:
            self.unwanted_batches += 1  # Unsubscribed while it was on its way.
            return
        batch.check()  # Here it costs the link; later it would hit whoever reads the subscription.
        if batch.size_bytes > link.payload_bytes_max:
            link.check_payload(batch.longest_bytes)
        for inbox in inboxes:
            inbox.push(batch, link)

    def _match(self, topic: str) -> list[Inbox]:
        """Once for each topic that arrives; whoever keeps it keeps one that may be."""
        try:
            read_topic(topic)
        except InvalidName as error:
            raise RemoteProtocolError(f"batch of {clip(str(error))}") from None
        if len(self._matches) >= self._config.topics_max:
            self._matches.clear()
        inboxes = self._matches[topic] = one_of_each(self._local.match(topic))
        return inboxes

    def _on_request(self, link: Link, record: Received, now_s: float) -> None:
        _, ident, data, start, end = record
        if self._cancelled and self._cancelled.pop((link, ident), False) is None:
            return
        cluster, endpoint, at, left_ms, flags = read_head(data, start, end)
        link.check_payload(end - at)
        deadline_s = now_s + left_ms / 1000 if left_ms else None
        job = Job(link, ident, endpoint, bytes(data[at:end]), deadline_s)
        dispatcher = self.dispatchers.get(cluster)
        if dispatcher is not None:
            dispatcher.offer(job, flags, now_s)
            return
        if link.outbox.takes(REQUESTS, 0):
            body = encode_values("no_such_endpoint", f"this member serves no {cluster!r}")
            prefix = bytes(REPLY_PREFIX.size)
            link.outbox.push(REQUESTS, Kind.ERROR, ident, body, prefix=prefix)
        else:  # Who takes no answers gets no more of them.
            most = link.outbox.limit_bytes
            body = pack_busy(0, RETRY_MS_MAX, hard=True, setting="outbox_bytes", limit=most)
            link.send_control(Kind.BUSY, ident, body)
        self._touched(link)

    def _on_cancel(self, link: Link, record: Received, _now_s: float) -> None:
        ident = record[1]
        if any(one.cancelled_by(link, ident) for one in self.dispatchers.values()):
            return
        # It may have overtaken its request on the other lane.
        self._cancelled[link, ident] = None
        if len(self._cancelled) > CANCELLED_MAX:
            self._cancelled.popitem(last=False)

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

    # Topics

    def subscribe(self, pattern: str, policy: str, limit_bytes: int, wake: Callable[[], object]) -> Inbox:  # fmt: skip
        """A new subscription of this node; tell the links with `announce_inbox`."""
        self._next_inbox += 1
        inbox = Inbox(
            self._next_inbox, check_pattern(pattern), policy, limit_bytes, wake,
            early_bytes=self._config.window_bytes + self._config.outbox_bytes,
        )  # fmt: skip
        self.inboxes[inbox.ident] = inbox
        self._local.add(inbox.pattern, inbox)
        self.interest.add(inbox.pattern, inbox)
        self._matches.clear()
        return inbox

    def unsubscribe(self, inbox: Inbox) -> bool:
        """Whether it was subscribed until now."""
        if self.inboxes.pop(inbox.ident, None) is None:
            return False
        self._local.remove(inbox.pattern, inbox)
        self.interest.remove(inbox.pattern, inbox)
        self._matches.clear()
        if inbox.sharing is not None:
            inbox.sharing.members.discard(inbox)
        self.publisher.freed(inbox)
        return True

    def share(self, inbox: Inbox, sharing: Sharing, after: Iterable[Inbox]) -> None:
        """In the turn in which it was subscribed. `after`: see Subscription.share."""
        inbox.sharing = sharing
        sharing.members.add(inbox)
        for before in after:
            self._go_on(before, {inbox})

    def hand_over(self, inbox: Inbox) -> None:
        """In the turn in which it was unsubscribed: what is missing behind what it had, others tell that
        share. For one whose rest is still taken, and not where all end: each would take from the one before."""
        if inbox.sharing is not None:
            self._go_on(inbox, inbox.sharing.members)

    def _go_on(self, before: Inbox, heirs: Set[Inbox]) -> None:
        """Streams of `before`, which has ended, go on in that one of `heirs` that gets their messages now."""
        streams = before.streams
        if len(heirs) < len(streams) and not any(
            overlap(one.pattern, before.pattern) for one in heirs
        ):
            return
        for stream in streams:
            for inbox in one_of_each(self._local.match(stream[1])):
                if inbox in heirs:
                    inbox.go_on(before, stream)

    def announce_inbox(self, link: Link, inbox: Inbox) -> None:
        policy = POLICIES.index(inbox.policy)
        values = [".".join(inbox.pattern), policy, inbox.limit_bytes]
        if waiting_bytes := inbox.take_over(link):
            values.append(waiting_bytes)
        link.send_control(Kind.SUBSCRIBE, inbox.ident, encode_values(*values))
        self._touched(link)

    def take(self, inbox: Inbox, now_s: float) -> Delivery:
        """The next messages of a subscription; returns credit to their publisher when due."""
        delivery = inbox.take()
        if inbox.policy == BLOCK:
            self.publisher.freed(inbox)
            for link, owed in list(inbox.owed.items()):
                if owed * 4 >= inbox.limit_bytes:
                    self._return_credit(inbox, link)
            if inbox.owed and inbox not in self._owing:
                # Soon all the same: the next message may be as large as the window.
                self._owing[inbox] = None
                if len(self._owing) == 1:
                    self._timers.at(now_s + OWED_S, self._return_owed)
        return delivery

    def _return_owed(self, _now_s: float) -> None:
        owing, self._owing = self._owing, {}
        for inbox in owing:
            for link in list(inbox.owed):
                self._return_credit(inbox, link)

    def _return_credit(self, inbox: Inbox, link: Link) -> None:
        owed = inbox.owed.pop(link)
        if link.up and inbox.ident in self.inboxes:
            link.send_control(Kind.CREDIT, inbox.ident, encode_values(owed))
            self._touched(link)

    def _on_subscribe(self, link: Link, record: Received, _now_s: float) -> None:
        _, ident, data, start, end = record
        pattern, policy, window, waiting = decode_values(
            bytes(data[start:end]), "SUBSCRIBE", (str, int, int), added=(0,)
        )
        remote = self._remote.setdefault(link, {})
        if ident in remote or not 0 <= policy < len(POLICIES) or window < 1 or waiting < 0:
            raise RemoteProtocolError(f"SUBSCRIBE {ident} to {pattern!r}, policy {policy}")
        if len(remote) >= self._config.subscriptions_max:
            raise RemoteProtocolError(f"more than {self._config.subscriptions_max} subscriptions")
        try:
            tokens = read_pattern(pattern)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        credit = window - waiting
        subscription = RemoteSubscription(link, ident, tokens, POLICIES[policy], window, credit)
        remote[ident] = subscription
        self.interest.add(tokens, subscription)
        self._subscribed()

    def subscribers(self, topic: str) -> set[bytes]:
        """Peers that are known to want it."""
        found = self.interest.match(topic)
        return {one.link.peer for one in found if isinstance(one, RemoteSubscription)}

    def wanted(self) -> set[str]:
        """Patterns of peers."""
        return {".".join(one.pattern) for of in self._remote.values() for one in of.values()}

    def _on_unsubscribe(self, link: Link, record: Received, _now_s: float) -> None:
        ident = record[1]
        subscription = self._remote.get(link, {}).pop(ident, None)
        if subscription is None:
            raise RemoteProtocolError(f"UNSUBSCRIBE {ident}, which was never subscribed")
        self._uninterested(subscription)

    def _uninterested(self, subscription: RemoteSubscription) -> None:
        self.interest.remove(subscription.pattern, subscription)
        self.publisher.freed(subscription)

    def _on_credit(self, link: Link, record: Received, _now_s: float) -> None:
        _, ident, data, start, end = record
        (size,) = decode_values(bytes(data[start:end]), "CREDIT", (int,))
        subscription = self._remote.get(link, {}).get(ident)
        if size < 1:
            raise RemoteProtocolError(f"credit of {size} bytes")
        if subscription is None:
            return  # Unsubscribed meanwhile.
        # It may return more than it was charged: for batches that were on their way to another
        # subscription of that node when this one began.
        credit_bytes = subscription.credit_bytes + size
        subscription.credit_bytes = min(credit_bytes, subscription.window_bytes)
        self.publisher.freed(subscription)

    # Broadcast

    def broadcast(self, cluster: str, endpoint: str, payload: bytes) -> int:
        """Tell every member known now; return how many that were."""
        prefix = pack_head(cluster, endpoint)
        told = 0
        for _, link in self._rotation.linked(cluster):
            size = len(payload)
            if size > link.payload_bytes_max or not link.outbox.takes(REQUESTS, size):
                self.broadcasts.skipped += 1
                continue
            link.outbox.push(REQUESTS, Kind.BROADCAST, link.new_id(), payload, prefix=prefix)
            self._touched(link)
            told += 1
        self.broadcasts.sent += told
        return told

    # Links

    def link_up(self, link: Link, idempotent: Sequence[str]) -> None:
        self._idempotent[link.peer] = frozenset(idempotent)
        for inbox in self.inboxes.values():
            self.announce_inbox(link, inbox)

    def close(self, why: str) -> None:
        """The node has left: whoever waits is told, and nothing is gathered any more."""
        self.requests.close(why)
        self.publisher.close()
        for end in list(self.tunnels):
            end.broke(why)
        for inbox in self.inboxes.values():
            inbox.wake()

    def link_down(self, link: Link, reason: str, now_s: float, *, left: bool = False) -> None:
        """The link is gone for good: nothing of it remains. `left`: see `RequestTable.lost`."""
        for subscription in self._remote.pop(link, {}).values():
            self._uninterested(subscription)
        self.publisher.forget(link)
        for inbox in self.inboxes.values():
            inbox.owed.pop(link, None)
        self.tunnels.lost(link, reason)
        for dispatcher in self.dispatchers.values():
            dispatcher.lost(link)
        for key in [key for key in self._cancelled if key[0] is link]:
            del self._cancelled[key]
        self.requests.lost(link, now_s, left=left)
        self._idempotent.pop(link.peer, None)
