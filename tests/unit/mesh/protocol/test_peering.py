from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.accepting import DIAL_BACK_DELAY_S
from mesh.protocol.dialling import greeting
from mesh.protocol.frame import CONTROL, DATA, Frame, Kind, pack_frame, pack_record
from mesh.protocol.hello import (
    BAD,
    CLOCK,
    CROSSING,
    FULL,
    GONE,
    NOT_ME,
    UNTRUSTED,
    decode_announcements,
    encode_announcements,
)
from mesh.protocol.instructions import Dial
from mesh.protocol.link import RECORD_EXTRA_BYTES
from mesh.protocol.peering import HEARSAY_S, Ending
from security.keys import DOOR
from tests.machines import LANES, ME, OTHER, take_records

from .peering_bench import (
    HANDSHAKE_S,
    HELLO,
    LARGER,
    RESUME_S,
    SMALLER,
    WALL_US,
    WAY_IN,
    Bench,
    accept,
    announce,
    kinds,
    only_record,
    place,
    say,
)

# Who may have a link


def test_two_lanes_make_a_link() -> None:
    bench = Bench()
    accept(bench)
    link = bench.peering.links[LARGER]
    assert (link.dialled, link.cluster, link.link_id) == (False, "x", HELLO.link_id)
    assert bench.peering.connections.link_by_conn == {b"0": link, b"1": link}


REFUSED = {
    NOT_ME: {"target": OTHER},
    BAD: {"node": ME},
    GONE: {"resume": True},
    UNTRUSTED: {"node": SMALLER},
    CLOCK: {"announcement": announce(LARGER, wall_us=WALL_US - 10**12)},
}


def test_who_is_ahead_of_our_clock_is_told_so_as_well() -> None:
    ahead = announce(LARGER, wall_us=WALL_US + 10**12)
    assert say(Bench(), replace(HELLO, announcement=ahead)) == CLOCK


@pytest.mark.parametrize("reason", REFUSED)
def test_a_hello_is_refused_with_a_reason(reason: str) -> None:
    bench = Bench()
    assert say(bench, replace(HELLO, **REFUSED[reason])) == reason  # type: ignore[arg-type]
    assert not bench.peering.links


def test_the_key_on_the_line_must_be_of_a_cluster_the_caller_claims() -> None:
    bench = Bench()
    assert say(bench, HELLO, user="y") == UNTRUSTED
    assert say(bench, HELLO, user=DOOR) == BAD
    assert say(bench, replace(HELLO, announcement=b"garbage")) == UNTRUSTED
    assert [what for what, *_ in bench.told] == ["log"]
    assert bench.roster.refusals.counts == {"announcement malformed": 1}


def test_nobody_gets_a_new_link_from_who_leaves() -> None:
    bench = Bench()
    bench.peering.closing = True
    assert say(bench, HELLO) == FULL


def test_the_second_lane_must_come() -> None:
    bench = Bench()
    assert say(bench, HELLO) == "WELCOME"
    bench.run_to(2 * HANDSHAKE_S)
    assert ("hang up", b"c") in kinds(bench.take())
    assert (bench.peering.links, bench.told) == ({}, [])


def test_a_new_link_of_the_same_node_replaces_the_old_one() -> None:
    bench = Bench()
    accept(bench)
    assert say(bench, replace(HELLO, link_id=b"n" * 16)) == "WELCOME"
    assert bench.told == [("down", LARGER, "the peer started a new link", Ending.LOST)]
    assert bench.peering.links[LARGER].link_id == b"n" * 16


def test_who_expects_what_a_new_link_cannot_have_sent_changes_nothing() -> None:
    """Found: it was refused once the old link had been given up for it."""
    bench = Bench()
    accept(bench)
    link = bench.peering.links[LARGER]
    with pytest.raises(RemoteProtocolError, match="expects frame 2"):
        say(bench, replace(HELLO, link_id=b"n" * 16, expects=2), b"new")
    assert (bench.peering.links, bench.told) == ({LARGER: link}, [])
    assert link.connected


