"""Subscriptions of peers to topics of this node, and the credit that they grant its publisher."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import RemoteProtocolError
from ..names import check_existing_pattern
from .interest import POLICIES, Interest, RemoteSubscription
from .link import Link, Received
from .topics import AnySubscription, Publisher
from .values import decode_values


class Subscribers:
    """Subscriptions of peers, by link and the peer's id for each."""

    def __init__(
        self, interest: Interest[AnySubscription], publisher: Publisher, *, subscriptions_max: int,
        audience_grew: Callable[[], object],
    ) -> None:  # fmt: skip
        """
        Args:
            subscriptions_max: most subscriptions of one peer.
            audience_grew: called when a peer has subscribed to something.
        """
        self._interest, self._publisher = interest, publisher
        self._subscriptions_max, self._audience_grew = subscriptions_max, audience_grew
        self._remote: dict[Link, dict[int, RemoteSubscription]] = {}

    def on_subscribe(self, link: Link, record: Received, _now_s: float) -> None:
        """Process a SUBSCRIBE. Raises RemoteProtocolError."""
        _, ident, data, start, end = record
        pattern, policy, window, waiting = decode_values(
            bytes(data[start:end]), "SUBSCRIBE", (str, int, int), defaults=(0,)
        )
        subscriptions = self._remote.setdefault(link, {})
        if ident in subscriptions or not 0 <= policy < len(POLICIES) or window < 1 or waiting < 0:
            raise RemoteProtocolError(f"invalid SUBSCRIBE {ident} to {pattern!r}, policy {policy}")
        if len(subscriptions) >= self._subscriptions_max:
            raise RemoteProtocolError(f"more than {self._subscriptions_max} subscriptions")
        try:
            tokens = check_existing_pattern(pattern)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        credit = window - waiting
        subscription = RemoteSubscription(link, ident, tokens, POLICIES[policy], window, credit)
        subscriptions[ident] = subscription
        self._interest.add(tokens, subscription)
        self._audience_grew()

    def on_unsubscribe(self, link: Link, record: Received, _now_s: float) -> None:
        """Process an UNSUBSCRIBE. Raises RemoteProtocolError."""
        ident = record[1]
        subscription = self._remote.get(link, {}).pop(ident, None)
        if subscription is None:
            raise RemoteProtocolError(f"UNSUBSCRIBE {ident} without SUBSCRIBE")
        self._remove_interest(subscription)

    def _remove_interest(self, subscription: RemoteSubscription) -> None:
        self._interest.remove(subscription.pattern, subscription)
        self._publisher.blocker_freed(subscription)

    def on_credit(self, link: Link, record: Received, _now_s: float) -> None:
        """Process a CREDIT. Raises RemoteProtocolError."""
        _, ident, data, start, end = record
        (size,) = decode_values(bytes(data[start:end]), "CREDIT", (int,))
        subscription = self._remote.get(link, {}).get(ident)
        if size < 1:
            raise RemoteProtocolError(f"invalid credit of {size} bytes")
        if subscription is None:
            return  # Unsubscribed meanwhile.
        # A peer may return more credit than this subscription has used: also for batches that were on their
        # way to another subscription of that node when this one began. The window is the limit.
        credit_bytes = subscription.credit_bytes + size
        subscription.credit_bytes = min(credit_bytes, subscription.window_bytes)
        self._publisher.blocker_freed(subscription)

    def peers_of(self, topic: str) -> set[bytes]:
        """Return the peers that have a subscription to `topic`."""
        found = self._interest.match(topic)
        return {one.link.peer for one in found if isinstance(one, RemoteSubscription)}

    def patterns(self) -> set[str]:
        """Return the patterns of all these subscriptions."""
        return {
            ".".join(one.pattern)
            for subscriptions in self._remote.values()
            for one in subscriptions.values()
        }

    def link_down(self, link: Link) -> None:
        for subscription in self._remote.pop(link, {}).values():
            self._remove_interest(subscription)
