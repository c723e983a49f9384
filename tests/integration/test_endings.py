"""Who ended a connection: one line for who was hung up on, and none for any ordinary end."""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import zmq

import mesh
from bench.proxy import Proxy
from mesh.dials import Dialled
from mesh.endings import (
    BROKEN_OFF,
    CLIENTS_BYTES,
    GREETING_BYTES,
    GREETINGS_MIN,
    STRANGER,
    Endings,
    hung_up_peer,
)
from mesh.protocol.frame import CONTROL, GREETING_BYTES_MAX
from mesh.protocol.lane import Conn
from mesh.zmq_socket import MONITOR_EVENT
from mesh.zmq_transport import (
    BACKLOG,
    DISCONNECTED,
    FAILED_NO_DETAIL,
    OVERSIZE_FACTOR,
    ZmqTransport,
)
from security.keyring import NetworkKeyring
from security.keys import DOOR
from tests.integration.test_security import (
    SECRET_BYTES,
    Stranger,
    counted,
    echo_service,
    server_endpoint,
    warnings,
)
from tests.loopback import HOST
from tests.nodes import free_ports, linked, node
from tests.transports import InMemory
from tests.waiting import PATIENCE_S, until

CONNECTED = int(zmq.Event.CONNECTED)
WHERE = "tcp://127.0.0.1:1"
TOO_LARGE = "a message that has more than"
Pair = tuple[socket.socket, socket.socket]
MONITOR_EVENTS_MAX = 2000
"""What libzmq keeps of a monitor's events unless told otherwise; each connection makes several."""
SOMAXCONN = int(Path("/proc/sys/net/core/somaxconn").read_text())
LIMIT_AT = 28
"""In `struct tcp_info` of one that listens."""
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
"""Of ZMTP: a greeting that has begun."""
CONN, ANOTHER, DIALS = 2, 3, "inproc://control"
RESET = struct.pack("ii", 1, 0)


def kept(one: mesh.Node) -> int:
    transport = one._driver._transport
    assert isinstance(transport, ZmqTransport)
    return len(transport._endings._kept)


@contextmanager
def connected() -> Iterator[Pair]:
    """Our end, and the peer's."""
    with (
        socket.create_server((HOST, 0)) as server,
        socket.create_connection(server.getsockname()) as peer,
        server.accept()[0] as ours,
    ):
        yield ours, peer


@pytest.fixture
def pair() -> Iterator[Pair]:
    with connected() as both:
        yield both


def known(endings: Endings, ours: socket.socket) -> None:
    """It begins, and nothing else has been told by the time it is looked at."""
    endings.begun("it", ours.fileno())
    endings.caught_up()


async def ended(ours: socket.socket, endings: Endings) -> str | None:
    """What is told once our end has been closed, as libzmq does right after it told of the end."""
    number = ours.fileno()
    kept = endings.ended("it")
    ours.close()
    if kept is None:
        return None
    return await hung_up_peer(kept, number)


async def test_who_lives_and_talks_was_hung_up_on(pair: Pair) -> None:
    ours, peer = pair
    endings = Endings(60_000)
    known(endings, ours)
    peer.send(b"much too large")
    assert await ended(ours, endings) == "127.0.0.1"
    peer.settimeout(10)
    with pytest.raises(ConnectionResetError):
        peer.recv(1)  # Nothing of ours is open any more.
    assert endings.ended("it") is None, "told once"


@pytest.mark.parametrize("how", ["closed", "reset", "silent"])
async def test_an_ordinary_end_is_none_of_ours(how: str, pair: Pair) -> None:
    ours, peer = pair
    endings = Endings(0 if how == "silent" else 60_000)
    known(endings, ours)
    if how == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    if how != "silent":
        peer.close()
        ours.settimeout(10)
        with ExitStack() as stack:
            if how == "reset":
                stack.enter_context(pytest.raises(ConnectionResetError))
            assert ours.recv(1) == b"", "as libzmq learns of it"
    assert await ended(ours, endings) is None


GREETING = b"x" * GREETING_BYTES


@pytest.mark.parametrize(
    ("said", "plain"),
    [(b"", False), (b"x", True), (GREETING, True), (GREETING + b"CURVE goes on", False)],
)
def test_who_hangs_up_after_a_greeting_again_and_again_is_plain(said: bytes, plain: bool) -> None:
    """Later found: two commands that ended while a third one dialled them were taken for one."""
    endings = Endings(60_000)
    row = [(number * 0.9, number >= GREETINGS_MIN - 1 and plain) for number in range(7)]
    later = [(10 + number * 0.1, number == GREETINGS_MIN - 1 and plain) for number in range(5)]
    for now_s, again in (*row, (8.0, False), *later):
        with connected() as (ours, peer):
            known(endings, ours)
            peer.sendall(said)
            peer.close()
            ours.settimeout(10)
            while ours.recv(100):
                pass
            ours.close()
            assert endings.was_plain("it", now_s) is again
            assert not endings.was_plain("it", now_s), "told once"