def test_a_lane_is_resumed_on_a_new_connection_and_the_old_one_forgotten() -> None:
    bench = Bench()
    accept(bench)
    hello = replace(HELLO, lane=DATA, resume=True)
    assert say(bench, hello, b"again") == "WELCOME"
    link = bench.peering.links[LARGER]
    assert (link.data.conn, link.control.conn) == (b"again", b"0")
    assert set(bench.peering.connections.link_by_conn) == {b"0", b"again"}
    assert b"1" in bench.peering.connections.recently_ended
    assert ("down", LARGER) not in [told[:2] for told in bench.told]


def test_who_resumes_a_lane_where_it_cannot_be_changes_nothing() -> None:
    """Found: the old connection was gone by then, and no timer ended the half of a link."""
    bench = Bench()
    accept(bench)
    link = bench.peering.links[LARGER]
    with pytest.raises(RemoteProtocolError, match="expects frame 99"):
        say(bench, replace(HELLO, resume=True, expects=99), b"new")
    assert link.connected
    assert link.control.conn != b"new"


def test_nobody_resumes_our_own_dial_or_on_behalf_of_another_cluster() -> None:
    bench = Bench()
    link = bench.link_to(SMALLER)
    hello = replace(
        HELLO, node=SMALLER, link_id=link.link_id, resume=True,
        announcement=announce(SMALLER, endpoints=WAY_IN),
    )  # fmt: skip
    assert say(bench, hello) == BAD


# Crossing dials


class Wire:
    """Carries greetings between two benches, who dial each other."""

    def __init__(self, *benches: Bench) -> None:
        self.benches = benches
        self.users: dict[bytes, str] = {}

    def carry(self, at: int) -> bool:
        """What one of them has to say reaches the other; whether there was anything."""
        here, there = self.benches[at], self.benches[1 - at]
        out = here.take()
        for item in out:
            if isinstance(item, Dial):
                self.users[b"%d" % item.conn + here.me] = item.client.cluster
            elif isinstance(item, tuple) and isinstance(item[0], int):
                name = b"%d" % item[0] + here.me
                there.peering.greeted(name, self.users[name], Frame(item[1]), there.now_s)
            elif isinstance(item, tuple):
                assert isinstance(item[0], bytes)
                conn = int(item[0].removesuffix(there.me))
                if conn in there.dialler._pending_dials:
                    there.peering.greeted(conn, None, Frame(item[1]), there.now_s)
        return bool(out)


@pytest.mark.parametrize("first", [0, 1], ids=["smaller first", "larger first"])
def test_of_two_dials_that_cross_the_larger_ones_wins(first: int) -> None:
    smaller, larger = Bench(SMALLER), Bench(LARGER)
    for bench, other in ((smaller, larger), (larger, smaller)):
        bench.peering.announcement = announce(bench.me, endpoints=WAY_IN)
        raw = announce(other.me, endpoints=WAY_IN)
        peer = bench.hear(raw)
        peer.failures, peer.knows_us = 1, True
        bench.dialler.end_attempt(peer)
        bench.take()
        bench.dialler.connect(peer, bench.now_s)
    wire = Wire(smaller, larger)
    assert kinds(smaller.out)[1::2] == kinds(larger.out)[1::2] == ["HELLO", "HELLO"]
    turn = first
    while wire.carry(turn) or wire.carry(1 - turn):
        turn = 1 - turn
    for bench in (smaller, larger):
        bench.run_to(5 * HANDSHAKE_S)
        assert bench.dials() == []
    mine, theirs = smaller.peering.links[LARGER], larger.peering.links[SMALLER]
    assert mine.link_id == theirs.link_id
    assert (mine.dialled, theirs.dialled) == (False, True)
    assert (smaller.told, larger.told) == ([("up", LARGER)], [("up", SMALLER)])


