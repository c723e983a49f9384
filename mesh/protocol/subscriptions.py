"""The subscribing side of topics: batches in, to the inboxes of this node that match; credit out.

BATCH ──> matches (one lookup per topic) ──> inboxes ──take──> the application
                                                         └──> CREDIT, for what was read with `block`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from ..errors import InvalidName, RemoteProtocolError
from ..names import check_existing_topic, check_pattern
from .batch import NUMBERS_END, Batch
from .frame import Kind
from .inbox import Delivery, Inbox
from .interest import BLOCK, POLICIES, Interest
from .link import Link, Received
from .sharing import Sharing, one_per_group, overlap
from .timers import Timers
from .topics import AnySubscription, Publisher
from .values import clip, encode_values

CREDIT_DELAY_S = 0.05
"""Seconds for which credit for less than a quarter of a subscription's window waits for more: a frame of its own
takes both ends as long as a frame of messages. Only a message of more than three quarters of the window has to
wait for such credit."""


class Subscriptions:
    """Subscriptions of one node, to topics of its peers and its own."""

    def __init__(
        self, interest: Interest[AnySubscription], publisher: Publisher, timers: Timers, *,
        topics_max: int, in_flight_bytes: int, record_bytes_max: int,
        request_flush: Callable[[Link], None],
    ) -> None:  # fmt: skip
        """
        Args:
            interest: the publisher's, because this node's messages go to its own inboxes, too.
            topics_max: most topics whose matches are kept.
            in_flight_bytes: see Inbox.
            record_bytes_max: the largest batch that a peer sends.
            request_flush: called with every link that has something to send now.
        """
        self._interest, self._publisher, self._timers = interest, publisher, timers
        self._topics_max, self._request_flush = topics_max, request_flush
        self._in_flight_bytes, self._record_bytes_max = in_flight_bytes, record_bytes_max
        self.inboxes: dict[int, Inbox] = {}
        self._local_interest: Interest[Inbox] = Interest()
        self._matches: dict[str, list[Inbox]] = {}
        self._next_inbox = 0
        self._owing_inboxes: dict[Inbox, None] = {}
        """Subscriptions that owe credit for less than a quarter of their window, until the timer returns it."""
        self.unwanted_batches = 0

    def on_batch(self, link: Link, record: Received, _now_s: float) -> None:
        """Process a BATCH. Raises RemoteProtocolError."""
        _, _, data, start, end = record
        if len(data) > 4 * (end - start):  # A small batch that waits must not keep a large frame.
            data, start, end = bytes(data[start:end]), 0, end - start
        batch = Batch(data, start, end)
        if batch.publisher != link.peer:
            raise RemoteProtocolError("batch of another publisher")
        if batch.next_sequence > NUMBERS_END or batch.epoch >= NUMBERS_END:
            raise RemoteProtocolError(
                f"batch with an invalid number: epoch {batch.epoch}, sequence {batch.base_sequence}"
            )
        inboxes = self._matches.get(batch.topic)
        if inboxes is None:
            inboxes = self._match(batch.topic)
        if not inboxes:
            self.unwanted_batches += 1  # Unsubscribed while it was on its way.
            return
        batch.check()  # An error ends the link here; later it would hit the subscription's reader.
        if batch.size_bytes > link.payload_bytes_max:
            link.check_payload(batch.longest_bytes)
        for inbox in inboxes:
            inbox.push(batch, link)

    def _match(self, topic: str) -> list[Inbox]:
        """Find the inboxes for a topic; once for each one that arrives, so the name is checked here. Raises
        RemoteProtocolError if it is not valid."""
        try:
            check_existing_topic(topic)
        except InvalidName as error:
            raise RemoteProtocolError(f"batch with an invalid topic: {clip(str(error))}") from None
        if len(self._matches) >= self._topics_max:
            self._matches.clear()
        inboxes = self._matches[topic] = one_per_group(self._local_interest.match(topic))
        return inboxes

    def subscribe(self, pattern: str, policy: str, limit_bytes: int, wake: Callable[[], object]) -> Inbox:  # fmt: skip
        """Begin a subscription of this node and return its inbox; `send_subscribe` tells a link of it."""
        self._next_inbox += 1
        # With `block`, a batch of more than the limit is sent as well, when all credit is there.
        beyond_bytes = max(0, self._record_bytes_max - limit_bytes)
        inbox = Inbox(
            self._next_inbox, check_pattern(pattern), policy, limit_bytes, wake,
            in_flight_bytes=self._in_flight_bytes + beyond_bytes,
        )  # fmt: skip
        self.inboxes[inbox.ident] = inbox
        self._local_interest.add(inbox.pattern, inbox)
        self._interest.add(inbox.pattern, inbox)
        self._matches.clear()
        return inbox

    def unsubscribe(self, inbox: Inbox) -> bool:
        """End a subscription. Return False if it had ended before."""
        if self.inboxes.pop(inbox.ident, None) is None:
            return False
        self._local_interest.remove(inbox.pattern, inbox)
        self._interest.remove(inbox.pattern, inbox)
        self._matches.clear()
        if inbox.sharing is not None:
            inbox.sharing.members.discard(inbox)
        self._publisher.blocker_freed(inbox)
        return True

    def share(self, inbox: Inbox, sharing: Sharing, after: Iterable[Inbox]) -> None:
        """Make a subscription share its messages. Call it in the turn in which it was subscribed, so before anything
        can arrive. `after`: see Subscription.share."""
        inbox.sharing = sharing
        sharing.members.add(inbox)
        for predecessor in after:
            self._continue_streams(predecessor, {inbox})

    def hand_over(self, inbox: Inbox) -> None:
        """Let others that share with this subscription, which has ended, report what is missing after its messages.

        Call it in the turn in which it was unsubscribed, so before anything can arrive, and only if the messages
        that wait in it are still taken. Not when all that share end: each would take over from the one before.
        """
        if inbox.sharing is not None:
            self._continue_streams(inbox, inbox.sharing.members)

    def _continue_streams(self, predecessor: Inbox, successors: Set[Inbox]) -> None:
        """Continue the streams of `predecessor`, which has ended, in those `successors` that get their messages now."""
        streams = predecessor.streams.keys()
        if len(successors) < len(streams) and not any(
            overlap(one.pattern, predecessor.pattern) for one in successors
        ):
            return
        for stream in streams:
            for inbox in one_per_group(self._local_interest.match(stream[1])):
                if inbox in successors:
                    inbox.streams.continue_from(predecessor.streams, stream)

    def send_subscribe(self, link: Link, inbox: Inbox) -> None:
        policy = POLICIES.index(inbox.policy)
        values = [".".join(inbox.pattern), policy, inbox.limit_bytes]
        if waiting_bytes := inbox.take_over(link):
            values.append(waiting_bytes)
        link.send_control(Kind.SUBSCRIBE, inbox.ident, encode_values(*values))
        self._request_flush(link)

    def take(self, inbox: Inbox, now_s: float) -> Delivery:
        """Return the next messages of a subscription, and when it is due, credit to their publisher."""
        delivery = inbox.take()
        if inbox.policy == BLOCK:
            self._publisher.blocker_freed(inbox)
            for link, owed in list(inbox.owed_bytes.items()):
                if owed * 4 >= inbox.limit_bytes:
                    self._return_credit(inbox, link)
            if inbox.owed_bytes and inbox not in self._owing_inboxes:
                # Returned soon as well, because the next message may be as large as the window.
                self._owing_inboxes[inbox] = None
                if len(self._owing_inboxes) == 1:
                    self._timers.call_at(now_s + CREDIT_DELAY_S, self._return_owed)
        return delivery

    def _return_owed(self, _now_s: float) -> None:
        owing_inboxes, self._owing_inboxes = self._owing_inboxes, {}
        for inbox in owing_inboxes:
            for link in list(inbox.owed_bytes):
                self._return_credit(inbox, link)

    def _return_credit(self, inbox: Inbox, link: Link) -> None:
        owed = inbox.owed_bytes.pop(link)
        if link.up and inbox.ident in self.inboxes:
            link.send_control(Kind.CREDIT, inbox.ident, encode_values(owed))
            self._request_flush(link)

    def link_up(self, link: Link) -> None:
        for inbox in self.inboxes.values():
            self.send_subscribe(link, inbox)

    def link_down(self, link: Link) -> None:
        for inbox in self.inboxes.values():
            inbox.owed_bytes.pop(link, None)

    def close(self) -> None:
        """Wake all tasks that wait for messages, because the node has left."""
        for inbox in self.inboxes.values():
            inbox.wake()
