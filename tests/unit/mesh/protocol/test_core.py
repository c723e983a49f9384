"""What the core tells of its peering's news, on one node with links it accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mesh.config import MeshConfig
from mesh.errors import NodeClosed
from mesh.protocol.core import CHECK_DELAYS_S, TICK_S, Core
from mesh.protocol.dialling import greeting
from mesh.protocol.dispatch import LEAVING_LOAD, Dispatcher
from mesh.protocol.frame import (
    CONTROL,
    DATA,
    GREETING_BYTES_MAX,
    Frame,
    Kind,
    pack_frame,
    pack_record,
)
from mesh.protocol.hello import Hello, Welcome, decode_hello, encode_announcements
from mesh.protocol.identity import Identity
from mesh.protocol.instructions import Dial, Probe, ProbeResult
from mesh.protocol.interest import DROP_OLDEST
from mesh.protocol.lane import Conn
from mesh.protocol.membership import Change
from mesh.protocol.outbox import REQUESTS
from mesh.protocol.peering import HEARSAY_S
from mesh.protocol.request import SENT, Pending
from mesh.protocol.topics import TopicStream
from mesh.protocol.tunnel import TunnelEnd
from mesh.protocol.values import encode_values, load_values
from security.announcement import read_announcement
from security.keyring import NetworkKeyring
from tests.machines import LANES, LIMITS, ME

from .peering_bench import (
    HOST,
    LARGER,
    SECRET,
    SMALLER,
    WALL_US,
    WAY_IN,
    announce,
    only_record,
    place,
)

GOLDEN = Path(__file__).parents[3] / "golden"


class Shell:
    """Hears of changes and what is logged, and of nothing else."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.logged: list[str] = []

    def member_changed(self, change: Change) -> None:
        self.changes.append(change)

    def log(self, text: str) -> None:
        self.logged.append(text)

    def opened(self, end: TunnelEnd, cluster: str, endpoint: str) -> None: ...
    def announced(self, raw: bytes) -> None: ...
    def streams_freed(self, streams: Sequence[TopicStream]) -> None: ...
    def audience_grew(self) -> None: ...


def make_core(shell: Shell, wall_us: Callable[[], int] = lambda: WALL_US, **settings: Any) -> Core:
    core = Core(
        Identity(node=ME, incarnation=1, host=HOST), MeshConfig(clusters=("x",), **settings),
        NetworkKeyring([SECRET]), shell, Random(7), wall_us,
    )  # fmt: skip
    core.announce([place("127.0.0.1:3")], 0.0)
    return core


def dial(
    core: Core, node: bytes, lane: int = CONTROL, target: bytes = ME, at: bytes | None = None
) -> None:
    hello = Hello(
        lane=lane, node=node, target=target, link_id=node, resume=False, expects=1,
        limits=LIMITS.wire_limits(), announcement=announce(node),
    )  # fmt: skip
    conn = at or node + b"%d" % lane
    core.received(conn, "x", greeting(lane, Kind.HELLO, hello.encode()), core._now_s)


def link(core: Core, node: bytes) -> None:
    """`node` dials both lanes: connections are named (node, lane)."""
    for lane in LANES:
        dial(core, node, lane)


def serve(core: Core) -> None:
    """Its own cluster, where nothing comes in."""
    core.patterns.dispatchers["x"] = Dispatcher(
        "x", {}, {}, concurrency=1, queue_max=1, queue_bytes_max=1, start=lambda _job: None,
        request_flush=core.request_flush,
    )  # fmt: skip


def say(core: Core, node: bytes, kind: Kind, announcement: bytes) -> None:
    """The first frame on the control lane of the node's link."""
    record = pack_record(kind, 0, encode_announcements([announcement]))
    core.received(node + b"%d" % CONTROL, "x", pack_frame(CONTROL, 1, 0, 0, 1, [record]), 0.0)


