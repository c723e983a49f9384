"""A test bench for the patterns of one node, with a member of another cluster at the end of its only link."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mesh.config import MeshConfig
from mesh.errors import RemoteProtocolError
from mesh.protocol.dispatch import Dispatcher, Endpoint, Job
from mesh.protocol.inbox import Inbox
from mesh.protocol.interest import DROP_OLDEST
from mesh.protocol.link import Link
from mesh.protocol.membership import Membership
from mesh.protocol.patterns import Patterns
from mesh.protocol.request import PREFIX, Pending
from mesh.protocol.rotation import Rotation
from mesh.protocol.timers import Timers
from tests.machines import ME, OTHER, Record, make_link, take_records

NOW_S = 10.0


class Bench:
    """The patterns of a node with one member of `shop` at the other end of its link."""

    def __init__(self, **settings: Any) -> None:
        self.link = make_link()
        self.started: list[Job] = []
        self.to_flush: list[Link] = []
        self.timers = Timers()
        membership = Membership(
            stalled_s=3.0, suspect_grace_s=0.5, dead_after_s=3.0, changed=lambda change: None
        )
        membership.linked(OTHER, ("shop",), (), NOW_S)
        self.patterns = Patterns(
            ME, 100, MeshConfig(clusters=("depot",), **settings),
            Rotation(membership, {OTHER: self.link}), self.timers, Random(1),
            opened=lambda end, cluster, endpoint: None, request_flush=self.to_flush.append,
            audience_grew=lambda: None, wall_us=lambda: 7,
        )  # fmt: skip
        self.dispatcher = Dispatcher(
            "depot", {"get": Endpoint()}, {"flush": Endpoint()}, concurrency=1, queue_max=2,
            queue_bytes_max=1000, start=self.started.append, request_flush=self.to_flush.append,
        )  # fmt: skip
        self.patterns.dispatchers["depot"] = self.dispatcher

    def record(self, kind: int, ident: int, body: bytes, link: Link | None = None) -> None:
        data = b"<<" + body + b">>"
        self.patterns.on_record(link or self.link, (kind, ident, data, 2, 2 + len(body)), NOW_S)

    def sent(self) -> list[Record]:
        return take_records(self.link)

    def subscribe(self, pattern: str, policy: str = DROP_OLDEST, limit: int = 1 << 20) -> Inbox:
        return self.patterns.subscriptions.subscribe(pattern, policy, limit, lambda: None)

    def publish(self, topic: str, payload: bytes) -> bool:
        stream = self.patterns.publisher.stream(topic)
        stream.payloads.append(payload)
        stream.size_bytes += len(payload) + 8
        return self.patterns.publisher.flush(stream)

    def ask(self, target: str) -> Pending:
        return self.patterns.requests.start(
            target, b"", now_s=NOW_S, deadline_s=20.0, expires_s=20.0, wake=lambda: None
        )


def call(cluster: str, endpoint: str, payload: bytes = b"", time_left_ms: int = 0) -> bytes:
    head = PREFIX.pack(time_left_ms, 0, len(cluster), len(endpoint))
    return head + f"{cluster}{endpoint}".encode() + payload


def refused(bench: Bench, kind: int, ident: int, body: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        bench.record(kind, ident, body)
