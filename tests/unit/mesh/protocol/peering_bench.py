"""A test bench for one node's roster and peering, with a clock of its own, and messages of other nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from random import Random

from mesh.protocol.dialling import PeeringSettings, greeting
from mesh.protocol.frame import CONTROL, DATA, Frame, Kind, pack_frame
from mesh.protocol.hello import Hello, Welcome, decode_hello, encode_announcements
from mesh.protocol.instructions import Dial, Hangup, Instruction, Probe
from mesh.protocol.lane import Conn
from mesh.protocol.link import Link
from mesh.protocol.peering import Ending, Peering
from mesh.protocol.roster import Peer, Refusals, Roster
from mesh.protocol.timers import Timers
from security.announcement import Announcement, Endpoint
from security.keyring import Keyring, NetworkKeyring
from security.keys import DOOR, derive
from tests.machines import LANES, LIMITS, ME

SECRET = bytes(range(32))
HOST, ELSEWHERE = b"our host", b"far away"
WALL_US = 10**15
HANDSHAKE_S, RESUME_S, TOMBSTONE_S, SKEW_S, LIFETIME_S = 1.0, 15.0, 60.0, 300, 600
LARGER, SMALLER = b"z" * 16, b"a" * 16
"""Node ids that compare larger and smaller than ME (`m`); the larger of two nodes dials."""


def announce(
    node: bytes = SMALLER, version: int = 1, *, clusters: tuple[str, ...] = ("x",),
    endpoints: Sequence[Endpoint] | None = None, host: bytes = HOST, left: bool = False,
    wall_us: int = WALL_US,
) -> bytes:  # fmt: skip
    """Return a signed announcement of `node`; by default its endpoints are a door and an address for links."""
    if endpoints is None:
        endpoints = [place("127.0.0.1:1", DOOR), place("127.0.0.1:2")]
    announcement = Announcement(
        node=node, incarnation=version, issued_us=wall_us, lifetime_s=LIFETIME_S, host=host,
        clusters=clusters, endpoints=tuple(endpoints), left=left,
    )  # fmt: skip
    return announcement.sign([derive(SECRET, cluster) for cluster in clusters])


def place(address: str, cluster: str = "x") -> Endpoint:
    return Endpoint(f"tcp://{address}", derive(SECRET, cluster).key_id)


WAY_IN = [place("127.0.0.1:2")]
"""Endpoints without a door: the larger node dials at once."""


def make_roster(
    *, me: bytes = ME, peers_max: int = 10, keyring: Keyring | None = None,
    log: Callable[[str], None] = lambda text: None,
) -> Roster:  # fmt: skip
    return Roster(
        me, HOST, keyring or NetworkKeyring([SECRET]), skew_s=SKEW_S, tombstone_s=TOMBSTONE_S,
        peers_max=peers_max, refusals=Refusals(log),
    )  # fmt: skip


class Bench:
    """Peering of node `me`, with its events for the core (`told`) and its instructions for the transport (`take`)."""

    def __init__(
        self, me: bytes = ME, *, secrets: Sequence[bytes] = (SECRET,), peers_max: int = 10,
        keyring: Keyring | None = None,
    ) -> None:  # fmt: skip
        self.me, self.now_s = me, 0.0
        self.timers, self.out = Timers(), list[Instruction]()
        self.told: list[tuple[object, ...]] = []
        self.to_flush: set[Link] = set()
        keyring = keyring or NetworkKeyring(secrets)
        keyring.own("x")
        self.roster = make_roster(
            me=me, keyring=keyring, peers_max=peers_max,
            log=lambda text: self.told.append(("log", text)),
        )  # fmt: skip
        settings = PeeringSettings(
            me=me, clusters=("x",), limits=LIMITS, idempotent=(), handshake_s=HANDSHAKE_S,
            resume_s=RESUME_S,
        )  # fmt: skip
        self.peering = Peering(
            settings, self.roster, self.timers, Random(7), self.out, self,
            lambda: WALL_US + int(self.now_s * 1e6),
        )  # fmt: skip
        self.dialler = self.peering.dialler
        self.peering.announcement = announce(me)

    # Events of peering

    def link_up(self, link: Link, peer: Peer, idempotent: Sequence[str]) -> None:
        self.told.append(("up", link.peer))

    def path_lost(self, link: Link) -> None:
        self.told.append(("path lost", link.peer))

    def path_back(self, link: Link) -> None:
        self.told.append(("path back", link.peer))

    def left_by_hearsay(self, link: Link) -> None:
        self.told.append(("left by hearsay", link.peer))

    def link_down(self, link: Link, reason: str, ending: Ending) -> None:
        self.told.append(("down", link.peer, reason, ending))

    def request_flush(self, link: Link) -> None:
        self.to_flush.add(link)

    # Time and instructions

    def run_to(self, to_s: float) -> None:
        """Let time pass, deadline by deadline."""
        while (due_s := self.timers.due_s()) <= to_s:
            self.now_s = max(self.now_s, due_s)
            self.timers.run(self.now_s)
        self.now_s = to_s

    def run_to_dial(self) -> float:
        """Let time pass until something is dialled; return how long that took."""
        start_s = self.now_s
        while not any(isinstance(item, Dial) for item in self.out):
            due_s = self.timers.due_s()
            assert due_s < inf, "never dials again"
            self.run_to(due_s)
        return self.now_s - start_s

    def take(self) -> list[Instruction]:
        out = list(self.out)
        self.out.clear()
        return out

    def dials(self) -> list[Dial]:
        return [item for item in self.take() if isinstance(item, Dial)]

    def hear(self, raw: bytes) -> Peer:
        peer = self.peering.learn_peer(raw, self.now_s)
        assert peer is not None
        return peer

    def lose(self, dials: Sequence[Dial], *, denied: bool = False) -> None:
        for dial in dials:
            self.peering.lost(dial.conn, self.now_s, denied=denied)

    # Answers of other nodes

    def answer(
        self, conn: Conn, kind: int, body: bytes, *, user: str | None = None, lane: int = CONTROL
    ) -> None:
        """Receive a greeting on a connection of ours, or on one of `user`."""
        self.peering.greeted(conn, user, Frame(greeting(lane, kind, body)), self.now_s)

    def introduced(self, dial: Dial, *announcements: bytes) -> None:
        self.answer(dial.conn, Kind.INTRODUCED, encode_announcements(announcements))

    def welcomed(self, out: Sequence[Instruction], raw: bytes, node: bytes = SMALLER) -> None:
        """Answer every HELLO in `out` with a WELCOME."""
        for item in out:
            if isinstance(item, tuple):
                hello = decode_hello(only_record(item[1])[1])
                welcome = Welcome(
                    lane=hello.lane, node=node, link_id=hello.link_id, expects=1,
                    limits=LIMITS.wire_limits(), announcement=raw,
                )  # fmt: skip
                self.answer(item[0], Kind.WELCOME, welcome.encode(), lane=hello.lane)

    def link_to(self, node: bytes = SMALLER) -> Link:
        """Return a link that is up and was dialled by us."""
        raw = announce(node, endpoints=[place("127.0.0.1:2")])
        self.hear(raw)
        self.welcomed(self.take(), raw, node)
        self.take()
        self.told.clear()
        link = self.peering.links[node]
        assert link.up
        return link


def only_record(frame: bytes) -> tuple[int, bytes]:
    """Return kind and body of the greeting in a frame."""
    ((kind, _, _, start, end),) = Frame(frame).records
    return kind, bytes(frame[start:end])


def kinds(out: Sequence[Instruction]) -> list[object]:
    """Return instructions in short: ("dial", lane, endpoint), ("hang up", conn), ("probe", ..), or the kind sent."""
    short: list[object] = []
    for item in out:
        if isinstance(item, Dial):
            short.append(("dial", item.lane, item.endpoint.removeprefix("tcp://")))
        elif isinstance(item, Hangup):
            short.append(("hang up", item.conn))
        elif isinstance(item, Probe):
            short.append(("probe", item.endpoint.removeprefix("tcp://")))
        else:
            short.append(Kind(only_record(item[1])[0]).name)
    return short


# Links that others have dialled

HELLO = Hello(
    lane=CONTROL, node=LARGER, target=ME, link_id=b"k" * 16, resume=False, expects=1,
    limits=LIMITS.wire_limits(),
    announcement=announce(LARGER, endpoints=WAY_IN),
)  # fmt: skip


def say(bench: Bench, hello: Hello, conn: bytes = b"c", user: str = "x") -> str:
    """Receive a HELLO; return the answer."""
    bench.answer(conn, Kind.HELLO, hello.encode(), user=user, lane=hello.lane)
    sent = [item for item in bench.take() if isinstance(item, tuple) and item[0] == conn]
    kind, body = only_record(sent[0][1])
    return body.decode() if kind == Kind.REFUSE else Kind(kind).name


def accept(bench: Bench, *, heard: bool = True) -> None:
    """Accept a link dialled by the larger node, on connections 0 and 1.

    Args:
        heard: whether the dialler has sent something on it since.
    """
    for lane in LANES:
        assert say(bench, replace(HELLO, lane=lane), b"%d" % lane) == "WELCOME"
    if heard:
        hear_a_frame(bench)
    assert bench.told == [("up", LARGER)]
    bench.told.clear()


def hear_a_frame(bench: Bench) -> None:
    """Receive a frame on that link."""
    raw = pack_frame(DATA, 0, 0, 0, 0, [])
    bench.peering.links[LARGER].receive(Frame(raw), len(raw), bench.now_s)