def test_the_smaller_ones_dial_is_taken_when_ours_is_not_under_way() -> None:
    bench = Bench()
    hello = replace(HELLO, node=SMALLER, announcement=announce(SMALLER, endpoints=WAY_IN))
    peer = bench.hear(hello.announcement)
    assert len(bench.dials()) == 2
    assert say(bench, hello) == CROSSING
    bench.dialler.try_again(peer, bench.now_s)
    assert say(bench, hello) == "WELCOME"


def test_a_link_of_ours_is_given_up_for_theirs_only_when_it_is_not_young() -> None:
    """Theirs may have left before they heard of ours; later it says that ours is lost to them."""
    bench = Bench()
    bench.link_to(SMALLER)
    hello = replace(HELLO, node=SMALLER, announcement=announce(SMALLER, endpoints=WAY_IN))
    bench.run_to(2 * HANDSHAKE_S - 0.01)
    assert say(bench, hello) == CROSSING
    bench.run_to(2 * HANDSHAKE_S)
    assert say(bench, hello) == "WELCOME"


# Lost paths


def test_a_link_its_dialler_was_never_heard_on_ends_with_its_path() -> None:
    """Found: dials that crossed and were given up, and both ends waited for the other to resume."""
    bench = Bench()
    accept(bench, heard=False)
    bench.peering.lost(b"0", bench.now_s)
    assert bench.told == [("down", LARGER, "no frame ever came from its dialler", Ending.LOST)]
    assert not bench.peering.links


def test_a_path_that_stays_lost_ends_the_link() -> None:
    bench = Bench()
    accept(bench)
    bench.peering.lost(b"0", bench.now_s)
    bench.run_to(RESUME_S - 0.01)
    assert LARGER in bench.peering.links
    bench.run_to(RESUME_S)
    assert bench.told[-1] == ("down", LARGER, f"no path for {RESUME_S:.0f} s", Ending.LOST)


def test_a_path_that_was_back_may_be_lost_again_for_as_long() -> None:
    """Found: it was given up at the first moment without a path, 15 s after an earlier one."""
    bench = Bench()
    accept(bench)
    for conn in (b"0", b"1"):
        bench.peering.lost(conn, bench.now_s)
    for lane in LANES:
        assert say(bench, replace(HELLO, lane=lane, resume=True), b"back %d" % lane) == "WELCOME"
    bench.run_to(RESUME_S - 1)
    bench.peering.lost(b"back 0", bench.now_s)
    bench.run_to(RESUME_S + 1)
    bench.peering.lost(b"back 1", bench.now_s)
    bench.run_to(2 * RESUME_S - 1.01)
    assert LARGER in bench.peering.links
    bench.run_to(2 * RESUME_S - 1)
    assert bench.told[-1] == ("down", LARGER, f"no path for {RESUME_S:.0f} s", Ending.LOST)


def test_proof_of_death_is_given_more_time_before_the_next_dial() -> None:
    waits_s = []
    for process_gone in (False, True):
        bench = Bench()
        link = bench.link_to()
        bench.peering.fail(link, "for the test", now_s=0.0, process_gone=process_gone)
        bench.take()
        waits_s.append(bench.run_to_dial())
    assert waits_s[1] > 4 * waits_s[0]


# What is heard


def test_introductions_are_answered_with_us_first_and_the_dial_comes_after_the_answer() -> None:
    bench = Bench()
    known = announce(OTHER, endpoints=WAY_IN)
    bench.hear(known)
    bench.take()
    raw = announce(SMALLER, endpoints=WAY_IN)
    bench.answer(b"c", Kind.INTRODUCE, encode_announcements([raw]), user=DOOR)
    (answer,) = bench.take()  # And no introduction of our own, which theirs has made needless.
    assert isinstance(answer, tuple)
    assert answer[0] == b"c"
    assert only_record(answer[1]) == (
        Kind.INTRODUCED, encode_announcements([bench.peering.announcement, known])
    )  # fmt: skip
    assert bench.roster.peers[SMALLER].knows_us
    assert bench.run_to_dial() == DIAL_BACK_DELAY_S


