"""Whether a peer whose path is lost is there at all: what a plain connection to its address says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.protocol.instructions import ProbeResult
from mesh.protocol.peering import IN_FLIGHT_S, Ending
from tests.machines import LANES, OTHER

from .peering_bench import (
    ELSEWHERE,
    HELLO,
    LARGER,
    WAY_IN,
    Bench,
    accept,
    announce,
    hear_a_frame,
    kinds,
    place,
    say,
)


def test_a_refused_probe_ends_a_link_without_a_path_at_once() -> None:
    bench = Bench()
    accept(bench)
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    assert bench.told == [], "it has its path"
    for conn in (b"0", b"1"):
        bench.peering.lost(conn, bench.now_s)
    assert ("probe", "127.0.0.1:2") in kinds(bench.take())
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.LISTENS, bench.now_s)
    bench.peering.probed(OTHER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    assert bench.told == [("path lost", LARGER)] * 2
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    assert bench.told[2:] == [("down", LARGER, "nothing listens there any more", Ending.LOST)]


def test_who_was_refused_while_it_was_there_is_not_gone_when_it_is_refused_again() -> None:
    """Found: of who is behind NAT each reset cost the link, and all that was on its way."""
    bench = Bench()
    accept(bench)
    assert bench.roster.peers[LARGER].pending_probes == {"tcp://127.0.0.1:2"}, (
        "whether it answers there"
    )
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    bench.run_to(bench.now_s + IN_FLIGHT_S)
    hear_a_frame(bench)
    for lane in LANES:
        bench.peering.lost(b"%d" % lane, bench.now_s)
        bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    assert bench.told == [("path lost", LARGER)] * 2
    for lane in LANES:
        assert say(bench, replace(HELLO, lane=lane, resume=True), b"back %d" % lane) == "WELCOME"
    assert bench.told[2:] == [("path back", LARGER)]


def test_what_was_on_its_way_when_its_sender_was_refused_is_no_sign_of_life() -> None:
    """Found: one that was killed as it came was a member until its silence told, for what it had said was read after that."""
    bench = Bench()
    accept(bench)
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    hear_a_frame(bench)
    bench.peering.lost(b"0", bench.now_s)
    bench.peering.lost(b"1", bench.now_s)
    bench.run_to(bench.now_s + IN_FLIGHT_S)
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    assert bench.told[2:] == [("down", LARGER, "nothing listens there any more", Ending.LOST)]


@pytest.mark.parametrize("listened", [True, False])
def test_who_was_heard_no_more_since_it_was_refused_or_has_listened_since_is_gone(
    listened: bool,
) -> None:
    """It may have been dying when it was refused for the first time."""
    bench = Bench()
    accept(bench)
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    if listened:
        bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.LISTENS, bench.now_s)
        hear_a_frame(bench)
    bench.peering.lost(b"0", bench.now_s)
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    assert bench.told[1:] == [("down", LARGER, "nothing listens there any more", Ending.LOST)]


def test_who_was_introduced_there_listens_and_is_not_asked_again() -> None:
    """The smaller of two has mostly been there before the larger one dials."""
    bench = Bench()
    raw = announce(LARGER, endpoints=WAY_IN)
    bench.hear(raw)
    bench.introduced(bench.dials()[0], raw)
    accept(bench)
    assert bench.roster.peers[LARGER].pending_probes == set()
    for conn in (b"0", b"1"):
        bench.peering.lost(conn, bench.now_s)
    bench.peering.probed(LARGER, "tcp://127.0.0.1:2", ProbeResult.REFUSED, bench.now_s)
    assert bench.told[2:] == [("down", LARGER, "nothing listens there any more", Ending.LOST)]


def test_of_several_addresses_each_has_to_refuse() -> None:
    """Found: the first may be somebody else's, as a bridge's that this host has too."""
    bench = Bench()
    uris = [f"tcp://{address}" for address in ("10.0.0.2:2", "172.17.0.1:2")]
    places = [place(uri.removeprefix("tcp://")) for uri in uris]
    bench.hear(announce(LARGER, endpoints=places, host=ELSEWHERE))
    accept(bench)
    bench.take()
    for conn in (b"0", b"1"):
        bench.peering.lost(conn, bench.now_s)
    told = kinds(bench.take())
    assert told == [("probe", uri.removeprefix("tcp://")) for uri in uris] * 2
    for answer in (uris[1], uris[1], "tcp://10.0.0.2:1"):
        bench.peering.probed(LARGER, answer, ProbeResult.REFUSED, bench.now_s)
    bench.peering.probed(LARGER, uris[0], ProbeResult.LISTENS, bench.now_s)
    assert bench.told == [("path lost", LARGER)] * 2
    bench.peering.probed(LARGER, uris[0], ProbeResult.REFUSED, bench.now_s)
    assert bench.told[2:] == [("down", LARGER, "nothing listens there any more", Ending.LOST)]