@pytest.mark.parametrize(
    ("teller", "kind"), [(SMALLER, Kind.BYE), (LARGER, Kind.GOSSIP)], ids=["itself", "another"]
)
def test_who_left_has_left_whoever_told_of_it(teller: bytes, kind: Kind) -> None:
    shell = Shell()
    core = make_core(shell)
    for node in (SMALLER, LARGER):
        link(core, node)
    assert [change.kind for change in shell.changes] == ["joined", "joined"]
    say(core, teller, kind, announce(SMALLER, 2, left=True))
    told = shell.changes[2:]
    assert [(one.member.node, one.kind, one.reason) for one in told] == [(SMALLER, "left", "left")]
    assert [one.node for one in core.rotation.candidates("x")] == [LARGER]
    core.tick(HEARSAY_S)  # Its own goodbye, if it is to come, has come.
    assert list(core.peering.links) == [LARGER]
    assert shell.changes[2:] == told


@pytest.mark.parametrize("issued_us", [WALL_US - 10**10, WALL_US - 1, WALL_US + 10**10])
def test_who_says_goodbye_on_its_own_link_has_left_whatever_its_clock_says(issued_us: int) -> None:
    shell = Shell()
    core = make_core(shell)
    link(core, SMALLER)
    say(core, SMALLER, Kind.BYE, announce(SMALLER, left=True, wall_us=issued_us))
    assert [change.kind for change in shell.changes] == ["joined", "left"]
    assert not core.roster.peers
    core.found("", announce(SMALLER, 9), 0.0)
    assert not core.roster.peers


@pytest.mark.parametrize("set_s", [-3600, -299, 0, 299, 3600])
def test_whose_clock_is_set_far_announces_itself_at_once(set_s: int) -> None:
    """Found: up to `announce_s` long nobody new, by the same clock, believed that it was there."""
    clock = [WALL_US]
    core = make_core(Shell(), lambda: clock[0])
    said = core.peering.announcement
    for now_s, set_by_s in ((10.0, 0), (12.0, set_s), (14.0, set_s)):
        clock[0] = WALL_US + round((now_s + set_by_s) * 1e6)
        core.tick(now_s)
        was, said = said, core.peering.announcement
        at_once = abs(set_s) > core.config.clock_skew_s and now_s == 12.0
        assert (said != was) == at_once
        read_announcement(said, core.roster.keyring, now_us=clock[0])


def test_where_clocks_may_not_differ_at_all_a_late_loop_is_not_a_clock_that_was_set() -> None:
    clock = [WALL_US]
    core = make_core(Shell(), lambda: clock[0], clock_skew_s=0)
    said = core.peering.announcement
    clock[0] += 10_900_000
    core.tick(10.0)
    assert core.peering.announcement == said


def test_what_a_node_says_is_newer_than_before_though_its_clock_was_set_back() -> None:
    """By more than clocks may be apart only its goodbye is: newcomers would not believe the others."""
    clock, said = [WALL_US], list[int]()
    core = make_core(Shell(), lambda: clock[0])

    def issued() -> int:
        raw = core.peering.announcement
        return read_announcement(raw, core.roster.keyring, now_us=clock[0], skew_s=10**6).issued_us

    for back_us in (0, 10**6, 299 * 10**6, 10**10):
        clock[0] = WALL_US - back_us
        core.announce([place("127.0.0.1:3")], 0.0)
        said.append(issued())
    assert said == [WALL_US + 1, WALL_US + 2, WALL_US + 3, WALL_US - 10**10]
    clock[0] = WALL_US - 10**11
    core.leave(0.0)
    assert issued() == said[-1] + 1


def touched(core: Core, conns: list[Conn], from_s: float) -> list[Conn]:
    """Data lanes on which something leaves within 0.4 s of the end of one of `conns`."""
    core.check_inbound(conns, from_s)
    for delay_s in (*CHECK_DELAYS_S, 0.4):
        core.tick(from_s + delay_s)
    sent = [item[0] for item in core.out if isinstance(item, tuple)]
    core.out.clear()
    return [conn for conn in sent if isinstance(conn, bytes) and conn.endswith(b"%d" % DATA)]


def test_an_accepted_connection_that_may_have_ended_is_touched_and_no_other() -> None:
    """Found: all links were, three times; so every end of an introduction cost every link six frames."""
    core = make_core(Shell())
    for node in (SMALLER, LARGER):
        link(core, node)
    core.flush(0.0)
    core.out.clear()
    ended = SMALLER + b"%d" % DATA
    assert touched(core, [ended, b"an introduction"], 1.0) == [ended] * len(CHECK_DELAYS_S)
    assert touched(core, [b"an introduction"], 2.0) == []
    assert touched(core, [], 3.0) == []


