"""A node: what the application holds while it is joined, and every verb of the mesh."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import msgpack
import trio

from .config import MeshConfig
from .driver import Driver
from .errors import MeshError, NoMembers, Overloaded, PeerLost, ServiceError, TooLarge
from .names import check_cluster, short, split_target
from .protocol.interest import POLICIES
from .protocol.membership import Change, Member
from .protocol.requests import DONE, Pending
from .protocol.topics import PER_MESSAGE_BYTES, TopicStream
from .statistics import NodeStatistics, node_statistics
from .subscription import Subscription
from .tunnel import Tunnel
from .waker import Bell, Waker
from .watching import Gathering, Watch

TUNNEL_TRIES = 3


class Node:
    """Made by `mesh.join`. All verbs raise NodeClosed once the node is leaving."""

    def __init__(self, driver: Driver, config: MeshConfig) -> None:
        self._driver, self._core, self.config = driver, driver.core, config
        self._publisher = driver.core.patterns.publisher
        self._streams = self._publisher.streams
        self._payload_bytes_max = config.payload_bytes_max

    def __repr__(self) -> str:
        return f"<Node {short(self.id)} of {','.join(self.config.clusters)}>"

    @property
    def id(self) -> bytes:
        """16 random bytes, new with every start of the process."""
        return self._core.identity.node

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where this node can be reached; the first will do as a seed for others."""
        return tuple(endpoint.uri for endpoint in self._driver.endpoints)

    # Request and reply

    async def request(self, target: str, payload: bytes, *, timeout: float | None = None) -> bytes:
        """Ask one member of a cluster, chosen by load; return its reply.

        Args:
            target: `cluster` or `cluster/endpoint`.
            timeout: seconds, default `request_timeout_s`. The enclosing cancel scope's deadline
                counts too; the earlier one travels with the request. Cancelling reaches the
                handler.
        Raises:
            ServiceError: the handler, or the member before it, refused.
            NoMembers, Overloaded: nobody could take it; it was not executed.
            PeerLost, RequestTimeout: see their `maybe_executed`.
            TooLarge, InvalidName, LimitReached: nothing was sent.
        """
        scope_s, now_s = trio.current_effective_deadline(), trio.current_time()
        if scope_s <= now_s:
            await trio.lowlevel.checkpoint()  # Cancelled already: nothing is sent.
        waker = Waker()
        pending = self._start(target, payload, timeout, waker.wake, None, now_s, scope_s)
        if pending.state != DONE:
            candidate = pending.candidate
            if candidate is not None and candidate.link.outstanding == 1:
                self._driver.settle()  # Nobody else's request to travel with: do not wait for any.
            else:
                self._driver.wake_pump()
            try:
                await waker.wait()
            except BaseException:
                self._core.patterns.requests.cancel(pending)
                self._driver.settle()
                raise
        else:
            await trio.lowlevel.checkpoint()
        outcome = pending.outcome
        if isinstance(outcome, bytes):
            return outcome
        assert isinstance(outcome, MeshError)
        raise outcome

    def _start(
        self, target: str, payload: bytes, timeout: float | None, wake: Any, to: bytes | None,
        now_s: float, scope_s: float,
    ) -> Pending:  # fmt: skip
        self._check_payload(payload)
        limit_s = now_s + (self.config.request_timeout_s if timeout is None else timeout)
        # Where the scope's deadline comes first, it is the scope that ends the wait.
        expires_s = limit_s if limit_s <= scope_s else scope_s + 1.0
        return self._core.request(
            target, payload, now_s=now_s, deadline_s=min(limit_s, scope_s), expires_s=expires_s,
            wake=wake, to=to,
        )  # fmt: skip

    def _check_payload(self, payload: bytes) -> None:
        if type(payload) is not bytes:
            raise TypeError(f"payload: want bytes, got {type(payload).__name__}")
        if len(payload) > self._payload_bytes_max:
            raise TooLarge("payload", len(payload), self._payload_bytes_max)

    def gather(self, target: str, payload: bytes, *, timeout: float | None = None) -> Gathering:
        """Ask every member known now; iterate over each with its reply, or its error, as they come.

        Ends when all have answered or `timeout` is over; nobody there: ends at once.
        """
        cluster, _ = split_target(target)
        bell = Bell()
        scope_s, now_s = trio.current_effective_deadline(), trio.current_time()
        asked = [
            (member, self._start(target, payload, timeout, bell.wake, link.peer, now_s, scope_s))
            for member, link in self._core.rotation.linked(cluster)
        ]
        self._driver.settle()
        return Gathering(asked, bell)

    async def broadcast(self, target: str, payload: bytes) -> int:
        """Tell every member known now, without an answer; return how many that were."""
        self._check_payload(payload)
        cluster, endpoint = split_target(target)
        told = self._core.patterns.broadcast(cluster, endpoint, payload)
        self._driver.settle()
        await trio.lowlevel.checkpoint()
        return told

    # Publish and subscribe

    async def publish(
        self, topic: str, payload: bytes, *, headers: dict[str, Any] | None = None
    ) -> None:
        """Publish to everybody subscribed; nobody is: it costs next to nothing and is counted.

        Waits only while a subscriber with `when_full="block"` is full. At most once, in order per
        publisher and topic.

        Raises:
            TooLarge, InvalidName: nothing was published.
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
                stream.payloads.append(payload)
                stream.size_bytes = size
                if not stream.dirty:
                    stream.dirty = True
                    self._publisher.dirty.append(stream)
                    self._driver.wake_pump()
                return
        except (KeyError, TypeError):
            pass  # A new topic, or something wrong that `_prepare` names.
        stream, packed = self._prepare(topic, payload, headers)
        while not self._append(stream, payload, packed):
            stream = await self._wait_room(stream)
        await trio.lowlevel.checkpoint()

    def publish_nowait(
        self, topic: str, payload: bytes, *, headers: dict[str, Any] | None = None
    ) -> None:
        """Like `publish`, and raises trio.WouldBlock, with nothing published, where it would wait."""
        if headers is None and type(payload) is bytes:
            stream = self._streams.get(topic)
            if stream is not None and stream.headers is None:
                size = stream.size_bytes + len(payload) + PER_MESSAGE_BYTES
                if size <= stream.limit_bytes:
                    stream.payloads.append(payload)
                    stream.size_bytes = size
                    self._mark(stream)
                    return
        stream, packed = self._prepare(topic, payload, headers)
        if not self._append(stream, payload, packed):
            raise trio.WouldBlock

    async def publish_many(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Publish several messages of one topic; cheaper than one by one. Cancelled: a prefix was."""
        if not payloads:
            return
        for payload in payloads:
            self._check_payload(payload)
        stream, _ = self._prepare(topic, payloads[0], None)
        total = sum(map(len, payloads)) + PER_MESSAGE_BYTES * len(payloads)
        if stream.size_bytes + total <= stream.limit_bytes and stream.headers is None:
            stream.payloads += payloads
            stream.size_bytes += total
            self._mark(stream)
            return
        for payload in payloads:
            while not self._append(stream, payload, None):
                stream = await self._wait_room(stream)
        await trio.lowlevel.checkpoint()

    def _prepare(
        self, topic: str, payload: bytes, headers: dict[str, Any] | None
    ) -> tuple[TopicStream, bytes | None]:
        self._check_payload(payload)
        if self._core.closing:
            self._core.check_open()
        packed = None
        if headers is not None:
            packed = msgpack.packb(headers)
            if len(packed) > self.config.headers_bytes_max:
                raise TooLarge("headers", len(packed), self.config.headers_bytes_max)
        return self._publisher.stream(topic), packed

    def _append(self, stream: TopicStream, payload: bytes, headers: bytes | None) -> bool:
        """Add one message; False: a subscriber makes us wait."""
        size = len(payload) + PER_MESSAGE_BYTES + (len(headers) if headers else 0)
        if stream.size_bytes + size > stream.limit_bytes:
            self._publisher.refresh(stream)
            if not stream.wanted and not stream.payloads:
                self._publisher.nobody(1)
                return True
            if stream.payloads:
                if not self._publisher.flush(stream):
                    self._driver.settle()
                    return False
                self._driver.settle()
            elif stream.blocked:
                return False
        if headers is not None and stream.headers is None:
            stream.headers = [b""] * len(stream.payloads)
        if stream.headers is not None:
            stream.headers.append(headers or b"")
        stream.payloads.append(payload)
        stream.size_bytes += size
        self._mark(stream)
        return True

    def _mark(self, stream: TopicStream) -> None:
        if not stream.dirty:
            stream.dirty = True
            self._publisher.dirty.append(stream)
            self._driver.wake_pump()

    async def _wait_room(self, stream: TopicStream) -> TopicStream:
        await trio.lowlevel.checkpoint()
        while stream.blocked:
            self._core.check_open()
            await self._driver.topics_freed.wait()
        return self._publisher.stream(stream.topic)  # Idle meanwhile, it may have been evicted.

    def subscribe(
        self, pattern: str, *, when_full: str = "drop_oldest", limit_bytes: int | None = None
    ) -> Subscription:
        """Receive the messages of all topics that match; use it as `async with node.subscribe(...)`.

        Args:
            pattern: `*` is any one token, a last `>` one or more.
            when_full: drop_oldest, drop_newest, or block: then publishers wait for this subscriber.
            limit_bytes: what may wait here (with block: per publisher), default `subscription_bytes`.
        """
        if when_full not in POLICIES:
            raise ValueError(f"when_full: want one of {', '.join(POLICIES)}, got {when_full!r}")
        limit = self.config.subscription_bytes if limit_bytes is None else limit_bytes
        if limit < 1:
            raise ValueError(f"limit_bytes: want at least 1, got {limit}")
        return Subscription(self._driver, pattern, when_full, limit)

    # Tunnels

    def open_tunnel(
        self, target: str, *, window_bytes: int | None = None, timeout: float | None = None
    ) -> _Opening:
        """Open a stream to one member: `async with node.open_tunnel("archive") as tunnel`.

        Args:
            window_bytes: what the other end may have on its way to us, unread.
            timeout: seconds to wait for a member that accepts, default `request_timeout_s`.
        """
        split_target(target)
        limit_s = self.config.request_timeout_s if timeout is None else timeout
        return _Opening(self, target, window_bytes or self.config.tunnel_window_bytes, limit_s)

    async def _open_tunnel(self, target: str, window_bytes: int, timeout_s: float) -> Tunnel:
        cluster, endpoint = split_target(target)
        tried: list[bytes] = []
        with trio.move_on_after(timeout_s):
            while len(tried) < TUNNEL_TRIES:
                self._core.check_open()
                candidate = self._core.choose(cluster, tried)
                if candidate is None and tried:
                    break
                if candidate is None:
                    await self._wait_rotation(cluster)
                    continue
                tried.append(candidate.node)
                tunnels = self._core.patterns.tunnels
                end = tunnels.open(candidate.link, cluster, endpoint, lambda: None, window_bytes)
                tunnel = Tunnel(self._driver, end)
                self._driver.settle()
                try:
                    refusal = await tunnel.wait_open()
                except BaseException:
                    tunnel.abort("the opener gave up")
                    raise
                if not refusal and end.reason:
                    if len(tried) == TUNNEL_TRIES:
                        raise PeerLost(target, short(candidate.node), maybe_executed=True)
                elif not refusal:
                    return tunnel
                elif refusal != "busy":
                    raise ServiceError(refusal, f"tunnel to {target!r} refused")
        if tried:
            raise Overloaded(target, len(tried), 1.0)
        raise NoMembers(cluster, timeout_s)

    async def _wait_rotation(self, cluster: str) -> None:
        settle_s = self.config.settle_s
        with trio.move_on_after(settle_s):
            await self.wait_members(cluster)
            return
        raise NoMembers(cluster, settle_s)

    # Members

    def members(self, cluster: str | None = None) -> list[Member]:
        """Members this node has a link with, not dead and not gone; None for every cluster's."""
        if cluster is not None:
            check_cluster(cluster)
        return list(self._core.membership.of_cluster(cluster))

    async def wait_members(self, cluster: str, *, count: int = 1) -> list[Member]:
        """Wait until at least `count` members can take requests; put a timeout around it."""
        check_cluster(cluster)
        while len(self._core.rotation.of_cluster(cluster)) < count:
            self._core.check_open()
            await self._driver.rotation_grew.wait()
        return self.members(cluster)

    def watch(self, cluster: str | None = None) -> Watch:
        """Iterate over what is known of the members now, as `joined`, then every change of them."""
        known = [Change("joined", one) for one in self.members(cluster)]
        watch = Watch(cluster, known)
        self._driver.watches.add(watch)
        return watch

    def statistics(self) -> NodeStatistics:
        """Plain counters of everything, frozen at this moment."""
        return node_statistics(self._core)


class _Opening:
    """The `async with` around opening a tunnel."""

    def __init__(self, node: Node, target: str, window_bytes: int, timeout_s: float) -> None:
        self._open = functools.partial(node._open_tunnel, target, window_bytes, timeout_s)
        self._tunnel: Tunnel | None = None

    async def __aenter__(self) -> Tunnel:
        self._tunnel = await self._open()
        return self._tunnel

    async def __aexit__(self, *exception: Any) -> None:
        assert self._tunnel is not None
        await self._tunnel.__aexit__(*exception)