@pytest.mark.parametrize(
    ("by_them", "said_bytes", "name"),
    [
        (True, 0, ""), (True, 300, BROKEN_OFF), (False, 0, STRANGER), (False, 300, STRANGER),
        (None, 300, STRANGER), (None, CLIENTS_BYTES, None), (False, CLIENTS_BYTES, BROKEN_OFF),
    ],
)  # fmt: skip
def test_what_was_not_admitted_has_a_name_unless_it_said_nothing(
    by_them: bool | None, said_bytes: int, name: str | None, pair: Pair
) -> None:
    """Found: each probe of a peer counted there as a handshake that was broken off."""
    ours, peer = pair
    endings = Endings(60_000)
    known(endings, ours)
    peer.sendall(bytes(said_bytes))
    peer.close()
    ours.settimeout(10)
    while ours.recv(100):
        pass
    if by_them is not None:
        endings.failed(by_them=by_them)
    assert endings.unadmitted_kind("it", 0.0) == name
    assert endings.unadmitted_kind("another", 0.0) is None, "told once"
    endings.close()


@pytest.mark.parametrize("there", [False, True])
def test_whoever_was_not_looked_at_in_time_is_no_stranger(there: bool, pair: Pair) -> None:
    """Found: who dialled a node whose loop was blocked for longer than libzmq waits was said not to speak our protocol."""
    ours, _ = pair
    endings = Endings(60_000)
    number = ours.fileno() if there else 1 << 20
    endings.begun(number, number, "it")
    endings.failed(by_them=False)
    assert endings.unadmitted_kind(number, 0.0) == BROKEN_OFF
    assert not endings._kept
    assert not endings._unverified


@pytest.mark.parametrize("there", [False, True])
def test_whoever_libzmq_turned_away_before_we_looked_is_a_stranger(there: bool, pair: Pair) -> None:
    """Found: where nobody else kept the loop awake, a node of another network was counted twice at first, and no more."""
    ours, peer = pair
    peer.sendall(GREETING)
    ours.recv(1, socket.MSG_PEEK)
    endings = Endings(60_000)
    number = ours.fileno() if there else 1 << 20

    def named(*before: Callable[[object], None]) -> str | None:
        endings.begun("it", number, "inbound")
        for tell in before:
            tell("inbound")
        name = endings.unadmitted_kind("it", 0.0)
        endings.forget("it")
        assert not endings._unverified
        return name

    assert named() == STRANGER
    assert named(endings.asked) is None, "it may have shaken hands"
    assert named(endings.caught_up, endings.asked) == (STRANGER if there else None)
    assert named(endings.asked, endings.caught_up) == (STRANGER if there else None)
    assert named() == STRANGER


async def test_one_that_has_its_number_and_is_ended_by_its_peer_meanwhile_says_nothing(
    pair: Pair,
) -> None:
    """Found: a stranger who was turned away, and an introduction on the next connection, which took its number and was
    over a moment later: that one was said to have broken the protocol."""
    ours, peer = pair
    endings = Endings(60_000)
    known(endings, ours)
    peer.send(b"an introduction")
    kept = endings.ended("it")
    assert kept is not None, "a stranger of this number has ended"
    number = ours.fileno()
    peer.close()
    ours.settimeout(10)
    while ours.recv(100):
        pass
    ours.close()
    assert await hung_up_peer(kept, number) is None


async def test_a_number_that_was_given_out_again_says_nothing(pair: Pair) -> None:
    ours, _ = pair
    endings = Endings(60_000)
    known(endings, ours)
    kept = endings.ended("it")
    assert kept is not None
    assert await hung_up_peer(kept, ours.fileno()) is None, "this connection has not ended"
    event = os.eventfd(0)
    endings.begun("it", event)
    os.close(event)
    endings.caught_up()
    assert endings.ended("it") is None, "it is no socket"
    event = os.eventfd(0)
    endings.begun("it", event)
    os.close(event)
    endings.caught_up()
    assert not endings.was_plain("it", 1.0)
    endings.begun("it", 1 << 20)
    endings.caught_up()
    assert endings.ended("it") is None