def test_a_larger_one_takes_the_dial_of_a_smaller_one_it_has_not_heard_of() -> None:
    """And does not think that its own, begun upon that very HELLO, came first."""
    core = make_core(Shell())
    link(core, SMALLER)
    assert not core.peering.links[SMALLER].dialled


def leaving(core: Core) -> list[Frame]:
    """What has left since the last time."""
    core.flush(core._now_s)
    frames = [Frame(one[1]) for one in core.out if isinstance(one, tuple)]
    core.out.clear()
    return frames


def test_what_came_before_its_link_was_up_is_taken_then_and_kept_no_longer() -> None:
    core = make_core(Shell())
    dial(core, SMALLER)
    record = pack_record(Kind.SUBSCRIBE, 1, encode_values("t", 0, 1000))
    core.received(SMALLER + b"%d" % CONTROL, "x", pack_frame(CONTROL, 1, 0, 0, 1, [record]), 0.0)
    assert not core.patterns.subscribers.patterns()
    dial(core, SMALLER, DATA)
    assert core.patterns.subscribers.patterns() == {"t"}
    assert core.peering.links[SMALLER].early_records == []


def hear(core: Core, sequence: int, now_s: float) -> None:
    frame = pack_frame(DATA, sequence, 0, 0, 0, [])
    core.received(SMALLER + b"%d" % DATA, "x", frame, now_s)


def test_what_waited_for_a_path_leaves_with_it_and_not_with_the_next_heartbeat() -> None:
    core = make_core(Shell())
    link(core, SMALLER)
    up = core.peering.links[SMALLER]
    hear(core, 1, 0.0)
    leaving(core)
    core.lost(SMALLER + b"%d" % DATA, 1.0)
    up.outbox.push(REQUESTS, Kind.REPLY, 1, b"waits")
    core.request_flush(up)
    assert leaving(core) == []
    dial(core, SMALLER, DATA, at=b"anew")
    assert [one[0] for frame in leaving(core) for one in frame.records] == [
        Kind.WELCOME,
        Kind.REPLY,
    ]


def test_what_came_after_an_acknowledgement_has_a_delay_of_its_own() -> None:
    """Not the rest of the one before, nor as long as nothing else is said."""
    core = make_core(Shell(), ack_delay_s=0.05)
    link(core, SMALLER)
    up = core.peering.links[SMALLER]
    leaving(core)
    hear(core, 1, 0.0)
    assert leaving(core) == []
    up.outbox.push(REQUESTS, Kind.REPLY, 1, b"takes it along")
    core.request_flush(up)
    assert [frame.ack_data for frame in leaving(core)] == [1]
    hear(core, 2, 0.02)
    for now_s, acked in ((0.02, []), (0.05, []), (0.06, []), (0.07, [2])):
        core.tick(now_s)
        assert [frame.ack_data for frame in leaving(core)] == acked


def loads_told(core: Core) -> list[object]:
    frames = [Frame(one[1]) for one in core.out if isinstance(one, tuple)]
    core.out.clear()
    return [
        load_values(bytes(frame.data[start:end]), "HEARTBEAT")
        for frame in frames for kind, _, _, start, end in frame.records if kind == Kind.HEARTBEAT
    ]  # fmt: skip


def test_a_node_that_drains_says_so_at_every_beat() -> None:
    """Found: the next heartbeat said that it has nothing to do, and whoever heard it tried it first."""
    core = make_core(Shell())
    link(core, SMALLER)
    serve(core)
    core.tick(0.5)
    assert loads_told(core) == [[{"x": 0}]]
    core.drain()
    core.tick(3.0)
    assert loads_told(core) == [[{"x": LEAVING_LOAD}]] * 2


def test_a_handler_that_still_runs_may_ask_others() -> None:
    """Found: as soon as its node drained it got NodeClosed, and its caller `failed`."""
    core = make_core(Shell())
    link(core, SMALLER)

    def ask() -> Pending:
        return core.request("x", b"", now_s=0.0, deadline_s=9.0, expires_s=9.0, wake=lambda: None)

    core.drain()
    pending = ask()
    core.flush(0.0)
    assert pending.state == SENT
    core.leave(1.0)
    with pytest.raises(NodeClosed):
        ask()
    core.close()
    assert isinstance(pending.outcome, NodeClosed)
    assert pending.outcome.maybe_executed