@pytest.mark.parametrize("count", [0, 2])
def test_an_introduction_is_of_one_node(count: int) -> None:
    body = encode_announcements([HELLO.announcement] * count)
    with pytest.raises(RemoteProtocolError, match=f"INTRODUCE with {count} announcements"):
        Bench().answer(b"c", Kind.INTRODUCE, body, user=DOOR)


def test_the_first_frame_of_a_stranger_is_a_greeting() -> None:
    bench = Bench()
    with pytest.raises(RemoteProtocolError, match="before HELLO"):
        bench.answer(b"c", Kind.HEARTBEAT, b"", user="x")
    twice = Frame(greeting(CONTROL, Kind.HELLO, HELLO.encode()))
    twice.records *= 2
    with pytest.raises(RemoteProtocolError, match="not a greeting"):
        bench.peering.greeted(b"c", "x", twice, bench.now_s)


def goodbye(bench: Bench, *announcements: bytes, kind: Kind = Kind.BYE) -> None:
    """The first frame of a link that there is not: its HELLO was refused."""
    record = pack_record(kind, 0, encode_announcements(announcements))
    frame = Frame(pack_frame(CONTROL, 1, 0, 0, 1, [record]))
    bench.peering.greeted(b"c", "x", frame, bench.now_s)


def test_a_goodbye_behind_a_hello_that_was_refused_is_heard() -> None:
    bench = Bench()
    bench.hear(announce(SMALLER))
    bench.take()
    goodbye(bench, announce(SMALLER, 2, left=True))
    assert SMALLER not in bench.roster.peers
    goodbye(bench, announce(SMALLER, 3, left=True, wall_us=1))
    assert bench.take() == []


@pytest.mark.parametrize(
    ("kind", "count", "says"),
    [(Kind.BYE, 0, "BYE with 0"), (Kind.BYE, 2, "BYE with 2"), (Kind.GOSSIP, 1, "greeting")],
)
def test_nothing_else_is_heard_without_a_link(kind: Kind, count: int, says: str) -> None:
    bench = Bench()
    with pytest.raises(RemoteProtocolError, match=says):
        goodbye(bench, *[announce(SMALLER, left=True)] * count, kind=kind)


def test_its_own_goodbye_ends_the_link_at_once() -> None:
    bench = Bench()
    accept(bench)
    goodbye = announce(LARGER, 2, endpoints=WAY_IN, left=True)
    assert bench.peering.learn_peer(goodbye, bench.now_s, relay=LARGER) is None
    assert bench.told == [("down", LARGER, "left", Ending.LEFT)]
    assert not bench.roster.peers
    bench.take()
    bench.run_to(30.0)
    assert bench.dials() == []


def overhear(bench: Bench) -> None:
    accept(bench)
    goodbye = announce(LARGER, 2, endpoints=WAY_IN, left=True)
    assert bench.peering.learn_peer(goodbye, bench.now_s, relay=SMALLER) is None
    assert bench.told == [("left by hearsay", LARGER)]
    assert not bench.roster.peers
    bench.told.clear()


def test_a_goodbye_that_others_tell_of_is_waited_for() -> None:
    """What it took only its own says: hearsay that came first made the rest maybe executed."""
    bench = Bench()
    overhear(bench)
    bench.run_to(HEARSAY_S - 0.01)
    assert not bench.told
    bench.peering.goodbye_received(bench.peering.links[LARGER], bench.now_s)
    assert bench.told == [("down", LARGER, "left", Ending.LEFT)]
    bench.take()
    bench.run_to(30.0)
    assert len(bench.told) == 1
    assert bench.dials() == []


def test_a_goodbye_that_only_others_tell_of_ends_the_link_all_the_same() -> None:
    bench = Bench()
    overhear(bench)
    bench.run_to(HEARSAY_S)
    assert bench.told == [("down", LARGER, "left, according to others", Ending.HEARSAY)]


