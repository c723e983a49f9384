"""The node: the application's object while it is joined, with every verb of the mesh."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import trio
from trio.lowlevel import enable_ki_protection

from .config import MeshConfig
from .driver import Driver
from .errors import MeshError, TooLarge
from .message import check_packed, encode_headers
from .names import check_cluster, check_topic, short_id, split_target
from .opening import Opening
from .protocol.balancer import Candidate
from .protocol.batch import PER_MESSAGE_BYTES
from .protocol.interest import POLICIES
from .protocol.membership import Change, Member
from .protocol.request import DONE, Pending
from .protocol.topics import TopicStream
from .statistics import NodeStatistics, node_statistics
from .subscription import Subscription
from .waker import Bell, Waker
from .watching import Gathering, Watch

SENT_POLL_S = 0.002
WINDOW_BYTES_MAX = 1 << 40
SECONDS_MAX = 1e10
"""Three centuries, as good as for ever."""


class Node:
    """Made by `mesh.join`. All verbs raise NodeClosed once the node has left. Those that publish do so as soon
    as it is leaving; the others still work then, because running handlers may need them to finish.
    """

    def __init__(self, driver: Driver, config: MeshConfig) -> None:
        self._driver, self._core, self.config = driver, driver.core, config
        self._publisher = driver.core.patterns.publisher
        self._streams = self._publisher.streams
        self._payload_bytes_max = config.payload_bytes_max
        self.after, self.within = driver.after, driver.within
        self.check_thread, self.end_if_forked = driver.check_thread, driver.end_if_forked
        """For packages built on the mesh; see `Driver`."""

    def __repr__(self) -> str:
        return f"<Node {short_id(self.id)} of {','.join(self.config.clusters)}>"

    @property
    def id(self) -> bytes:
        """16 random bytes, new each time a node joins."""
        return self._core.identity.node

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses at which this node can be reached; the first one will do as a seed for others."""
        return tuple(endpoint.uri for endpoint in self._driver.endpoints)

    # Request and reply

    @enable_ki_protection
    async def request(self, target: str, payload: bytes, *, timeout: float | None = None) -> bytes:
        """Ask one member of a cluster, chosen by load; return its reply.

        Args:
            target: `cluster` or `cluster/endpoint`.
            timeout: seconds, default `request_timeout_s`; with 0 it expires at once and nothing is sent. The
                deadline of the enclosing cancel scope counts too; the earlier one is sent with the
                request. Cancelling the call cancels the handler.
        Raises:
            ServiceError: the handler refused or failed, or its member refused.
            NoMembers, Overloaded: no member could take it.
            PeerLost, RequestTimeout: the member was lost, or the time has passed.
            NodeClosed: the node has left. All of these have `maybe_executed`.
            TooLarge, InvalidName, LimitReached: nothing was sent.
        """
        scope_s, now_s = self._driver.deadline_and_now()
        if scope_s <= now_s:
            # Raises if the scope is cancelled already: nothing is sent.
            await trio.lowlevel.checkpoint()
        waker = Waker()
        pending = self._start_request(target, payload, timeout, waker.wake, None, now_s, scope_s)
        if pending.state != DONE:
            candidate = pending.candidate
            if candidate is not None and candidate.link.outstanding == 1:
                # It is the only request to that member, so there is none to share a frame with.
                self._driver.flush()
            else:
                self._driver.wake_pump()
            try:
                await waker.wait()
            except BaseException:
                self._core.patterns.requests.cancel(pending)
                self._driver.flush()
                raise
        else:
            await trio.lowlevel.checkpoint()
        outcome = pending.outcome
        if isinstance(outcome, bytes):
            return outcome
        assert isinstance(outcome, MeshError)
        raise outcome

    def _start_request(
        self, target: str, payload: bytes, timeout: float | None,
        wake: Callable[[], object], only: Candidate | None, now_s: float, scope_s: float,
    ) -> Pending:  # fmt: skip
        self._check_payload(payload)
        limit_s = now_s + (self.config.request_timeout_s if timeout is None else _seconds(timeout))
        # If the scope's deadline comes first, the scope ends the wait: the request's own timeout is then a second
        # later, or at once if the deadline has passed.
        expires_s = limit_s if limit_s <= scope_s else scope_s + (1.0 if scope_s > now_s else 0.0)
        return self._core.request(
            target, payload, now_s=now_s, deadline_s=min(limit_s, scope_s), expires_s=expires_s,
            wake=wake, only=only,
        )  # fmt: skip

    def _check_payload(self, payload: bytes) -> None:
        if type(payload) is not bytes:
            raise TypeError(f"payload: want bytes, got {type(payload).__name__}")
        if len(payload) > self._payload_bytes_max:
            limit = self._payload_bytes_max
            raise TooLarge("payload", len(payload), limit, "payload_bytes_max", TooLarge.TUNNEL)

    def gather(self, target: str, payload: bytes, *, timeout: float | None = None) -> Gathering:
        """Ask every member known now; iterate over each with its reply or error, as they come.

        Iteration ends when all have answered or `timeout` is over, and at once if there is no member. An entry
        is the reply, or the MeshError that `request` would have raised. Stopping or cancelling the iteration
        cancels the remaining requests and their handlers.

        Raises:
            TooLarge, InvalidName, TypeError, LimitReached, NodeClosed: no member was asked.
        """
        cluster, _ = split_target(target)
        self._core.check_open()
        bell = Bell()
        scope_s, now_s = self._driver.deadline_and_now()
        asked: list[tuple[Member, Pending]] = []
        try:
            for member, link in self._core.rotation.linked(cluster):
                only = self._core.rotation.candidate(link, cluster)
                pending = self._start_request(
                    target, payload, timeout, bell.wake, only, now_s, scope_s
                )
                asked.append((member, pending))
        except BaseException:
            self._cancel_requests([pending for _, pending in asked])
            raise
        self._driver.flush()
        run_sync_soon = trio.lowlevel.current_trio_token().run_sync_soon
        return Gathering(
            asked, bell, functools.partial(_run_soon, run_sync_soon, self._cancel_requests)
        )

    def _cancel_requests(self, asked: Sequence[Pending]) -> None:
        for pending in asked:
            self._core.patterns.requests.cancel(pending)
        self._driver.flush()

    async def broadcast(self, target: str, payload: bytes) -> int:
        """Send to every member known now, without an answer; return how many that were.

        If cancelled, nothing was sent.

        Raises:
            TooLarge, InvalidName, TypeError, NodeClosed: nothing was sent.
        """
        await self._driver.checkpoint_if_cancelled()
        self._check_payload(payload)
        self._core.check_open()
        cluster, endpoint = split_target(target)
        count = self._core.patterns.broadcast(cluster, endpoint, payload)
        self._driver.flush()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return count

    # Publish and subscribe

    @enable_ki_protection
    async def publish(
        self, topic: str, payload: bytes, *, headers: dict[str, Any] | None = None
    ) -> None:
        """Publish to all subscribers; without any, the message is counted and dropped.

        Waits only while a subscriber with `when_full="block"` is full; otherwise it is mostly no checkpoint.
        Delivery is at most once, in order per publisher and topic. If cancelled, nothing was published.

        Args:
            headers: names to values that msgpack can pack; at most `headers_bytes_max` when packed.
        Raises:
            TooLarge, InvalidName, TypeError, NodeClosed: nothing was published.
            LimitReached: `topics_max` topics have messages waiting.
        """
        try:
            stream = self._streams[topic]
            size = stream.size_bytes + len(payload) + PER_MESSAGE_BYTES
            if (
                size <= stream.limit_bytes
                and type(payload) is bytes
                and headers is None
                and stream.headers is None
            ):
                if stream.dirty:
                    stream.payloads.append(payload)
                    stream.size_bytes = size
                    return
                self._driver.append_first(stream, payload, size)
                if self._publisher.flush_due:
                    await trio.lowlevel.cancel_shielded_checkpoint()
                return
        except (KeyError, TypeError):
            pass  # A new topic, or an error that `_prepare` reports.
        await self._driver.checkpoint_if_cancelled()
        stream, packed = self._prepare(topic, payload, headers)
        while not self._append(stream, payload, packed):
            stream = await self._wait_room(stream, payload, packed)
        await trio.lowlevel.cancel_shielded_checkpoint()

    @enable_ki_protection
    def publish_nowait(
        self, topic: str, payload: bytes, *, headers: dict[str, Any] | None = None
    ) -> None:
        """Like `publish`, but raises trio.WouldBlock, with nothing published, where `publish` would wait."""
        if headers is None and type(payload) is bytes and type(topic) is str:
            stream = self._streams.get(topic)
            if stream is not None and stream.headers is None:
                size = stream.size_bytes + len(payload) + PER_MESSAGE_BYTES
                if size <= stream.limit_bytes:
                    if stream.dirty:
                        stream.payloads.append(payload)
                        stream.size_bytes = size
                    else:
                        self._driver.append_first(stream, payload, size)
                    return
        stream, packed = self._prepare(topic, payload, headers)
        if not self._append(stream, payload, packed):
            raise trio.WouldBlock

    @enable_ki_protection
    async def publish_many(
        self, topic: str, payloads: Sequence[bytes], *, headers: Sequence[bytes] | None = None
    ) -> None:
        """Publish several messages of one topic, which is cheaper than one by one.

        If cancelled, a prefix of `payloads` was published. Raises as `publish` does, but NodeClosed and
        LimitReached may also come after a prefix was published.

        Args:
            headers: one per payload, packed by `mesh.message.encode_headers`; each at most
                `headers_bytes_max`.
        """
        payloads = tuple(payloads)  # A copy: the caller may change its list while we wait for room.
        if {*map(type, payloads)} != {bytes} or max(map(len, payloads)) > self._payload_bytes_max:
            for payload in payloads:
                self._check_payload(payload)
        if headers is not None:
            headers = check_packed(headers, len(payloads), self.config.headers_bytes_max)
        stream, _ = self._prepare(topic, b"", None)
        if not payloads:
            return
        total = sum(map(len, payloads)) + PER_MESSAGE_BYTES * len(payloads)
        total += sum(map(len, headers)) if headers is not None else 0
        if stream.size_bytes + total <= stream.limit_bytes:
            if self._publisher.extend(stream, payloads, total, headers):
                self._driver.schedule_flush()
                if self._publisher.flush_due:
                    await trio.lowlevel.checkpoint()
            return
        batches = self._publisher.batches
        for payload, packed in zip(payloads, repeat(None) if headers is None else headers):  # noqa: B905
            while not self._append(stream, payload, packed):
                stream = await self._wait_room(stream, payload, packed)
            # Once per batch let it be sent, and other tasks run.
            if self._publisher.batches != batches:
                batches = self._publisher.batches
                await trio.lowlevel.checkpoint()
                stream = self._publisher.stream(topic)
        await trio.lowlevel.checkpoint()

    async def wait_sent(self, waiting_bytes: int = 0) -> None:
        """Wait until at most `waiting_bytes` wait for any one member; 0: until members have received everything.

        Sends what was published before at once, without waiting for the pump. Raises NodeClosed, WrongThread.
        """
        _check_bytes("waiting_bytes", waiting_bytes, 0)
        self._driver.check_thread()
        await trio.lowlevel.checkpoint()
        self._driver.flush()
        while self._core.unsent_bytes() > waiting_bytes:
            self._core.check_open()
            # Acknowledgements come per frame and not per message, so there is no event to wait for.
            await trio.sleep(SENT_POLL_S)

    def _prepare(
        self, topic: str, payload: bytes, headers: dict[str, Any] | None
    ) -> tuple[TopicStream, bytes | None]:
        self._driver.check_thread()
        self._check_payload(payload)
        packed = None
        if headers is not None:
            packed = encode_headers(headers, self.config.headers_bytes_max, "headers_bytes_max")
        return self._publisher.stream(topic), packed

    def _append(self, stream: TopicStream, payload: bytes, headers: bytes | None) -> bool:
        """Add one message; return False if there is no room because of a subscriber."""
        room = self._publisher.make_room(stream, _size_bytes(payload, headers))
        if room and self._publisher.append(stream, payload, headers):
            self._driver.schedule_flush()
        if self._core.needs_flush:  # A batch is complete: send it now, while the next one gathers.
            self._driver.flush()
        return room

    async def _wait_room(
        self, stream: TopicStream, payload: bytes, headers: bytes | None
    ) -> TopicStream:
        size = _size_bytes(payload, headers)
        await trio.lowlevel.checkpoint()
        while (ahead := self._publisher.blocking_stream(stream, size)) is not None:
            self._publisher.check_open()
            await self._driver.room_bells.setdefault(ahead, Bell()).wait()
        return self._publisher.stream(stream.topic)  # It may have been evicted while it was idle.

    def subscribe(
        self, pattern: str, *, when_full: str = "drop_oldest", limit_bytes: int | None = None
    ) -> Subscription:
        """Receive the messages of all matching topics; use it as `async with node.subscribe(...)`.

        Args:
            pattern: `*` is any one token, a last `>` one or more.
            when_full: drop_oldest, drop_newest, or block: with block, publishers wait for this subscriber.
            limit_bytes: bytes that may wait here (with block: per publisher), default `subscription_bytes`.
        """
        if when_full not in POLICIES:
            raise ValueError(f"when_full: want one of {', '.join(POLICIES)}, got {when_full!r}")
        limit = self.config.subscription_bytes if limit_bytes is None else limit_bytes
        _check_bytes("limit_bytes", limit, 1)
        return Subscription(self._driver, pattern, when_full, limit)

    def run_beside(self, task: Callable[[], Awaitable[object]]) -> None:
        """Run a task for as long as this node; for packages built on the mesh.

        It is cancelled when the node leaves. An exception that leaves it crashes the node.
        Raises NodeClosed, WrongThread.
        """
        self._driver.check_thread()
        self._core.check_open()
        self._driver.run_beside(task)

    # Tunnels

    def open_tunnel(
        self, target: str, *, window_bytes: int | None = None, timeout: float | None = None
    ) -> Opening:
        """Open a stream to one member: `async with node.open_tunnel("archive") as tunnel`.

        Args:
            window_bytes: bytes that the other end may have in flight to us or unread here.
            timeout: seconds to wait for a member that accepts, default `request_timeout_s`.
        Raises, on entering the block:
            NoMembers: the cluster has no member.
            Overloaded, RequestTimeout, PeerLost: the members asked were busy, silent, or lost meanwhile.
            ServiceError: refused: `no_such_endpoint`, `not_allowed`.
        """
        window = self.config.tunnel_window_bytes if window_bytes is None else window_bytes
        _check_bytes("window_bytes", window, 1)
        timeout_s = self.config.request_timeout_s if timeout is None else _seconds(timeout)
        return Opening(self._driver, target, window, timeout_s)

    # Members

    def members(self, cluster: str | None = None) -> list[Member]:
        """Return the members that this node has a link with, not dead and not gone; None: of every cluster."""
        if cluster is not None:
            check_cluster(cluster)
        return list(self._core.membership.members_of(cluster))

    async def wait_members(self, cluster: str, *, count: int = 1) -> list[Member]:
        """Wait until at least `count` members can take requests. No time limit: put a timeout around it."""
        check_cluster(cluster)
        await self._driver.wait_count(count, lambda: self._core.rotation.candidates(cluster))
        return self.members(cluster)

    async def wait_subscribers(self, topic: str, *, count: int = 1) -> list[Member]:
        """Wait until at least `count` members are known to subscribe to a topic. No time limit: put a timeout around
        it."""
        check_topic(topic)

        def subscribers() -> list[Member]:
            found = self._core.patterns.subscribers.peers_of(topic)
            return [one for one in self.members() if one.node in found]

        return await self._driver.wait_count(count, subscribers)

    def interest(self) -> set[str]:
        """Return the patterns that members are known to subscribe to."""
        return self._core.patterns.subscribers.patterns()

    def watch(self, cluster: str | None = None) -> Watch:
        """Return an iterator over the members known now, as `joined`, and then over every change of a member."""
        known = [Change("joined", one) for one in self.members(cluster)]
        self._core.check_open()
        watch = Watch(cluster, known)
        self._driver.watches.add(watch)
        return watch

    def problems(self) -> dict[str, str]:
        """Return the finders that cannot find nodes now, or not all, by name, with the reason in plain words."""
        return self._driver.problems()

    def statistics(self) -> NodeStatistics:
        """Return plain counters of everything, frozen at this moment."""
        return node_statistics(self._core)


def _size_bytes(payload: bytes, headers: bytes | None) -> int:
    return len(payload) + (len(headers) if headers else 0)


def _run_soon(
    run_sync_soon: Callable[..., object], call: Callable[..., object], what: object
) -> None:
    with suppress(trio.RunFinishedError):
        run_sync_soon(call, what)


def _seconds(timeout: float) -> float:
    if not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout: want seconds, got {type(timeout).__name__}")
    if not timeout >= 0:  # `not >=` also refuses NaN.
        raise ValueError(f"timeout: want seconds, at least 0, got {timeout!r}")
    return min(timeout, SECONDS_MAX)  # Python's integers may exceed any float.


def _check_bytes(name: str, size_bytes: int, least: int) -> None:
    if type(size_bytes) is not int:
        raise TypeError(f"{name}: want int, got {type(size_bytes).__name__}")
    if not least <= size_bytes <= WINDOW_BYTES_MAX:
        raise ValueError(f"{name}: want {least} to {WINDOW_BYTES_MAX}, got {size_bytes}")