def test_what_was_looked_at_too_late_is_not_believed(pair: Pair) -> None:
    """It may be the next connection that was given this number, unless nothing was left of what was told."""
    ours, peer = pair
    peer.sendall(GREETING)
    ours.recv(1, socket.MSG_PEEK)
    endings = Endings(60_000)
    for source, sure in (("another way", False), ("it", True)):
        endings.begun("it", ours.fileno(), "it")
        endings.caught_up(source)
        assert endings.handshake_incomplete("it", CLIENTS_BYTES) is sure
        assert endings._sent_nothing("it") is not sure
        kept = endings.ended("it")
        assert (kept is not None) is sure
        if kept is not None:
            kept.close()
    endings.begun("it", ours.fileno(), "it")
    assert not endings.was_plain("it", 0.0)
    assert not endings._kept
    assert not endings._unverified


@pytest.mark.parametrize(("allowed", "most"), [(400, 100), (resource.RLIM_INFINITY, 150)])
def test_descriptors_have_a_limit(
    allowed: int, most: int, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = pair
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    endings = Endings(60_000)
    for key in range(150):
        endings.begun(key, ours.fileno())
    endings.begun(100, ours.fileno())  # Again: of the last connection of that name.
    assert len(os.listdir("/proc/self/fd")) == before + most
    endings.forget(100)
    endings.close()
    assert len(os.listdir("/proc/self/fd")) == before, "closed, and forgotten ones as well"


@pytest.mark.parametrize("dialled", [False, True])
async def test_a_node_that_sends_too_much_on_its_link_is_told_of(
    dialled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever of the two has dialled, it loses its link: resumed, it would send the same again."""
    async with node(echo_service()) as db, node("shop", db) as shop, node("web", db) as web:
        await linked(db, shop, web)
        await linked(shop, web)
        ours, peers = (shop, db) if (shop.id > db.id) is dialled else (db, shop)
        links = ours._core.peering.links
        lost, others = links[peers.id], {*links} - {peers.id}
        lane = peers._core.peering.links[ours.id].data
        await until(lambda: lane.conn is not None and lost.data.conn is not None)
        assert isinstance(lane.conn, int) is not dialled
        peers._driver._transport.send(lane.conn, bytes(OVERSIZE_FACTOR * GREETING_BYTES_MAX + 1))
        await until(lambda: links.get(peers.id) is not lost)
        assert not lost.up
        assert counted(ours, f"violation by a node of {lost.cluster}") == 1
        assert [TOO_LARGE in line for line in warnings(caplog)] == [True]
        assert all(links[one].up for one in others)
        await until(lambda: peers.id in links)
        assert await web.request("databases", b"x") == b"x"
        assert await shop.request("databases", b"x") == b"x", "a bug may pass"


async def test_ordinary_ends_of_connections_say_nothing() -> None:
    """Who leaves, who is gone without a word, who has no key, and a path that is reset."""
    port = free_ports(1)
    async with trio.open_nursery() as nursery:
        async with node(echo_service()) as db:
            uri, server = server_endpoint(db, DOOR)
            proxy = Proxy((HOST, int(uri.rpartition(":")[2])))
            await nursery.start(proxy.serve, (HOST, port))
            through = f"tcp://{HOST}:{port}"
            async with node("shop", db) as shop:
                await linked(shop, db)
            for keys in (server, None):
                for where in (uri, through):
                    with Stranger(where, server if keys else None, keys) as stranger:
                        stranger.socket.send(b"\xae")
                        await until(lambda: kept(db) > 0)
                        proxy.reset()
            await until(lambda: kept(db) == 0)
            assert counted(db, TOO_LARGE) == 0
        nursery.cancel_scope.cancel()


async def test_a_loop_that_is_late_takes_no_connection_for_the_one_before() -> None:
    """Found: of a probe that had ended meanwhile, the next connection with its number told what it was. It counted as a
    stranger, and one that was hung up on then was accused twice."""
    async with node(echo_service()) as db:
        address = (HOST, int(db.endpoints[0].rpartition(":")[2]))
        before = kept(db)
        with socket.create_connection(address) as probe:
            probe.settimeout(PATIENCE_S)
            probe.shutdown(socket.SHUT_WR)
            while probe.recv(GREETING_BYTES):
                pass  # Until libzmq has closed it: its number is free.
        with socket.create_connection(address) as one:
            one.settimeout(PATIENCE_S)
            assert one.recv(1), "libzmq greets whoever comes"
            one.sendall(SIGNATURE)
            await until(lambda: kept(db) > before)
            assert counted(db, BROKEN_OFF) == counted(db, STRANGER) == 0


class Dialling(InMemory):
    """What is told of a dial, the second one to its address."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(NetworkKeyring([SECRET_BYTES]))
        self.ended: list[bool] = []
        self.heard: list[bytes] = []
        self.transport._nursery = nursery
        self.transport._inbound = self.router("inproc://inbound")
        socket = self.router(DIALS)
        self.transport._outbound = {CONTROL: socket}
        self.transport._dials.add(Dialled(CONN, socket, b"second", WHERE))
        self.transport._dials.add(Dialled(ANOTHER, socket, b"another", DIALS))
        self._handle = partial(self.transport._on_event, socket)

    async def told(self, kind: int, value: int) -> None:
        self._handle([MONITOR_EVENT.pack(kind, value), WHERE.encode()])
        await trio.testing.wait_all_tasks_blocked()

    def lost(self, conn: Conn, *, denied: bool = False) -> None:
        assert conn == CONN
        self.ended.append(denied)

    def received(self, conn: Conn, _user: str | None, data: bytes | memoryview) -> None:
        assert conn == ANOTHER
        self.heard.append(bytes(data))

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("begun", [False, True])
async def test_an_end_of_the_dial_before_to_an_address_is_none_of_the_next(begun: bool) -> None:
    """Found: one that was hung up on, but had something to send yet, ended after the next had been dialled. That counted
    as lost, whether its peer took our key as well, and its node as one that had sent too much."""
    async with trio.open_nursery() as nursery:
        with connected() as (_, second), Dialling(nursery) as one, second:
            if begun:
                await one.told(CONNECTED, second.fileno())
            await one.told(FAILED_NO_DETAIL, errno.EPIPE)
            await one.told(DISCONNECTED, 1 << 20)
            assert one.ended == [], "the first one did"
            if not begun:
                await one.told(CONNECTED, second.fileno())
            await one.told(DISCONNECTED, second.fileno())
            assert one.ended == [False]


async def test_a_dial_is_lost_when_libzmq_has_let_go_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: it tells of an end first, and ends all that it has dialled there a moment later. A dial in between ended with
    that, while its peer lived, which was said to have sent too much."""
    looks: list[bool] = []
    async with trio.open_nursery() as nursery:
        with connected() as (_, second), Dialling(nursery) as one, second:

            def is_released(_: Dialled) -> bool:
                one.transport.hang_up(CONN)  # Whoever wants to dial again may have.
                looks.append(one.transport._dials.by_conn(CONN) is not None and not one.ended)
                return len(looks) == 3

            monkeypatch.setattr(Dialled, "is_released", is_released)
            await one.told(CONNECTED, second.fileno())
            await one.told(DISCONNECTED, second.fileno())
            await until(lambda: one.ended == [False])
            assert looks == [True] * 3
            assert one.transport._dials.by_conn(CONN) is None


async def test_what_has_come_of_another_is_taken_in_when_a_dial_ends() -> None:
    """To ask libzmq whether it has let go uses up the word that something has come."""
    async with trio.open_nursery() as nursery:
        with connected() as (_, second), Dialling(nursery) as one, second:
            await one.told(CONNECTED, second.fileno())
            one.send(DIALS, b"another", 1, b"a frame")
            await one.told(DISCONNECTED, second.fileno())
            assert one.ended == [False]
            assert one.heard == [b"a frame"]


async def test_libzmq_lets_go_of_a_dial_whose_end_it_has_told_of() -> None:
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        dialler = max(db, shop, key=lambda one: one.id)
        transport: Any = dialler._driver._transport
        dials = list(transport._dials._by_conn.values())
        assert [one.is_released() for one in dials] == [False] * 2, "of a lane each"
        for one in dials:
            one.socket.raw.disconnect(one.endpoint)
        await until(lambda: all(one.is_released() for one in dials))


def backlogs(port: int) -> Iterator[int]:
    """Of the sockets of this process that listen there: how many may wait to be taken."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.fromfd(int(name), socket.AF_INET, socket.SOCK_STREAM) as one:
            listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens and one.getsockname()[1] == port:
                told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LIMIT_AT + 4)
                yield from struct.unpack_from("I", told, LIMIT_AT)


async def test_the_kernel_holds_all_who_dial_at_once() -> None:
    """Found: of two thousand some found no room, and asked again after 1, 2, 4 and 8 s."""
    async with node(echo_service()) as db:
        for uri in db.endpoints:
            assert list(backlogs(int(uri.rpartition(":")[2]))) == [min(BACKLOG, SOMAXCONN)]


async def test_connections_that_flood_a_blocked_loop_stop_no_other() -> None:
    """Found: libzmq waited for whoever hears of them, in the thread that serves all connections."""
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        port = int(db.endpoints[0].rpartition(":")[2])
        for _ in range(MONITOR_EVENTS_MAX):
            socket.create_connection((HOST, port)).close()
        with socket.create_connection((HOST, port)) as one:
            one.settimeout(PATIENCE_S)
            assert one.recv(1), "libzmq greets whoever comes"
        assert await shop.request("databases", b"still there") == b"still there"
