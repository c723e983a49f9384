from __future__ import annotations

from typing import Any

import pytest

from mesh.errors import LimitReached, RemoteProtocolError
from mesh.protocol.dispatch import Endpoint
from mesh.protocol.frame import CONTROL, DATA, Kind
from mesh.protocol.link import Link
from mesh.protocol.tunnel import BROKEN, CLOSED, OPEN, OPENING, TunnelEnd
from mesh.protocol.tunnels import TunnelTable
from mesh.protocol.values import TEXT_BYTES_MAX, encode_values
from tests.machines import LANES, Cable, make_link

WINDOW, TUNNELS_MAX = 1000, 3


class Bench:
    """Two nodes' tables on the two ends of a cable. Side 0 opens tunnels to side 1."""

    def __init__(self, *, window_bytes: int = WINDOW) -> None:
        self.links = (make_link(up=False), make_link(up=False))
        self.cable = Cable(*self.links)
        self.incoming: list[tuple[TunnelEnd, str, str]] = []
        self.woken, self.window_bytes = 0, window_bytes
        self.tables = tuple(
            TunnelTable(
                tunnels_max=TUNNELS_MAX, window_bytes=window_bytes, opened=self.opened,
                request_flush=lambda link: None,
            )
            for _ in range(2)
        )  # fmt: skip

        self.tables[1].endpoints = {
            "archive": {"store": Endpoint(), "vault": Endpoint(frozenset({"bank"}))},
        }  # fmt: skip
        self.tables[0].endpoints = {"shop": {"till": Endpoint()}}

    def opened(self, end: TunnelEnd, cluster: str, endpoint: str) -> None:
        self.incoming.append((end, cluster, endpoint))

    def wake(self) -> None:
        self.woken += 1

    def open(
        self, cluster: str = "archive", endpoint: str = "store", *, window_bytes: int = 0
    ) -> TunnelEnd:
        window_bytes = window_bytes or self.window_bytes
        end = self.tables[0].open(self.links[0], cluster, endpoint, window_bytes)
        end.wake = self.wake
        return end

    def pair(self) -> tuple[TunnelEnd, TunnelEnd]:
        end = self.open()
        self.settle()
        return end, self.incoming[-1][0]

    def deliver(self, side: int, lane: int) -> None:
        """What `side` has sent on one lane arrives; nothing of the other lane does."""
        self.cable.flush(side)
        while self.cable.wires[side, lane]:
            for kind, ident, body in self.cable.carry(side, lane):
                self.tables[1 - side].on_record(self.links[1 - side], kind, ident, body)

    def settle(self) -> None:
        for _ in range(4):
            self.cable.wait(1.0)
            for side in (0, 1):
                for lane in LANES:
                    self.deliver(side, lane)

    def sizes(self) -> tuple[int, int]:
        return len(self.tables[0]), len(self.tables[1])


def test_opens_with_a_window_each_way() -> None:
    bench = Bench()
    end = bench.open(window_bytes=300)
    assert (end.state, end.target, bench.sizes()) == (OPENING, "archive/store", (1, 0))
    bench.settle()
    other, cluster, endpoint = bench.incoming[0]
    assert (cluster, endpoint, other.target) == ("archive", "store", "archive/store")
    assert (end.state, other.state, bench.sizes()) == (OPEN, OPEN, (1, 1))
    assert (end.credit_bytes, other.credit_bytes) == (WINDOW, 300)
    assert (end.window_bytes, other.window_bytes) == (300, WINDOW)
    assert (list(bench.tables[0]), list(bench.tables[1])) == ([end], [other])
    assert (bench.tables[0].opened, bench.tables[1].accepted) == (1, 1)


def test_parts_go_both_ways_and_credit_comes_back() -> None:
    bench = Bench()
    end, other = bench.pair()
    for sender, receiver, side in ((end, other, 0), (other, end, 1)):
        bench.tables[side].send(sender, b"x" * 900)
        bench.settle()
        assert sender.credit_bytes == 100
        assert bench.tables[1 - side].read(receiver) == b"x" * 900
        bench.settle()
        assert sender.credit_bytes == WINDOW


