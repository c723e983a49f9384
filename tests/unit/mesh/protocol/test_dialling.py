from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.dialling import (
    BACKOFF_S,
    BACKOFF_S_MAX,
    RETRY_SOON_MAX,
)
from mesh.protocol.frame import CONTROL, DATA, Kind
from mesh.protocol.hello import BAD, CLOCK, CROSSING, FULL, GONE, NOT_ME, UNTRUSTED, decode_hello
from mesh.protocol.instructions import Dial
from mesh.protocol.peering import Ending
from mesh.protocol.roster import Peer
from mesh.protocol.seeds import MISSES_MAX, OWN_ANSWER_PAUSE_S, SEEDS_MAX, STALE_S
from security.keys import DOOR, derive
from tests.machines import LANES

from .peering_bench import (
    ELSEWHERE,
    HANDSHAKE_S,
    LARGER,
    SECRET,
    SMALLER,
    WAY_IN,
    Bench,
    announce,
    kinds,
    only_record,
    place,
)

SEED = "tcp://10.0.0.9:1"
STRANGER = announce(
    SMALLER, clusters=("y",), endpoints=[place("127.0.0.1:1", DOOR), place("127.0.0.1:2", "y")]
)
INTRODUCTION = [("dial", CONTROL, "127.0.0.1:1"), "INTRODUCE"]
LINK = [("dial", lane, "127.0.0.1:2") if dial else "HELLO" for lane in LANES for dial in (1, 0)]


# From an announcement to a link


def test_the_larger_one_of_a_cluster_dials_at_once_for_its_key_is_known_there() -> None:
    bench = Bench()
    raw = announce(SMALLER)
    bench.hear(raw)
    out = bench.take()
    assert kinds(out) == LINK
    bench.welcomed(out, raw)
    assert bench.told == [("up", SMALLER)]


def test_it_introduces_itself_where_the_key_is_not_known_after_all() -> None:
    """While keys rotate: the peer has not heard of our generation yet."""
    bench = Bench()
    bench.hear(announce(SMALLER))
    bench.lose(bench.dials(), denied=True)
    bench.take()
    bench.run_to_dial()
    assert kinds(bench.take()) == INTRODUCTION


def test_the_smaller_one_of_a_cluster_introduces_itself_to_be_dialled() -> None:
    bench = Bench()
    bench.hear(announce(LARGER))
    assert kinds(bench.take()) == INTRODUCTION


def test_the_larger_one_introduces_itself_at_the_door_then_dials_both_lanes() -> None:
    bench = Bench()
    bench.hear(STRANGER)
    door, _ = out = bench.take()
    assert kinds(out) == INTRODUCTION
    assert isinstance(door, Dial)
    assert (door.server, door.client.cluster) == (derive(SECRET, DOOR), DOOR)
    bench.introduced(door, STRANGER)
    out = bench.take()
    assert kinds(out) == [("hang up", door.conn), *LINK]
    assert {dial.client.cluster for dial in out if isinstance(dial, Dial)} == {"x"}
    bench.welcomed(out, STRANGER)
    assert bench.told == [("up", SMALLER)]
    assert bench.peering.links[SMALLER].dialled


def test_the_smaller_one_waits_for_a_dial_and_dials_if_none_comes() -> None:
    bench = Bench()
    raw = announce(LARGER)
    bench.hear(raw)
    bench.introduced(bench.dials()[0], raw)
    assert bench.dials() == []
    assert bench.run_to_dial() == HANDSHAKE_S
    assert kinds(bench.take()) == LINK


def test_one_welcome_is_no_link() -> None:
    bench = Bench()
    raw = announce(SMALLER, endpoints=WAY_IN)
    bench.hear(raw)
    out = bench.take()
    bench.welcomed(out[:2], raw)
    assert (bench.told, bench.peering.links) == ([], {})
    bench.welcomed(out[2:], raw)
    assert bench.told == [("up", SMALLER)]


def test_who_answers_at_a_door_must_be_who_said_to_be_there() -> None:
    bench = Bench()
    peer = bench.hear(STRANGER)
    bench.introduced(bench.dials()[0], announce(LARGER))
    assert not peer.knows_us
    assert bench.roster.peers[LARGER].knows_us
    assert peer.failures == 1