# Dials that are answered with what breaks the protocol

GREETED_BADLY = {
    "not a frame": b"?",
    "of another version": b"",
    "no announcements": greeting(CONTROL, Kind.INTRODUCED, b"?"),
    "an answer to something else": greeting(CONTROL, Kind.WELCOME, b"?"),
}


def dials(core: Core) -> list[Dial]:
    found = [one for one in core.out if isinstance(one, Dial)]
    core.out.clear()
    return found


def other_version(frame: bytes) -> bytes:
    return frame[:1] + bytes([frame[1] + 1]) + frame[2:]


@pytest.mark.parametrize("answer", GREETED_BADLY)
def test_a_seed_that_broke_the_protocol_is_asked_again(answer: str) -> None:
    """Found: never again, so one answer of another version (an upgrade) shut an address out for good."""
    core, seed = make_core(Shell()), "tcp://10.0.0.9:1"
    core.found(seed, b"", 0.0)
    introduced = greeting(CONTROL, Kind.INTRODUCED, encode_announcements([announce(LARGER)]))
    (dial,) = dials(core)
    core.received(dial.conn, None, GREETED_BADLY[answer] or other_version(introduced), 0.1)
    assert not dials(core)
    core.found(seed, b"", 5.0)
    (dial,) = dials(core)
    core.received(dial.conn, None, introduced, 5.1)
    assert LARGER in core.roster.peers


def test_a_node_that_broke_the_protocol_is_dialled_again() -> None:
    core = make_core(Shell())
    core.found("", announce(SMALLER, endpoints=WAY_IN), 0.0)
    for dial in dials(core):
        core.received(dial.conn, None, b"?", 0.1)
    assert not dials(core)
    core.tick(5.0)
    assert len(dials(core)) == len(LANES)


@pytest.mark.parametrize("second", [b"?", None])
def test_a_node_that_broke_the_protocol_with_one_lane_is_dialled_again(
    second: bytes | None,
) -> None:
    """On the lane that it had welcomed already, or on the other one."""
    core, raw = make_core(Shell()), announce(SMALLER, endpoints=WAY_IN)
    core.found("", raw, 0.0)
    hello = [decode_hello(only_record(one[1])[1]) for one in core.out if isinstance(one, tuple)][-2]
    control, data = dials(core)
    welcome = Welcome(
        lane=CONTROL, node=SMALLER, link_id=hello.link_id, expects=1, limits=LIMITS.wire_limits(),
        announcement=raw,
    )  # fmt: skip
    core.received(control.conn, None, greeting(CONTROL, Kind.WELCOME, welcome.encode()), 0.1)
    core.received(control.conn if second is None else data.conn, None, b"?", 0.2)
    assert not dials(core)
    core.tick(5.0)
    assert len(dials(core)) == len(LANES)


def test_a_lane_welcomed_with_what_cannot_be_is_dialled_again() -> None:
    """Found: where the second WELCOME was impossible, the link stayed half made for good."""
    core, raw = make_core(Shell()), announce(SMALLER, endpoints=WAY_IN)
    core.found("", raw, 0.0)
    hello = [decode_hello(only_record(one[1])[1]) for one in core.out if isinstance(one, tuple)][-2]
    for dial in dials(core):
        welcome = Welcome(
            lane=dial.lane, node=SMALLER, link_id=hello.link_id, limits=LIMITS.wire_limits(),
            expects=1 if dial.lane == CONTROL else 7, announcement=raw,
        )  # fmt: skip
        core.received(dial.conn, None, greeting(dial.lane, Kind.WELCOME, welcome.encode()), 0.1)
    assert not dials(core)
    assert not core.peering.links
    core.tick(5.0)
    assert len(dials(core)) == len(LANES)


def test_whoever_breaks_the_protocol_under_many_names_is_one_of_its_cluster() -> None:
    """Found: each new node id was another key of the statistics and another line of the log."""
    shell = Shell()
    core = make_core(shell)
    for node in (SMALLER, LARGER):
        link(core, node)
        core.received(node + b"%d" % CONTROL, "x", b"?", 0.0)
    assert core.refusals.counts == {"protocol violation by a node of x": 2}
    (line,) = shell.logged
    assert line.startswith(f"node {SMALLER.hex()[:8]} of x violated the protocol")