def test_a_small_part_is_not_answered_with_credit() -> None:
    """Found: small parts one by one brought a frame of credit every 10 ms, a third of all frames."""
    bench = Bench()
    end, other = bench.pair()
    for _ in range(3):
        bench.tables[0].send(end, b"x" * 80)
        bench.settle()
        bench.tables[1].read(other)
    bench.settle()
    assert end.credit_bytes == WINDOW - 240, "not worth a word"
    bench.tables[0].report_blocked(end, 760)
    bench.settle()
    assert end.credit_bytes == WINDOW - 240, "nor for what would come by itself"


@pytest.mark.parametrize("first", [DATA, CONTROL])
def test_a_part_of_most_of_a_window_asks_for_the_rest(first: int) -> None:
    """Found: a large part behind a small one waited 10 ms for the small one's credit."""
    bench = Bench()
    end, other = bench.pair()
    bench.tables[0].send(end, b"x" * 80)
    assert not end.may_send(WINDOW)
    for _ in range(2):
        bench.tables[0].report_blocked(end, WINDOW)
    assert len(bench.links[0]._control) == 1, "asked once"
    for lane in (first, CONTROL if first == DATA else DATA):
        bench.deliver(0, lane)
    bench.tables[1].read(other)
    bench.settle()
    assert end.may_send(WINDOW)
    bench.tables[0].send(end, b"y" * WINDOW)
    bench.settle()
    assert bench.tables[1].read(other) == b"y" * WINDOW


def test_credit_that_was_read_before_it_was_asked_for() -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[0].send(end, b"x" * 80)
    bench.settle()
    bench.tables[1].read(other)
    bench.tables[0].report_blocked(end, WINDOW)
    bench.settle()
    assert end.may_send(WINDOW)


def test_a_part_larger_than_a_frame_arrives_whole() -> None:
    bench = Bench(window_bytes=1 << 16)
    end, other = bench.pair()
    part = bytes(n % 251 for n in range(60_000))
    bench.tables[0].send(end, part)
    for _ in range(50):
        bench.settle()
    assert bench.tables[1].read(other) == part


def test_a_generous_peer_fills_no_outbox() -> None:
    """It may grant any window; what waits here is bounded by us."""
    bench = Bench(window_bytes=1 << 30)
    end, _ = bench.pair()
    limit = end.link.limits.outbox_bytes
    assert end.may_send(limit)
    assert not end.may_send(limit + 1)


def test_both_ends_may_open_under_the_same_number() -> None:
    bench = Bench()
    one, accepted = bench.pair()
    other = bench.tables[1].open(bench.links[1], "shop", "till", WINDOW)
    bench.settle()
    assert (one.wire_id, other.wire_id, bench.sizes()) == (1 << 1 | 1, 1 << 1 | 1, (2, 2))
    bench.tables[0].send(one, b"for the acceptor")
    bench.settle()
    assert (accepted.readable, other.readable) == (True, False)


# Endings


def test_closed_when_both_ended_and_forgotten() -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[0].send(end, b"last")
    bench.tables[0].send_eof(end)
    bench.tables[0].send_eof(end)
    bench.settle()
    assert (other.received_eof, bench.sizes()) == (True, (1, 1))
    bench.tables[1].send_eof(other)
    bench.settle()
    assert (end.state, other.state, bench.sizes()) == (CLOSED, CLOSED, (0, 0))
    assert bench.tables[1].read(other) == b"last", "it was sent before the end"
    bench.settle()
    assert [table.closed for table in bench.tables] == [1, 1]
    assert [table.late for table in bench.tables] == [0, 0], "no credit for who has ended"


def test_a_reset_breaks_both_ends_and_what_has_not_left_stays() -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[0].send(end, b"never leaves")
    bench.tables[0].reset(end, "aborted", "had enough")
    assert not bench.links[0].outbox
    bench.settle()
    assert [one.state for one in (end, other)] == [BROKEN, BROKEN]
    assert end.reason == "aborted at this end: had enough"
    assert other.reason == "aborted at the other end: had enough"
    assert bench.sizes() == (0, 0)
    bench.tables[0].reset(end, "aborted", "again")
    bench.settle()
    assert [table.broken for table in bench.tables] == [1, 1]
    assert bench.tables[1].late == 0