def test_addresses_are_tried_in_turn() -> None:
    bench = Bench()
    bench.hear(announce(SMALLER, endpoints=[place("10.0.0.2:2"), place("10.0.0.3:2")]))
    tried = []
    for _ in range(3):
        bench.run_to_dial()
        dials = bench.dials()
        tried.append(dials[0].endpoint)
        bench.lose(dials)
    assert tried == ["tcp://10.0.0.2:2", "tcp://10.0.0.3:2", "tcp://10.0.0.2:2"]


# When a link comes up


def failed_twice(bench: Bench, count: int) -> list[Peer]:
    """So many peers that nobody is dialling at the moment."""
    peers = [bench.hear(announce(b"%016d" % n, endpoints=WAY_IN)) for n in range(count)]
    for peer in peers * 2:
        bench.dialler.try_again(peer, bench.now_s)
    bench.take()
    return peers


def test_a_link_that_comes_up_hurries_some_of_those_that_could_not_be_reached() -> None:
    bench = Bench(peers_max=100)
    peers = failed_twice(bench, RETRY_SOON_MAX + 5)
    bench.link_to(SMALLER)
    bench.run_to(bench.now_s + BACKOFF_S)
    assert len(bench.dials()) == len(LANES) * RETRY_SOON_MAX
    assert sum(peer.attempt is not None for peer in peers) == RETRY_SOON_MAX


def test_a_path_that_is_back_hurries_them_too() -> None:
    """Found: two that a partition had kept from ever meeting met 4 s after it, linked to all others."""
    bench = Bench()
    raw, link = announce(SMALLER, endpoints=WAY_IN), bench.link_to()
    (peer,) = failed_twice(bench, 1)
    assert link.data.conn is not None
    bench.peering.lost(link.data.conn, bench.now_s)
    bench.welcomed(bench.take(), raw)
    assert bench.told[-1] == ("path back", SMALLER)
    bench.run_to(bench.now_s + BACKOFF_S)
    assert peer.attempt is not None


def test_who_is_being_dialled_is_hurried_once_that_has_failed() -> None:
    bench = Bench()
    (peer,) = failed_twice(bench, 1)
    bench.dialler.connect_later(peer, bench.now_s, 0.0)
    bench.run_to(bench.now_s)
    under_way = bench.dials()
    bench.link_to(SMALLER)
    bench.lose(under_way)
    bench.take()
    assert bench.run_to_dial() == pytest.approx(BACKOFF_S)


def test_who_is_linked_or_gone_is_not_hurried() -> None:
    bench = Bench()
    linked, left = failed_twice(bench, 2)
    bench.dialler.connect_later(linked, bench.now_s, 0.0)
    bench.run_to(bench.now_s)
    bench.welcomed(bench.take(), linked.raw, linked.node)
    bench.roster.forget(left.node, now_s=bench.now_s)
    bench.dialler.try_again(left, bench.now_s)  # A dial that was under way has failed.
    assert bench.roster.unreachable.draw(2, Random(7)) == []


def count_reads(monkeypatch: pytest.MonkeyPatch, count: int, *, lost: bool) -> int:
    """How often anything of any of `count` peers is looked at when another link comes up."""
    reads = 0

    class Watched(Peer):
        def __getattribute__(self, name: str) -> Any:
            nonlocal reads
            reads += 1
            return super().__getattribute__(name)

    bench = Bench(peers_max=count)
    with monkeypatch.context() as patched:
        patched.setattr("mesh.protocol.roster.Peer", Watched)
        if lost:
            failed_twice(bench, count)
        else:
            for n in range(count):
                bench.hear(announce(b"%016d" % n, endpoints=WAY_IN))
    reads = 0
    bench.dialler.retry_others_soon(bench.now_s)
    return reads


