"""What answers a request that was not started, and each record of a tunnel: bytes that stay as they are."""

from __future__ import annotations

from pathlib import Path

from mesh.protocol.dispatch import Endpoint
from mesh.protocol.frame import Kind, pack_record
from mesh.protocol.interest import BLOCK
from mesh.protocol.link import Link
from mesh.protocol.request import pack_busy, read_busy
from mesh.protocol.tunnel import BROKEN, OPEN, TunnelEnd
from mesh.protocol.tunnels import TunnelTable
from tests.machines import Record, make_batch, make_link, take_records

from .patterns_bench import NOW_S, Bench, call

GOLDEN = Path(__file__).parents[3] / "golden"
WINDOW = 20
TUNNEL_KINDS = [kind for kind in Kind if kind.name.startswith("TUNNEL_")]


def golden(name: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in (GOLDEN / name).read_text().split()]


def test_busy() -> None:
    now, before = golden("busy-v1.hex")
    assert pack_busy(9, 250, hard=True, setting="queue_requests", limit=256) == now
    assert read_busy(now) == [9, 250, True, "queue_requests", 256]
    assert read_busy(before) == [9, 250, True, "", 0], "of a member that does not say which limit"


class Side:
    """One node's tunnels on its end of a link; `said` is what left it."""

    def __init__(self, said: list[Record]) -> None:
        self.link: Link = make_link()
        self.ends: list[TunnelEnd] = []
        self._said = said
        self.table = TunnelTable(
            tunnels_max=1, window_bytes=WINDOW, request_flush=lambda link: None,
            opened=lambda end, cluster, endpoint: self.ends.append(end),
        )  # fmt: skip
        self.table.endpoints = {"archive": {"store": Endpoint()}}

    def tell(self, other: Side) -> None:
        for kind, ident, body in take_records(self.link):
            self._said.append((kind, ident, body))
            other.table.on_record(other.link, kind, ident, body)


def test_records_of_a_tunnel() -> None:
    """One of each kind, in the order of their numbers, as they come in the life of one tunnel."""
    said: list[Record] = []
    opener, acceptor = Side(said), Side(said)
    end = opener.table.open(opener.link, "archive", "store", 2 * WINDOW)
    opener.tell(acceptor)
    acceptor.tell(opener)
    (other,) = acceptor.ends
    assert (end.state, other.state, end.credit_bytes, other.credit_bytes) == (
        OPEN,
        OPEN,
        WINDOW,
        2 * WINDOW,
    )
    opener.table.send(end, b"part" * 3)
    opener.tell(acceptor)
    opener.table.report_blocked(end, WINDOW)
    opener.tell(acceptor)
    assert acceptor.table.read(other) == b"part" * 3
    acceptor.tell(opener)
    assert end.credit_bytes == WINDOW
    opener.table.send_eof(end)
    opener.tell(acceptor)
    opener.table.stop_reading(end)
    opener.tell(acceptor)
    acceptor.table.reset(other, "failed", "disk on fire")
    acceptor.tell(opener)
    assert end.state == BROKEN
    said.sort(key=lambda record: record[0])
    assert [kind for kind, _, _ in said] == TUNNEL_KINDS
    assert [pack_record(*record) for record in said] == golden("tunnel-v1.hex")


def test_records_of_the_other_patterns() -> None:
    """One of each kind, as a node says them: what it wants, what it no longer wants, and no."""
    bench, said = Bench(), []
    inbox = bench.subscribe("orders.>", BLOCK, 1000)
    bench.patterns.subscriptions.send_subscribe(bench.link, inbox)
    bench.record(Kind.BATCH, 1, make_batch(0, [bytes(600)], topic="orders.eu").raw())
    bench.patterns.subscriptions.take(inbox, NOW_S)
    bench.timers.run(NOW_S + 1)  # The credit is due.
    asked = bench.ask("shop/get")
    said += bench.sent()
    bench.patterns.requests.cancel(asked)
    bench.record(Kind.REQUEST, 5, call("nobody", "get"))
    assert bench.patterns.broadcast("shop", "flush", b"now") == 1
    said += bench.sent()
    kinds = [Kind.SUBSCRIBE, Kind.CREDIT, Kind.REQUEST, Kind.CANCEL, Kind.ERROR, Kind.BROADCAST]
    assert sorted(kind for kind, _, _ in said) == sorted(kinds)
    said.sort(key=lambda record: kinds.index(Kind(record[0])))
    assert [pack_record(*record) for record in said] == golden("records-v1.hex")
