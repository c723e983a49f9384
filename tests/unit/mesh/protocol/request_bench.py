"""A test bench for a request table: members by number, a clock, and their answers."""

from __future__ import annotations

from random import Random
from typing import Any

from mesh.errors import (
    MeshError,
)
from mesh.protocol.balancer import Candidate
from mesh.protocol.frame import Kind
from mesh.protocol.link import Link
from mesh.protocol.request import DONE, PREFIX, REPLY_PREFIX, Pending
from mesh.protocol.requests import RequestTable
from mesh.protocol.timers import Timers
from mesh.protocol.values import encode_values
from tests.machines import make_link, take_records

START_S, SETTLE_S, TIMEOUT_S = 100.0, 2.0, 5.0


class Bench:
    """A table, members by number (the first listed is chosen), and a clock."""

    def __init__(self, members: int = 1, requests_max: int = 3) -> None:
        self.now_s = START_S
        self.timers = Timers()
        self.candidates: list[Candidate] = []
        self.idempotent: set[str] = set()
        self.woken: list[Pending] = []
        self.table = RequestTable(
            lambda cluster: list(self.candidates), lambda candidates, rng: candidates[0],
            self.timers, Random(1), settle_s=SETTLE_S, requests_max=requests_max,
            idempotent=lambda node, target: target in self.idempotent, request_flush=lambda link: None,
            present=lambda: ("other",),
        )  # fmt: skip
        for name in range(1, members + 1):
            self.add(name)

    def add(self, name: int) -> Candidate:
        candidate = Candidate(bytes([name]) * 16, make_link(bytes([name]) * 16))
        self.candidates.append(candidate)
        return candidate

    def links(self) -> list[Link]:
        return [candidate.link for candidate in self.candidates]

    def ask(
        self, target: str = "shop/get", payload: bytes = b"payload", *,
        timeout_s: float = TIMEOUT_S, only: Candidate | None = None, given_up: bool = False,
    ) -> Pending:  # fmt: skip
        """Start a request. `given_up`: the caller itself gives up when the time is over."""
        until_s, ended_at_once, pending = self.now_s + timeout_s, list[None](), None

        def wake() -> None:
            if pending is None:
                ended_at_once.append(None)
            else:
                self.woken.append(pending)

        pending = self.table.start(
            target, payload, now_s=self.now_s, deadline_s=until_s, expires_s=until_s + given_up,
            wake=wake, only=only,
        )  # fmt: skip
        self.woken += [pending for _ in ended_at_once]
        return pending

    def wait(self, seconds: float) -> None:
        """Let time pass in a loop that is never late."""
        until_s = self.now_s + seconds
        while (due_s := self.timers.due_s()) is not None and due_s <= until_s:
            self.now_s = due_s
            self.timers.run(due_s)
        self.now_s = until_s

    def block(self, seconds: float) -> None:
        """Let time pass while the loop is blocked: afterwards all timers are due at once."""
        self.now_s += seconds
        self.timers.run(self.now_s)

    def reply(self, link: Link, pending: Pending, body: bytes = b"reply") -> None:
        data = b"?" + REPLY_PREFIX.pack(2_000_000, 7) + body
        self.table.on_reply(link, (Kind.REPLY, pending.ident, data, 1, len(data)), self.now_s)

    def error(self, link: Link, pending: Pending, *values: object) -> None:
        data = REPLY_PREFIX.pack(0, 0) + encode_values(*values)
        self.table.on_error(link, (Kind.ERROR, pending.ident, data, 0, len(data)), self.now_s)

    def busy(
        self, link: Link, pending: Pending, *, hard: bool, queue: int = 9, met: tuple[Any, ...] = ()
    ) -> None:
        self.busy_saying(link, pending, queue, 250, hard, *met)

    def busy_saying(self, link: Link, pending: Pending, *values: object) -> None:
        body = encode_values(*values)
        self.table.on_busy(link, (Kind.BUSY, pending.ident, body, 0, len(body)), self.now_s)

    def counts(self) -> tuple[int, ...]:
        table = self.table
        return table.sent, table.replied, table.failed, table.busy, table.retried, table.late


def outcome(pending: Pending) -> MeshError:
    assert pending.state == DONE
    assert isinstance(pending.outcome, MeshError)
    return pending.outcome


def prefix(link: Link) -> tuple[int, int]:
    """Return the time left in ms and the flags of the only request that waits to be sent."""
    ((_, _, body),) = take_records(link)
    left_ms, flags, _, _ = PREFIX.unpack_from(body)
    return left_ms, flags
