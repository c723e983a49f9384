"""What a dialler does when nobody answers."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from mesh.protocol.carrying import carry_out
from mesh.protocol.dialling import (
    BACKOFF_S,
    BACKOFF_S_MAX,
    TIMEOUT_FACTOR_MAX,
)
from mesh.protocol.frame import Kind
from mesh.protocol.hello import NOT_ME, UNTRUSTED
from mesh.protocol.instructions import Dial, Instruction
from mesh.protocol.lane import Conn
from mesh.protocol.seeds import MISSES_MAX
from security.keys import derive

from .peering_bench import (
    HANDSHAKE_S,
    LARGER,
    SECRET,
    SMALLER,
    WAY_IN,
    Bench,
    announce,
    kinds,
    place,
)

SEED = "tcp://10.0.0.9:1"


def test_each_failure_in_a_row_doubles_the_wait_up_to_a_limit() -> None:
    bench = Bench()
    bench.hear(announce(SMALLER, endpoints=WAY_IN))
    for failures in range(1, 12):
        bench.lose(bench.dials())
        usual_s = min(BACKOFF_S_MAX, BACKOFF_S * 2**failures)
        assert 0.75 * usual_s <= bench.run_to_dial() <= 1.25 * usual_s
    assert usual_s == BACKOFF_S_MAX


def test_a_link_that_was_up_begins_the_wait_anew() -> None:
    bench = Bench()
    raw = announce(SMALLER, endpoints=WAY_IN)
    peer = bench.hear(raw)
    for _ in range(5):
        bench.lose(bench.dials())
        bench.run_to_dial()
    bench.welcomed(bench.take(), raw)
    assert peer.failures == 0


def test_who_does_not_answer_in_time_is_hung_up_on() -> None:
    bench = Bench()
    bench.hear(announce(SMALLER, endpoints=WAY_IN))
    conns = [dial.conn for dial in bench.dials()]
    bench.run_to(HANDSHAKE_S - 0.01)
    assert bench.take() == []
    bench.run_to(HANDSHAKE_S)
    assert set(kinds(bench.take())) == {("hang up", conn) for conn in conns}
    assert bench.run_to_dial() > 0


class Late:
    """A core and a transport of a loop that is late as it dials."""

    def __init__(self, bench: Bench, late_s: float) -> None:
        self.peering, self._bench, self._late_s = bench.peering, bench, late_s
        self.out: list[Instruction] = list(bench.take())

    def flush(self, now_s: float) -> None: ...

    def send(self, conn: Conn, frame: bytes) -> bool:
        return True

    def dial(self, dial: Dial) -> None:
        self._bench.now_s += self._late_s


def test_who_is_dialled_late_has_all_of_its_time_to_answer() -> None:
    """Found: a process that was stopped as it dialled gave up at once; the other end had a link, and asked by it."""
    bench = Bench()
    bench.hear(announce(LARGER))
    late: Any = Late(bench, late_s := 2 * HANDSHAKE_S)
    conn = late.out[0].conn
    assert carry_out(late, late, lambda: bench.now_s)
    bench.run_to(late_s + HANDSHAKE_S - 0.01)
    assert bench.take() == []
    bench.run_to(late_s + HANDSHAKE_S)
    assert set(kinds(bench.take())) == {("hang up", conn)}
    bench.dialler.dialled(conn, bench.now_s)
    assert bench.take() == [], "wanted no more by then"


def hears_of_a_peer(bench: Bench) -> None:
    bench.hear(announce(SMALLER, endpoints=WAY_IN))


def is_given_a_seed(bench: Bench) -> None:
    bench.dialler.seeds.found(SEED, bench.now_s)


def loses_a_lane(bench: Bench) -> None:
    conn = bench.link_to().data.conn
    assert conn is not None
    bench.peering.lost(conn, bench.now_s)


@pytest.mark.parametrize("begins", [hears_of_a_peer, is_given_a_seed, loses_a_lane])
def test_a_dial_may_take_longer_after_failures(begins: Callable[[Bench], None]) -> None:
    """Or a machine too busy for a handshake in a second would begin one after the other in vain.

    Found: seeds and what is resumed were never given longer, so who was 300 ms away could not join.
    """
    bench = Bench()
    begins(bench)
    patience_s = []
    for _ in range(TIMEOUT_FACTOR_MAX + 1):
        dials, begun_s = bench.dials(), bench.now_s
        while ("hang up", dials[0].conn) not in kinds(bench.out):
            due_s = bench.timers.due_s()
            assert due_s < inf
            bench.run_to(due_s)
        bench.take()
        patience_s.append(bench.now_s - begun_s)
        bench.run_to_dial()
    assert patience_s == pytest.approx([1, 2, 3, 4, 4])


def test_one_lane_lost_ends_both_and_counts_once() -> None:
    bench = Bench()
    peer = bench.hear(announce(SMALLER, endpoints=WAY_IN))
    control, data = bench.dials()
    bench.lose([control])
    assert ("hang up", data.conn) in kinds(bench.take())
    bench.lose([data])
    bench.run_to(HANDSHAKE_S)
    assert peer.failures == 1


def test_a_retry_is_planned_once() -> None:
    """Plans for one peer replace each other, or dials would multiply with every event."""
    bench = Bench()
    peer = bench.hear(announce(SMALLER, endpoints=WAY_IN))
    bench.lose(bench.dials())
    for delay_s in (1.0, 0.5, 3.0):
        bench.dialler.connect_later(peer, 0.0, delay_s)
    assert bench.run_to_dial() == 3.0
    assert len(bench.dials()) == 2


def test_whatever_comes_again_while_a_dial_is_under_way_is_not_dialled_again() -> None:
    bench = Bench()
    raw = announce(SMALLER)
    peer = bench.hear(raw)
    assert len(bench.dials()) == 2
    for version in (1, 2):
        bench.hear(announce(SMALLER, version))
        bench.dialler.connect(peer, bench.now_s)
    assert bench.dials() == []


def test_nobody_is_dialled_on_leaving_or_once_buried() -> None:
    bench = Bench()
    gone, left = bench.hear(announce(SMALLER)), bench.hear(announce(LARGER))
    bench.lose(bench.dials())
    bench.roster.forget(gone.node, now_s=0.0)
    bench.dialler.connect(gone, 0.0)
    bench.peering.closing = True
    bench.dialler.connect(left, 0.0)
    bench.run_to(60.0)
    assert bench.dials() == []


def test_denied_tries_the_other_generation_and_says_so_once() -> None:
    bench = Bench(secrets=[SECRET, bytes(32)])
    peer = bench.hear(announce(SMALLER, endpoints=WAY_IN))
    clients = []
    for _ in range(4):
        bench.run_to_dial()
        dials = bench.dials()
        clients.append(dials[0].client)
        bench.lose(dials, denied=True)
    assert clients == [derive(SECRET, "x"), derive(bytes(32), "x")] * 2
    assert peer.denials == 4
    assert [what for what, *_ in bench.told] == ["log"]
    assert bench.roster.refusals.counts["denied"] > 1


# Seeds


def test_a_seed_that_is_not_up_yet_is_asked_again_before_a_finder_repeats_itself() -> None:
    """Found: who began together with its seed met nobody for five seconds, and a request waits two."""
    bench = Bench()
    bench.dialler.seeds.found(SEED, bench.now_s)
    for misses in range(MISSES_MAX):
        bench.lose(bench.dials())
        usual_s = min(BACKOFF_S_MAX, BACKOFF_S * 2**misses)
        assert 0.75 * usual_s <= bench.run_to_dial() <= 1.25 * usual_s
    bench.lose(bench.dials())
    bench.run_to(bench.now_s + 60.0)
    assert bench.dials() == [], "finders name it again"
    bench.dialler.seeds.found(SEED, bench.now_s)
    bench.introduced(bench.dials()[0], announce(SMALLER, endpoints=WAY_IN))
    assert set(bench.roster.peers) == {SMALLER}


def test_a_seed_that_refuses_is_asked_again() -> None:
    """Found: never again, so who joined before its clock was set stayed alone until its restart."""
    bench = Bench()
    bench.dialler.seeds.found(SEED, bench.now_s)
    waits = []
    for _ in range(MISSES_MAX):
        bench.answer(bench.dials()[0].conn, Kind.REFUSE, UNTRUSTED.encode())
        waits.append(bench.run_to_dial())
    assert 0.5 * BACKOFF_S <= waits[0] <= 2 * BACKOFF_S
    assert 0.5 * BACKOFF_S_MAX <= waits[-1] <= 2 * BACKOFF_S_MAX
    assert [what for what, *_ in bench.told] == ["log"], "once"
    assert bench.roster.refusals.counts == {"refused by a seed": MISSES_MAX}
    bench.answer(bench.dials()[0].conn, Kind.REFUSE, UNTRUSTED.encode())
    bench.run_to(bench.now_s + 60.0)
    assert bench.dials() == [], "finders name it again"
    bench.dialler.seeds.found(SEED, bench.now_s)
    bench.introduced(bench.dials()[0], announce(SMALLER, endpoints=WAY_IN))
    assert set(bench.roster.peers) == {SMALLER}


def test_a_seed_whose_node_was_gone_before_there_was_a_link_is_asked_soon() -> None:
    """Found: not until a finder named it again, and what was killed every few seconds was missed each
    time that it was up."""
    bench = Bench()
    bench.dialler.seeds.found(SEED, bench.now_s)
    bench.introduced(bench.dials()[0], announce(SMALLER, endpoints=WAY_IN))
    bench.lose(bench.dials())
    assert soon(bench) == [SEED]


def test_a_seed_is_asked_soon_when_another_node_answers_where_its_node_was() -> None:
    """Found: the same, when the address had been taken over meanwhile."""
    bench = Bench()
    bench.dialler.seeds.found(SEED, bench.now_s)
    bench.introduced(bench.dials()[0], announce(SMALLER, endpoints=[place("127.0.0.1:2")]))
    for dial in bench.dials():
        bench.answer(dial.conn, Kind.REFUSE, NOT_ME.encode(), lane=dial.lane)
    assert SMALLER not in bench.roster.peers
    assert soon(bench) == [SEED]


def test_a_seed_whose_node_has_a_link_is_not_silent_however_that_came_about() -> None:
    """Found: it was told as a problem for ever, where the first dial of its node was in vain and the second was not."""
    bench = Bench()
    raw = announce(SMALLER, endpoints=WAY_IN)
    bench.dialler.seeds.found(SEED, bench.now_s)
    assert bench.dialler.seeds.silent_endpoints() == []
    bench.introduced(bench.dials()[0], raw)
    bench.lose(bench.dials())
    assert bench.dialler.seeds.silent_endpoints() == [SEED]
    bench.dialler.connect(bench.roster.peers[SMALLER], bench.now_s)
    bench.welcomed(bench.take(), raw)
    assert SMALLER in bench.peering.links
    assert bench.dialler.seeds.silent_endpoints() == []


def soon(bench: Bench) -> list[str]:
    """Which addresses are dialled within what a first failure costs at most."""
    bench.take()
    bench.run_to(bench.now_s + 1.25 * BACKOFF_S)
    return [dial.endpoint for dial in bench.dials()]
