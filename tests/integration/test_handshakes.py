"""What a connection costs before its first frame, CURVE and ZAP, however often it comes."""

from __future__ import annotations

import operator
import socket
from threading import Thread
from typing import Any

import pytest
import trio
import zmq

from bench.proxy import Proxy
from mesh.admission import ADDRESS, Admission
from mesh.protocol.dialling import TIMEOUT_FACTOR_MAX
from mesh.protocol.frame import CONTROL
from mesh.protocol.instructions import Dial
from mesh.zmq_transport import ZmqTransport
from security.keyring import NetworkKeyring
from security.keys import DOOR, generate
from tests.integration.test_endings import kept
from tests.integration.test_security import (
    SECRET_BYTES,
    Stranger,
    counted,
    echo_service,
    server_endpoint,
    warnings,
)
from tests.loopback import ANY_PORT, HOST
from tests.nodes import free_ports, linked, node
from tests.waiting import PATIENCE_S, until, until_in_thread

HANDSHAKES = 300
DIALS = 16
HANDSHAKE_S, CONN = 0.05, 10**9
LONGER_MS = int(2 * TIMEOUT_FACTOR_MAX * HANDSHAKE_S * 1000)
"""Than libzmq would wait for a dial if it were as patient as the core may be."""


@pytest.mark.parametrize("knows_a_key", [False, True])
async def test_a_flood_of_whole_handshakes_leaves_nothing_behind(
    knows_a_key: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is asked about once; a stranger, turned away, may begin another at once."""
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        uri, server = server_endpoint(db, DOOR)
        transport: Any = db._driver._transport
        cluster_of = Admission._cluster_of
        admitted: list[str | None] = []

        def counting(admission: Admission, key: bytes) -> str | None:
            # Not what is looked up for it: that is done twice where more has come meanwhile.
            cluster = cluster_of(admission, key)
            if admission._keyring is transport._keyring:  # Not the shop's, dialled by db meanwhile.
                admitted.append(cluster)
            return cluster

        def held() -> list[int]:
            accepted = transport._accepted
            tables = (accepted.cluster_of, accepted._rids_by_descriptor, accepted._ignored)
            return [kept(db), *map(len, tables)]

        before = held()
        monkeypatch.setattr(Admission, "_cluster_of", counting)
        client = server if knows_a_key else generate("evil", bytes(64))
        # A DEALER would take a second dial to the same address for the first.
        with trio.fail_after(PATIENCE_S), Stranger(uri, server, client, zmq.ROUTER) as flood:
            flood.socket.reconnect_ivl = 10
            for _ in range(HANDSHAKES):
                flood.socket.connect(uri)
            while len(admitted) < HANDSHAKES:
                assert await shop.request("databases", b"x") == b"x"
            assert set(admitted) == {DOOR if knows_a_key else None}
        # What linking itself held for a while may be less by now.
        await until(lambda: all(map(operator.le, held(), before)))
        assert counted(db, "a connection") == admitted.count(None)
        assert ["refused a connection" in line for line in warnings(caplog)] == [True] * (
            not knows_a_key
        )
        assert len(db.statistics().links) == 1


async def test_who_hangs_up_without_a_word_has_said_nothing_of_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found: at an address where a proxy takes connections and reaches nobody, a node was said not to take our key."""
    ports = free_ports(5)
    async with trio.open_nursery() as nursery:
        proxies = [Proxy((HOST, ports + 4)) for _ in range(2)]  # Nobody is there.
        for at, proxy in enumerate(proxies, ports + 2):
            await nursery.start(proxy.serve, (HOST, at))
        ways = {
            "advertise": f"tcp://{HOST}:{ports + 2}-{ports + 3}", "handshake_s": 0.1,
            "listen": f"tcp://{HOST}:{ports}-{ports + 1}",
        }  # fmt: skip
        async with node(echo_service(), **ways) as db:
            away = {**ways, "listen": ANY_PORT, "seeds": [f"tcp://{HOST}:{ports}"]}
            async with node("shop", **away) as shop:
                await until(lambda: sum(proxy.accepted for proxy in proxies) >= DIALS)
                assert counted(db, "denied") == counted(shop, "denied") == 0
                assert not [one for one in warnings(caplog) if "key" in one]
        nursery.cancel_scope.cancel()


async def test_a_loop_that_was_late_does_not_say_that_nobody_takes_its_key(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: the same where the loop heard of the connection when that had ended, and could not look at it any more."""
    ports, ended = free_ports(4), 0  # Of the door, of the cluster, and what db says of them.
    dial = ZmqTransport.dial

    def hang_up(server: socket.socket) -> None:
        nonlocal ended
        while ended < DIALS:
            with server.accept()[0] as one:
                one.settimeout(PATIENCE_S)
                one.shutdown(socket.SHUT_WR)
                while one.recv(100):
                    pass  # Until libzmq has closed it.
            ended += 1

    def late(transport: ZmqTransport, wanted: Dial) -> None:
        before = ended
        dial(transport, wanted)
        if wanted.endpoint.endswith(f":{ports + 3}") and ended < DIALS:
            until_in_thread(lambda: ended > before)

    monkeypatch.setattr(ZmqTransport, "dial", late)
    with socket.create_server((HOST, ports + 3)) as server:
        thread = Thread(target=hang_up, args=(server,))
        thread.start()
        at = {
            "advertise": f"tcp://{HOST}:{ports + 2}-{ports + 3}", "handshake_s": 0.1,
            "listen": f"tcp://{HOST}:{ports}-{ports + 1}",
        }  # fmt: skip
        async with (
            node(echo_service(), **at) as db,
            node("shop", **{**at, "listen": ANY_PORT}, seeds=[f"tcp://{HOST}:{ports}"]) as shop,
        ):
            await until(lambda: ended >= DIALS)
            assert counted(db, "denied") == counted(shop, "denied") == 0
            assert warnings(caplog) == []
        thread.join()


async def test_a_handshake_takes_as_long_as_the_core_waits_for_it() -> None:
    """Found: libzmq's patience with a peer whose loop is late ended with the core's, and as often before it, and that was
    taken for an answer: that it does not take our key."""
    (door,) = NetworkKeyring([SECRET_BYTES]).door()
    assert door.secret is not None
    async with node("shop", handshake_s=HANDSHAKE_S) as shop:
        transport: Any = shop._driver._transport
        with (
            zmq.Context() as context,
            context.socket(zmq.ROUTER) as zap,
            context.socket(zmq.ROUTER) as peer,
        ):
            zap.bind(ADDRESS)  # Nobody ever says whose key it is.
            zap.linger = peer.linger = 0
            peer.setsockopt(zmq.CURVE_SERVER, 1)
            peer.setsockopt(zmq.CURVE_SECRETKEY, door.secret)
            peer.bind(f"tcp://{HOST}:0")
            uri = peer.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
            transport.dial(Dial(CONN, CONTROL, uri, door, door))
            with Stranger(uri, door, door) as another, another.context.socket(zmq.PAIR) as heard:
                another.socket.disconnect(uri)
                another.socket.setsockopt(zmq.HANDSHAKE_IVL, LONGER_MS)
                another.socket.monitor("inproc://ends", zmq.EVENT_DISCONNECTED)
                heard.connect("inproc://ends")
                another.socket.connect(uri)
                await until(lambda: heard.poll(0))
            assert transport._dials.by_conn(CONN) is not None
            transport.hang_up(CONN)