@pytest.mark.parametrize("wrong", [None, 5, b"why", ["why"]])
def test_a_reset_that_cannot_be_told_drops_nothing(wrong: Any) -> None:
    """Found: what waited was gone before the reason was encoded, and the tunnel went on without it."""
    bench = Bench()
    end, other = bench.pair()
    bench.tables[0].send(end, b"stays")
    with pytest.raises((TypeError, AttributeError)):
        bench.tables[0].reset(end, "aborted", wrong)
    assert end.state == OPEN
    bench.settle()
    assert bench.tables[1].read(other) == b"stays"


def test_a_reset_stops_what_the_other_end_has_not_sent_yet() -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[1].send(other, b"never leaves")
    bench.tables[0].reset(end, "aborted", "")
    bench.cable.flush(0)
    for kind, ident, body in bench.cable.carry(0, CONTROL):
        bench.tables[1].on_record(bench.links[1], kind, ident, body)
    assert not bench.links[1].outbox


def test_words_that_come_after_the_end_are_counted() -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[1].send(other, b"on its way")
    bench.tables[1].send_eof(other)
    bench.cable.flush(1)
    bench.tables[0].reset(end, "aborted", "")
    bench.settle()
    assert bench.tables[0].late == 2


@pytest.mark.parametrize("text", ["\N{SNOWMAN}" * 9000, "lone \udcff"])
def test_any_reason_can_be_told(text: str) -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[0].reset(end, text, text)
    bench.settle()
    assert other.state == BROKEN
    assert 0 < len(other.reason.encode()) <= TEXT_BYTES_MAX
    assert end.reason.encode(), "and printed at this end"


def test_a_lost_link_breaks_its_tunnels_and_no_others() -> None:
    bench = Bench()
    end, _ = bench.pair()
    elsewhere = bench.tables[0].open(make_link(), "archive", "store", WINDOW)
    bench.tables[0].lost(bench.links[0], "link lost")
    assert (end.state, end.reason, elsewhere.state) == (BROKEN, "link lost", OPENING)
    assert (list(bench.tables[0]), bench.tables[0].broken) == ([elsewhere], 1)


def test_an_end_of_a_link_that_is_down_says_nothing() -> None:
    bench = Bench()
    end, _ = bench.pair()
    bench.links[0].up = False
    bench.tables[0].reset(end, "aborted", "")
    bench.links[0].up = True
    bench.cable.flush(0)
    assert not bench.cable.wires[0, CONTROL]


def test_who_stops_reading_says_so_once() -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[1].stop_reading(other)
    bench.tables[1].stop_reading(other)
    bench.cable.flush(1)
    assert sum(len(bench.cable.carry(1, CONTROL)) for _ in range(3)) == 1
    bench.tables[0].on_record(bench.links[0], Kind.TUNNEL_STOP, other.wire_id, b"")
    assert end.peer_stopped


def test_who_has_read_all_there_is_need_not_say_that_it_stops() -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[0].send_eof(end)
    bench.settle()
    bench.tables[1].stop_reading(other)
    bench.settle()
    assert not end.peer_stopped


# Refusals


@pytest.mark.parametrize(
    ("cluster", "endpoint", "refusal"),
    [
        ("archive", "vault", "not_allowed"), ("archive", "cellar", "no_such_endpoint"),
        ("depot", "store", "no_such_endpoint"),
    ],
)  # fmt: skip
def test_a_refused_tunnel_says_why(cluster: str, endpoint: str, refusal: str) -> None:
    bench = Bench()
    end = bench.open(cluster, endpoint)
    bench.settle()
    assert (end.state, end.refusal, bench.sizes()) == (BROKEN, refusal, (0, 0))
    assert (bench.tables[1].accepted, bench.tables[1].refused) == (0, 1)
    assert bench.incoming == []
    assert bench.woken == 1


def test_a_node_that_leaves_takes_no_tunnels() -> None:
    bench = Bench()
    bench.tables[1].draining = True
    end = bench.open()
    bench.settle()
    assert (end.state, end.refusal, bench.incoming) == (BROKEN, "busy", [])
    assert [*end.limit_reached] == ["", 0]


def test_those_who_may_open_it_do() -> None:
    bench = Bench()
    bench.links[1].cluster = "bank"
    end = bench.open("archive", "vault")
    bench.settle()
    assert end.state == OPEN