@pytest.mark.parametrize(("frame_bytes_max", "limit"), [(128 << 10, GREETING_BYTES_MAX), (1 << 20, 1 << 20)])  # fmt: skip
def test_a_frame_over_the_limit_costs_its_link_and_is_said_once(
    frame_bytes_max: int, limit: int
) -> None:
    """Found: up to four times as much was taken, and of more libzmq hung up without a word."""
    for size, why in ((limit + 1, f"of {limit + 1} bytes, the limit is {limit}"), (limit, "magic")):
        shell = Shell()
        core = make_core(shell, frame_bytes_max=frame_bytes_max)
        for node in (SMALLER, LARGER):
            link(core, node)
        for _ in range(3):
            core.received(SMALLER + b"%d" % DATA, "x", bytes(size), 0.0)
        assert list(core.peering.links) == [LARGER]
        assert why in shell.logged[0]
        assert len(shell.logged) == 1


@pytest.mark.parametrize(
    ("conns", "lost"),
    [([SMALLER], [SMALLER]), ([b"of nobody", SMALLER], [SMALLER]), ([SMALLER, LARGER], []), ([], [])],
    ids=["its own", "beside one without a link", "either of two links", "of no frame yet"],
)  # fmt: skip
def test_who_was_cut_off_by_the_transport_loses_its_link_where_it_is_known(
    conns: list[bytes], lost: list[bytes]
) -> None:
    shell = Shell()
    core = make_core(shell)
    for node in (SMALLER, LARGER):
        link(core, node)
    for _ in range(2):
        core.cut_off([conn + b"%d" % DATA for conn in conns], "too much", "127.0.0.9", 0.0)
    assert [node for node in (SMALLER, LARGER) if node not in core.peering.links] == lost
    one = [f"node {SMALLER.hex()[:8]} of x"] * len(lost)
    said = [f"{who} violated the protocol and was disconnected: too much" for who in
            (*one, "a connection from 127.0.0.9")]  # fmt: skip
    assert shell.logged == said


def test_who_still_listened_when_its_path_was_lost_is_probed_again() -> None:
    """Seen once, on a busy machine: one that was killed was a member for three seconds more."""
    shell = Shell()
    core = make_core(shell)
    link(core, SMALLER)
    say(core, SMALLER, Kind.GOSSIP, announce(SMALLER))
    for lane in LANES:
        core.lost(SMALLER + b"%d" % lane, 1.0)

    def probes() -> list[str]:
        found = [one.endpoint for one in core.out if isinstance(one, Probe)]
        core.out.clear()
        return found

    first = probes()
    assert first
    for endpoint in first:
        core.probed(SMALLER, endpoint, ProbeResult.LISTENS, 1.0)
    for _ in range(4):
        core.tick(core._now_s + TICK_S)
    again = probes()
    assert set(again) == set(first)
    for endpoint in set(again):
        core.probed(SMALLER, endpoint, ProbeResult.REFUSED, 2.0)
    assert [change.kind for change in shell.changes] == ["joined", "suspect", "dead"]


def test_golden_records_of_a_node() -> None:
    """One of each kind that it says as itself, with no pattern: bytes that stay as they are."""
    core = make_core(Shell(), announce_s=1.0)
    link(core, SMALLER)
    serve(core)
    core.out.clear()
    dial(core, LARGER, target=LARGER)
    core.tick(1.0)
    core.unsubscribe(core.subscribe("orders.*", DROP_OLDEST, 1000, lambda: None))
    core.leave(1.0)
    frames = [Frame(item[1]) for item in core.out if isinstance(item, tuple)]
    said = {
        kind: pack_record(kind, ident, bytes(frame.data[start:end]))
        for frame in frames for kind, _, ident, start, end in frame.records
    }  # fmt: skip
    kinds = [Kind.REFUSE, Kind.HEARTBEAT, Kind.GOSSIP, Kind.UNSUBSCRIBE, Kind.BYE]
    golden = (GOLDEN / "node-v1.hex").read_text().split()
    assert [said[kind].hex() for kind in kinds] == golden