def test_what_hurrying_costs_is_up_to_those_hurried_not_to_how_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When 1,000 nodes start, each of 1,000 links that come up would walk 1,000 peers."""
    assert count_reads(monkeypatch, 200, lost=False) == 0
    few = count_reads(monkeypatch, RETRY_SOON_MAX, lost=True)
    assert 0 < few == count_reads(monkeypatch, 200, lost=True)


# Refused


@pytest.mark.parametrize("reason", [UNTRUSTED, CLOCK, GONE, FULL, BAD, "something new"])
def test_refused_tries_again_after_the_usual_wait(reason: str) -> None:
    bench = Bench()
    peer = bench.hear(announce(SMALLER, endpoints=WAY_IN))
    peer.knows_us = True
    control, data = bench.dials()
    bench.answer(control.conn, Kind.REFUSE, reason.encode())
    assert set(kinds(bench.take())) == {("hang up", dial.conn) for dial in (control, data)}
    assert peer.knows_us is (reason not in (UNTRUSTED, CLOCK, GONE))
    assert 0.75 * 2 * BACKOFF_S <= bench.run_to_dial() <= 1.25 * 2 * BACKOFF_S


def test_refused_as_crossing_leaves_the_other_ones_dial_its_time() -> None:
    bench = Bench()
    bench.hear(announce(SMALLER, endpoints=WAY_IN))
    bench.answer(bench.dials()[0].conn, Kind.REFUSE, CROSSING.encode())
    bench.take()
    assert bench.run_to_dial() == 2 * HANDSHAKE_S


def test_refused_as_not_me_is_the_end_of_that_node() -> None:
    bench = Bench()
    bench.hear(announce(SMALLER, endpoints=WAY_IN))
    bench.answer(bench.dials()[0].conn, Kind.REFUSE, NOT_ME.encode())
    bench.take()
    bench.run_to(30.0)
    assert not bench.roster.peers
    assert bench.dials() == []


TWO_WAYS = [place("172.17.0.1:2"), place("10.0.0.2:2")]


def test_who_is_somebody_else_at_one_address_is_sought_at_the_others() -> None:
    """Found: an address of a bridge, which every host has, made of a live member one that left."""
    bench = Bench()
    bench.hear(announce(SMALLER, endpoints=TWO_WAYS, host=ELSEWHERE))
    for address in ("172.17.0.1:2", "10.0.0.2:2"):
        bench.run_to_dial()
        (first, _) = bench.dials()
        assert first.endpoint == f"tcp://{address}"
        assert SMALLER in bench.roster.peers
        bench.answer(first.conn, Kind.REFUSE, NOT_ME.encode())
    assert not bench.roster.peers


# Resuming


def test_a_link_is_resumed_where_it_was_made_and_then_at_other_addresses() -> None:
    """Found: always at the first of its addresses, though that had never led to the peer."""
    bench = Bench()
    raw = announce(SMALLER, endpoints=TWO_WAYS, host=ELSEWHERE)
    bench.hear(raw)
    bench.lose(bench.dials())
    bench.run_to_dial()
    bench.welcomed(bench.take(), raw)
    link = bench.peering.links[SMALLER]
    assert link.data.conn is not None
    bench.take()
    bench.peering.lost(link.data.conn, bench.now_s)
    for address in ("10.0.0.2:2", "172.17.0.1:2", "10.0.0.2:2"):
        bench.run_to_dial()
        out = bench.take()
        (dial,) = (item for item in out if isinstance(item, Dial))
        assert (dial.lane, dial.endpoint) == (DATA, f"tcp://{address}")
        if address == "172.17.0.1:2":
            bench.answer(dial.conn, Kind.REFUSE, NOT_ME.encode())
        else:
            bench.lose([dial])
    assert bench.peering.links == {SMALLER: link}


def test_a_lost_lane_is_dialled_again_alone_and_once_and_goes_on_where_it_stopped() -> None:
    bench = Bench()
    link = bench.link_to()
    for lane in (link.data, link.control):
        lane.expected = 7
    assert link.data.conn is not None
    bench.peering.lost(link.data.conn, bench.now_s)
    bench.dialler.redial(link, bench.now_s)
    out = bench.take()
    assert kinds(out) == [("dial", DATA, "127.0.0.1:2"), "HELLO", ("probe", "127.0.0.1:2")]
    assert isinstance(out[1], tuple)
    hello = decode_hello(only_record(out[1][1])[1])
    assert (hello.resume, hello.expects, hello.link_id) == (True, 7, link.link_id)
    assert bench.told == [("path lost", SMALLER)]


def test_a_resumption_without_answer_is_tried_again_soon_and_probed_each_time() -> None:
    bench = Bench()
    link = bench.link_to()
    assert link.data.conn is not None
    bench.peering.lost(link.data.conn, bench.now_s)
    for _ in range(3):
        bench.lose(bench.dials())
        assert kinds(bench.take()) == [("probe", "127.0.0.1:2")]
        assert bench.run_to_dial() == pytest.approx(BACKOFF_S)


@pytest.mark.parametrize("reason", [GONE, NOT_ME])
def test_a_refused_resumption_gives_the_link_up(reason: str) -> None:
    bench = Bench()
    link = bench.link_to()
    assert link.data.conn is not None
    bench.peering.lost(link.data.conn, bench.now_s)
    bench.answer(bench.dials()[0].conn, Kind.REFUSE, reason.encode())
    assert bench.told[1:] == [("down", SMALLER, f"refused by the peer: {reason}", Ending.LOST)]
    assert not bench.peering.links


def test_a_link_that_is_given_up_while_it_is_dialled_again_is_not_resumed_by_the_answer() -> None:
    bench = Bench()
    link = bench.link_to()
    assert link.data.conn is not None
    bench.peering.lost(link.data.conn, bench.now_s)
    dial, hello, _ = bench.take()
    assert isinstance(dial, Dial)
    bench.peering.fail(link, "for the test", now_s=bench.now_s)
    assert ("hang up", dial.conn) in kinds(bench.take())
    with pytest.raises(RemoteProtocolError):
        bench.welcomed([hello], announce(SMALLER))
    assert not link.up


# Addresses without a name


def test_an_address_found_again_while_it_is_asked_is_not_asked_twice() -> None:
    bench = Bench()
    for _ in range(3):
        bench.dialler.seeds.found(SEED, bench.now_s)
    assert kinds(bench.take()) == [("dial", CONTROL, "10.0.0.9:1"), "INTRODUCE"]


def test_everybody_a_seed_tells_of_is_met() -> None:
    bench = Bench()
    bench.dialler.seeds.found(SEED, bench.now_s)
    seed, other = announce(LARGER, endpoints=WAY_IN), announce(SMALLER, endpoints=WAY_IN)
    bench.introduced(bench.dials()[0], seed, other, b"not an announcement")
    assert set(bench.roster.peers) == {LARGER, SMALLER}
    assert bench.roster.peers[LARGER].knows_us
    assert not bench.roster.peers[SMALLER].knows_us
    assert [what for what, *_ in bench.told] == ["log"]
    assert bench.roster.refusals.counts == {"announcement malformed": 1}


def test_a_seed_is_asked_again_unless_it_is_linked_or_ourselves() -> None:
    bench = Bench()
    raw = announce(SMALLER, endpoints=WAY_IN)
    bench.dialler.seeds.found(SEED, bench.now_s)
    bench.introduced(bench.dials()[0], raw)
    bench.welcomed(bench.take(), raw)
    bench.dialler.seeds.found(SEED, bench.now_s)
    assert bench.dials() == [], "linked"
    bench.peering.fail(bench.peering.links[SMALLER], "for the test", now_s=bench.now_s)
    bench.take()
    bench.dialler.seeds.found(SEED, bench.now_s)
    (again,) = bench.dials()
    bench.introduced(again, bench.peering.announcement)
    bench.dialler.seeds.found(SEED, bench.now_s)
    assert bench.dials() == [], "ourselves"
    bench.run_to(bench.now_s + OWN_ANSWER_PAUSE_S)
    bench.take()
    bench.dialler.seeds.found(SEED, bench.now_s)
    (dial,) = bench.dials()
    assert dial.endpoint == SEED, "behind a balancer there may be others"


def test_a_silent_seed_is_tried_under_every_key_then_waits_to_be_found_again() -> None:
    bench = Bench(secrets=[SECRET, bytes(32)])
    bench.dialler.seeds.found(SEED, bench.now_s)
    new, old = derive(SECRET, DOOR), derive(bytes(32), DOOR)
    tried = []
    for _ in range(4):
        dials = bench.dials()
        tried += [(dial.server, dial.client) for dial in dials]
        bench.lose(dials)
    assert tried == [(new, new), (old, new), (new, old), (old, old)]
    assert bench.dials() == []
    bench.dialler.seeds.found(SEED, bench.now_s)
    assert len(bench.dials()) == 1


def test_a_seed_whose_node_is_gone_is_asked_soon_and_less_and_less_often() -> None:
    bench = Bench()
    raw = announce(SMALLER, endpoints=WAY_IN)
    bench.dialler.seeds.found(SEED, bench.now_s)
    bench.introduced(bench.dials()[0], raw)
    bench.welcomed(bench.take(), raw)
    bench.roster.forget(SMALLER, now_s=bench.now_s)
    bench.peering.fail(
        bench.peering.links[SMALLER], "for the test", now_s=bench.now_s, process_gone=True
    )
    bench.take()
    waits = []
    for _ in range(MISSES_MAX):
        waits.append(bench.run_to_dial())
        bench.lose(bench.dials())
    assert 0.5 * BACKOFF_S <= waits[0] <= 2 * BACKOFF_S
    assert all(later > sooner for sooner, later in pairwise(waits[:5]))
    assert max(waits) <= 2 * BACKOFF_S_MAX
    bench.run_to(bench.now_s + 60.0)
    assert bench.dials() == [], "finders name it again"


def test_seeds_over_the_limit_are_counted() -> None:
    bench = Bench()
    for number in range(SEEDS_MAX + 2):
        bench.dialler.seeds.found(f"tcp://10.0.0.9:{number}", bench.now_s)
    assert len(bench.dials()) == SEEDS_MAX
    assert bench.roster.refusals.counts == {f"seeds over {SEEDS_MAX}": 2}


def test_seeds_that_no_finder_names_any_more_make_room() -> None:
    """Found: a name with other addresses every week was of no use after a thousand of them."""
    bench = Bench()

    def find(number: int) -> None:
        bench.dialler.seeds.found(f"tcp://10.0.0.9:{number}", bench.now_s)
        while dials := bench.dials():
            bench.lose(dials)

    for number in range(1, SEEDS_MAX + 1):
        find(number)
    for now_s in (STALE_S - 1.0, STALE_S):
        bench.run_to(now_s)
        find(1)
        for number in (60_000, 60_001):
            find(number)
    assert bench.roster.refusals.counts == {f"seeds over {SEEDS_MAX}": 2}
    known = {int(uri.rpartition(":")[2]) for uri in bench.dialler.seeds._seeds}
    assert known == {1, *range(4, SEEDS_MAX + 1), 60_000, 60_001}


# Answers that are none


def test_answers_to_what_was_not_asked_are_violations() -> None:
    bench = Bench()
    raw = announce(SMALLER, endpoints=WAY_IN)
    bench.hear(raw)
    out = bench.take()
    control, _, data, hello = out
    assert isinstance(control, Dial)
    assert isinstance(data, Dial)
    assert isinstance(hello, tuple)
    with pytest.raises(RemoteProtocolError, match="before WELCOME"):
        bench.answer(control.conn, Kind.GOSSIP, b"")
    with pytest.raises(RemoteProtocolError, match="INTRODUCED without INTRODUCE"):
        bench.introduced(control, raw)
    with pytest.raises(RemoteProtocolError, match="WELCOME for another link"):
        bench.welcomed(out[2:], raw, LARGER)
    with pytest.raises(RemoteProtocolError, match="WELCOME for another link"):
        bench.welcomed([(control.conn, hello[1])], raw)
    bench.dialler.hang_up(control.conn)
    with pytest.raises(RemoteProtocolError, match="WELCOME without HELLO"):
        bench.welcomed(out[:2], raw)
    assert not bench.peering.links


def test_a_welcome_to_an_attempt_that_ended_is_a_violation() -> None:
    bench = Bench()
    raw = announce(SMALLER, endpoints=WAY_IN)
    peer = bench.hear(raw)
    out = bench.take()
    peer.attempt = None
    with pytest.raises(RemoteProtocolError, match="WELCOME for a link that was given up"):
        bench.welcomed(out, raw)