def test_full_here_is_an_error_and_full_there_busy() -> None:
    bench = Bench()
    for _ in range(TUNNELS_MAX):
        bench.tables[1].open(make_link(), "x", "y", WINDOW)
    end = bench.open()
    bench.settle()
    assert (end.state, end.refusal, bench.incoming) == (BROKEN, "busy", [])
    assert [*end.limit_reached] == ["tunnels_max", TUNNELS_MAX]
    with pytest.raises(LimitReached, match="tunnels_max"):
        bench.tables[1].open(make_link(), "x", "y", WINDOW)


def test_a_tunnel_that_broke_was_not_refused() -> None:
    bench = Bench()
    end, other = bench.pair()
    bench.tables[1].reset(other, "aborted", "failed")
    bench.settle()
    assert (end.refusal, end.reason) == ("", "aborted at the other end: failed")


# One lane may be faster than the other


def test_a_reset_that_overtakes_the_opening_leaves_nobody_waiting() -> None:
    """Found: the acceptor opened an end that nobody would ever write to, read or close."""
    bench = Bench()
    end = bench.open()
    bench.cable.flush(0)
    bench.tables[0].reset(end, "aborted", "gave up")
    bench.deliver(0, CONTROL)
    bench.deliver(0, DATA)
    assert bench.sizes() == (0, 1)
    bench.settle()
    assert (bench.sizes(), bench.incoming[0][0].state) == ((0, 0), BROKEN)


def test_data_and_end_may_overtake_the_acceptance() -> None:
    bench = Bench()
    end = bench.open()
    bench.deliver(0, DATA)
    other = bench.incoming[0][0]
    bench.tables[1].send(other, b"early")
    bench.tables[1].send_eof(other)
    bench.deliver(1, DATA)
    assert (end.state, end.readable, end.received_eof) == (OPENING, True, True)
    bench.settle()
    assert end.state == OPEN
    bench.tables[0].send_eof(end)
    bench.settle()
    assert bench.sizes() == (0, 0)


# Peers that break the protocol


@pytest.mark.parametrize(
    ("kind", "ident", "body"),
    [
        (Kind.TUNNEL_OPEN, 2, encode_values("archive", "store", 100)),
        (Kind.TUNNEL_OPEN, 3, encode_values("a", "b", 0)),
        (Kind.TUNNEL_OPEN, 3, encode_values("a", "b")),
        (Kind.TUNNEL_OPEN, 3, encode_values("a", b"b", 1)),
        (Kind.TUNNEL_ACCEPT, 3, encode_values(100)),
        (Kind.TUNNEL_CREDIT, 3, encode_values(1)),
        (Kind.TUNNEL_CREDIT, 3, encode_values("1")),
        (Kind.TUNNEL_DATA, 3, bytes(WINDOW + 1)),
        (Kind.TUNNEL_RESET, 3, b""),
    ],
)
def test_impossible_records_are_refused(kind: Kind, ident: int, body: bytes) -> None:
    table = Bench().tables[1]
    link = make_link()
    if kind != Kind.TUNNEL_OPEN:
        table.on_record(link, Kind.TUNNEL_OPEN, 3, encode_values("archive", "store", 100))
    with pytest.raises(RemoteProtocolError):
        table.on_record(link, kind, ident, body)


def test_opening_twice_is_refused() -> None:
    table, link = Bench().tables[1], make_link()
    table.on_record(link, Kind.TUNNEL_OPEN, 3, encode_values("archive", "store", 100))
    with pytest.raises(RemoteProtocolError, match="id 3"):
        table.on_record(link, Kind.TUNNEL_OPEN, 3, encode_values("archive", "store", 100))


def test_records_of_tunnels_nobody_knows_are_counted() -> None:
    bench = Bench()
    link: Link = bench.links[1]
    for kind in (Kind.TUNNEL_DATA, Kind.TUNNEL_EOF, Kind.TUNNEL_STOP, Kind.TUNNEL_RESET):
        bench.tables[1].on_record(link, kind, 41, b"\xc1")
    assert bench.tables[1].late == 4
    bench.cable.flush(1)
    assert not bench.cable.wires[1, CONTROL]