def test_after_hearsay_a_lost_path_ends_the_link_when_the_goodbye_cannot_come_by_it() -> None:
    bench = Bench()
    overhear(bench)
    control, data = (bench.peering.links[LARGER].lane(lane).conn for lane in LANES)
    bench.peering.lost(data, bench.now_s)
    assert bench.told == [("path lost", LARGER)]
    bench.peering.lost(control, bench.now_s)
    assert bench.told[1:] == [("down", LARGER, "left, according to others", Ending.HEARSAY)]
    bench.run_to(30.0)
    assert len(bench.told) == 2


def test_of_a_lost_path_hearsay_is_believed_at_once() -> None:
    bench = Bench()
    accept(bench)
    bench.peering.lost(bench.peering.links[LARGER].control.conn, bench.now_s)
    goodbye = announce(LARGER, 2, endpoints=WAY_IN, left=True)
    bench.peering.learn_peer(goodbye, bench.now_s, relay=SMALLER)
    assert bench.told[-1] == ("down", LARGER, "left, according to others", Ending.HEARSAY)


def test_news_is_told_to_three_others_and_not_to_who_told_it() -> None:
    bench = Bench()
    nodes = [bytes([65 + number]) * 16 for number in range(5)]
    links = [bench.link_to(node) for node in nodes]
    for link in links:
        take_records(link)
    raw = announce(LARGER, endpoints=WAY_IN)
    bench.peering.learn_peer(raw, bench.now_s, relay=nodes[0])
    told = [link.peer for link in links if take_records(link)]
    assert len(told) == 3
    assert nodes[0] not in told
    bench.peering.learn_peer(raw, bench.now_s, relay=nodes[1])
    assert not any(take_records(link) for link in links), "once"


def test_who_is_told_of_others_is_told_at_once() -> None:
    """Found: it waited until something else was sent there, for up to a heartbeat at each node that passed it on."""
    bench = Bench(peers_max=100)
    links = [bench.link_to(bytes([number]) * 16) for number in (1, 2, 3)]
    bench.to_flush.clear()
    raw = announce(bytes([9]) * 16)
    bench.peering.learn_peer(raw, bench.now_s, relay=links[0].peer)
    assert bench.to_flush == set(links[1:])
    for number in range(10, 50):
        bench.peering.learn_peer(announce(bytes([number]) * 16), bench.now_s, dial=False)
    bench.to_flush.clear()
    for link in links:
        take_records(link)
    bench.peering.tick(bench.now_s)
    assert bench.to_flush == {link for link in links if take_records(link)} != set()


def test_what_is_told_of_many_fits_the_records_that_a_peer_of_small_payloads_takes() -> None:
    """Found: 32 announcements of 4 KB in one record, which cost the link."""
    bench = Bench(peers_max=100)
    link = bench.link_to()
    bench.take()
    take_records(link)
    link.limits = replace(link.limits, record_bytes_max=RECORD_EXTRA_BYTES + 1)
    uri = "tcp://" + 200 * "a" + ":1"
    long = [replace(place("127.0.0.1:2"), uri=uri)] * 16
    raws = {announce(bytes([number]) * 16, endpoints=long) for number in range(1, 31)}
    for raw in raws:
        bench.peering.learn_peer(raw, bench.now_s, dial=False)
    take_records(link)
    bench.peering.gossip_peers(link)
    bodies = [body for kind, _, body in take_records(link) if kind == Kind.GOSSIP]
    assert max(map(len, bodies)) <= link.limits.record_bytes_max < sum(map(len, bodies))
    assert {raw for body in bodies for raw in decode_announcements(body)} == raws


def test_peers_whose_announcement_ran_out_are_forgotten() -> None:
    bench = Bench()
    bench.hear(announce(LARGER, wall_us=WALL_US - 700 * 10**6))
    (dial,) = bench.dials()
    bench.peering.tick(bench.now_s)
    assert kinds(bench.take()) == [("hang up", dial.conn)]
    assert not bench.roster.peers
