"""Who is refused, on real sockets: each is logged once, counted, and slows nobody down."""

from __future__ import annotations

import ctypes
import logging
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import zmq

import mesh
from mesh.protocol.frame import (
    CONTROL,
    DATA,
    FRAME,
    GREETING_BYTES_MAX,
    Kind,
    pack_frame,
    pack_record,
)
from mesh.protocol.hello import UNTRUSTED, Hello, encode_announcements
from mesh.protocol.instructions import Dial
from mesh.zmq_transport import OVERSIZE_FACTOR, ZmqTransport
from security.announcement import Announcement, Endpoint
from security.files import drop_old_cluster, format_network_secret, new_cluster, rotate_cluster
from security.keyring import FileKeyring, NetworkKeyring
from security.keys import DOOR, ClusterKeys, derive, generate
from tests.loopback import HOST
from tests.nodes import free_ports, linked, node, subscribed
from tests.waiting import PATIENCE_S, until

LOOK_S = 0.5
"""How long to wait for an answer that may never come, before asking again."""
SECRET_BYTES = b"tests of the mesh, 32 bytes long"
OTHER_SECRET = format_network_secret(b"another network's secret, 32 byt")


def echo_service(cluster: str = "databases") -> mesh.Service:
    service = mesh.Service(cluster)

    @service.request
    async def echo(request: mesh.Request) -> bytes:
        return request.payload

    return service


def counted(one: mesh.Node, word: str) -> int:
    return sum(count for reason, count in one.statistics().refused.items() if word in reason)


class Stranger:
    """A DEALER with whatever keys it likes."""

    def __init__(
        self, endpoint: str, server: ClusterKeys | None, client: ClusterKeys | None,
        kind: int = zmq.DEALER, *, routing_id: bytes = b"",
    ) -> None:  # fmt: skip
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger = 0
        self.socket.sndhwm = 0
        if routing_id:
            self.socket.setsockopt(zmq.ROUTING_ID, routing_id)
        if server is not None and client is not None:
            assert client.secret is not None
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, server.public)
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, client.public)
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, client.secret)
        self.socket.connect(endpoint)

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(0)
        self.context.term()

    def heard(self) -> bytes | None:
        """What has come back; None for silence."""
        with suppress(zmq.Again):
            return self.socket.recv(zmq.NOBLOCK)
        return None


def server_endpoint(one: mesh.Node, cluster: str) -> tuple[str, ClusterKeys]:
    keyring = NetworkKeyring([SECRET_BYTES])
    keyring.own(cluster)
    for endpoint in one._driver.endpoints:
        keys = keyring.by_id(endpoint.key_id)
        if keys is not None and keys.cluster == cluster:
            return endpoint.uri, keys
    raise AssertionError(cluster)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def test_a_stranger_without_a_key_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        uri, server = server_endpoint(db, "databases")
        for number in range(3):
            with Stranger(uri, server, generate("evil", bytes([number]) * 64)) as stranger:
                stranger.socket.send(b"let me in")
                await until(lambda: counted(db, "a connection") > number)
                assert stranger.heard() is None
        assert len([line for line in warnings(caplog) if "refused" in line]) == 1
        assert await shop.request("databases", b"x") == b"x"


async def test_a_plain_zmq_socket_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        uri, _ = server_endpoint(db, "databases")

        def refused() -> tuple[int, int]:
            return counted(db, "does not speak our protocol"), counted(db, "broken off")

        # Which of the two sees first that they do not match is a matter of chance. Of one that has gone
        # before we have heard that it came, nobody knows what it was: it is counted, and not told of.
        with trio.fail_after(PATIENCE_S):
            while refused()[0] < 5:
                before = sum(refused())
                with Stranger(uri, None, None) as stranger:
                    stranger.socket.send(b"hello")
                    await until(lambda before=before: sum(refused()) > before)
                    assert stranger.heard() is None
        assert ["does not speak" in line for line in warnings(caplog)] == [True]
        assert len(db.statistics().links) == 1
        assert await shop.request("databases", b"x") == b"x"


async def test_a_node_of_another_network_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with node(echo_service()) as db, node("shop", db, network_secret=OTHER_SECRET) as alien:
        with pytest.raises(mesh.NoMembers):
            await alien.request("databases", b"x", timeout=1)
        assert not db.statistics().links
        assert not db.members("shop")
        await until(lambda: counted(db, "a connection") >= 2)
        assert len([line for line in warnings(caplog) if "refused a connection" in line]) == 1


async def test_a_cluster_whose_key_is_not_trusted_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Per-cluster files: `web` holds the public key of `databases`, which does not trust `web`."""
    databases, web = new_cluster(tmp_path, "databases"), new_cluster(tmp_path, "web")
    trusting = FileKeyring([databases, web.public_half()])
    distrusting = FileKeyring([databases])
    caller = FileKeyring([web, databases.public_half()])
    async with (
        node(echo_service(), keyring=distrusting) as db,
        node("web", db, keyring=caller) as one,
    ):
        with pytest.raises(mesh.NoMembers):
            await one.request("databases", b"x", timeout=1)
        await until(lambda: counted(db, "a connection") >= 2)
        assert len([line for line in warnings(caplog) if "refused a connection from" in line]) == 1
    async with node(echo_service(), keyring=trusting) as db, node("web", db, keyring=caller) as one:
        await linked(one, db)
        assert await one.request("databases", b"x") == b"x"


async def test_a_dial_refused_before_its_first_word_is_followed_by_the_next_key_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Per-cluster files: the seed is tried under `web` first, whose key it has not."""
    databases, web = new_cluster(tmp_path, "databases"), new_cluster(tmp_path, "web")
    dial = ZmqTransport.dial

    def slowly(transport: ZmqTransport, wanted: Dial) -> None:
        dial(transport, wanted)
        time.sleep(0.05)  # The loop is busy while libzmq's thread shakes hands in vain.

    monkeypatch.setattr(ZmqTransport, "dial", slowly)
    caller = FileKeyring([web, databases.public_half()])
    member = FileKeyring([databases, web.public_half()])
    async with node(echo_service(), keyring=member) as db, node("web", db, keyring=caller) as one:
        with trio.fail_after(4):
            await linked(one, db)


async def test_who_takes_us_for_another_cluster_may_speak_our_protocol(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found: of nodes of ours, which with key files try the keys they trust in turn, a seed said that they did not."""
    async with node(echo_service()) as db:
        uri, _ = server_endpoint(db, "databases")
        wrong, own = derive(SECRET_BYTES, "web"), derive(SECRET_BYTES, "shop")

        def refused() -> tuple[int, int]:
            return counted(db, "or not under a key of ours"), counted(db, "broken off")

        with trio.fail_after(PATIENCE_S):  # Which of the two is seen is a matter of chance.
            while not refused()[0]:
                before = sum(refused())
                with Stranger(uri, wrong, own) as stranger:
                    stranger.socket.send(b"hello")
                    await until(lambda before=before: sum(refused()) > before)
        assert ["or not under a key of ours" in line for line in warnings(caplog)] == [True]


async def test_forged_altered_replayed_and_expired_announcements(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each kind is counted whenever it comes, and said once."""
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        now_us = time.time_ns() // 1000
        ring = NetworkKeyring([SECRET_BYTES])

        def announcement(keys: ClusterKeys, **changes: object) -> bytes:
            fields: dict[str, object] = {
                "node": b"n" * 16, "incarnation": now_us, "issued_us": now_us, "lifetime_s": 600,
                "host": b"h" * 8, "clusters": (keys.cluster,),
                "endpoints": (Endpoint("tcp://127.0.0.1:1", keys.key_id),), **changes,
            }  # fmt: skip
            return Announcement(**fields).sign([keys])  # type: ignore[arg-type]

        good = announcement(ring.own("web")[0])
        altered = bytearray(good)
        altered[10] ^= 1
        shops = db._core.roster.peers[shop.id].announcement
        replayed = replace(shops, issued_us=shops.issued_us - 1).sign(ring.own("shop"))
        expired = announcement(ring.own("web")[0], issued_us=now_us - 10**10)
        forged = announcement(derive(b"x" * 32, "web"))
        before = {one.node for one in db.members("web")}
        # A goodbye for the shop, signed by another cluster's key, must not remove it.
        goodbye = announcement(ring.own("web")[0], node=shop.id, left=True)
        for raw in (bytes(altered), expired, forged, replayed, b"garbage", goodbye) * 3:
            db._core.found("", raw, trio.current_time())
        assert {one.node for one in db.members("web")} == before
        assert shop.id in {one.node for one in db.members("shop")}
        refused = db.statistics().refused
        reasons = ("forged", "expired", "untrusted", "replayed", "malformed", "of another's node")
        assert refused == {f"announcement {reason}": 3 for reason in reasons}
        assert len([line for line in warnings(caplog) if "an announcement" in line]) == len(reasons)
        assert await shop.request("databases", b"x") == b"x"


async def test_found_who_had_the_key_of_one_cluster_answered_for_another_one(
    tmp_path: Path,
) -> None:
    """Key files. A node is in `web` and `databases`; whoever has the key of `web` only told another one that it
    was that node, by its own announcement, and was asked what was for `databases`."""
    web, databases, shop = (new_cluster(tmp_path, one) for one in ("web", "databases", "shop"))
    both = FileKeyring([web, databases, shop.public_half()])
    caller = FileKeyring([shop, web.public_half(), databases.public_half()])
    async with (
        node([echo_service("web"), echo_service()], keyring=both) as it,
        node("shop", it, keyring=caller) as one,
    ):
        await linked(one, it)
        assert await one.request("web", b"x") == await one.request("databases", b"x") == b"x"
        uri = one.endpoints[0]
        hello = Hello(
            lane=CONTROL, node=it.id, target=one.id, link_id=b"k" * 16, resume=False, expects=1,
            limits=one._core.peering._settings.limits.wire_limits(),
            announcement=it._core.peering.announcement,
        )  # fmt: skip
        with Stranger(uri, shop.public_half(), web) as insider:
            insider.socket.send(greeting(Kind.HELLO, hello.encode()))
            answers: list[bytes] = []

            def answered() -> bool:
                answer = insider.heard()
                if answer is not None:
                    answers.append(answer)
                return bool(answers)

            await until(answered)
        assert answers[0].endswith(UNTRUSTED.encode())
        assert [link.peer for link in one.statistics().links] == [it.id]
        assert await one.request("databases", b"x") == b"x"


async def test_found_who_asked_for_a_routing_id_passed_for_the_cluster_that_had_it(
    tmp_path: Path,
) -> None:
    """Key files. The id was that of a connection that had ended, and its cluster was still remembered."""
    shop, crm, databases = (new_cluster(tmp_path, one) for one in ("shop", "crm", "databases"))
    ring = FileKeyring([databases, shop.public_half(), crm.public_half()])
    async with node(echo_service(), keyring=ring) as db:
        said = Announcement(
            node=b"n" * 16, incarnation=1, issued_us=time.time_ns() // 1000, lifetime_s=600,
            host=bytes(8), clusters=("shop",), endpoints=(),
        ).sign([shop])  # fmt: skip
        uri, server = db.endpoints[0], databases.public_half()
        with Stranger(uri, server, shop, routing_id=b"\0same") as member:
            member.socket.send(greeting(Kind.INTRODUCE, encode_announcements([said])))
            await until(member.heard)
        hello = Hello(
            lane=CONTROL, node=b"n" * 16, target=db.id, link_id=b"k" * 16, resume=False, expects=1,
            limits=db._core.peering._settings.limits.wire_limits(), announcement=said,
        )  # fmt: skip
        while not counted(
            db, "routing id"
        ):  # As long as the first one has not ended, nothing is heard.
            with Stranger(uri, server, crm, routing_id=b"\0same") as other:
                other.socket.send(greeting(Kind.HELLO, hello.encode()))
                with trio.move_on_after(LOOK_S):
                    await until(lambda: counted(db, "routing id"))
                answer = other.heard()
            assert answer is None or UNTRUSTED.encode() in answer
        assert not db._core.peering.links


@pytest.mark.parametrize("routing_id", [b"x", b"xsame", b"\0same!", b"\0" * 255])
async def test_found_routing_ids_that_others_chose_were_kept(routing_id: bytes) -> None:
    """They may have a megabyte, and 10,000 of them were remembered when their connections had ended."""
    async with node(echo_service()) as db:
        uri, server = server_endpoint(db, DOOR)
        with Stranger(uri, server, server, routing_id=routing_id) as insider:
            insider.socket.send(b"garbage")
            await until(lambda: counted(db, "asked for a routing id"))
        transport = db._driver._transport
        assert isinstance(transport, ZmqTransport)
        accepted = transport._accepted
        assert not accepted.cluster_of
        assert not accepted._ignored
        assert not accepted._rids_by_descriptor
        assert not counted(db, "violation")


async def test_found_every_process_counted_routing_ids_from_the_same_number() -> None:
    """Who holds a key and asks for the id that comes next ends the process: libzmq has no way to refuse it."""
    ids = set()
    for _ in range(2):
        ctypes.CDLL(None).srand(1)  # As in every process that does nothing about it.
        async with node(echo_service()) as db, node("shop", db) as shop:
            await linked(shop, db)
            transport = db._driver._transport
            assert isinstance(transport, ZmqTransport)
            ids.add(min(transport._accepted.cluster_of))
    assert len(ids) == 2


def greeting(kind: Kind, body: bytes) -> bytes:
    return pack_frame(CONTROL, 0, 0, 0, 1, [pack_record(kind, 0, body)])


GARBAGE = {
    "empty": b"",
    "one byte": b"x",
    "zeros": b"\x00" * 32,
    "another version": b"\xae\x02" + bytes(30),
    "magic all over": b"\xae" * 1000,
    "four billion records": FRAME.pack(0xAE, 1, 0, 0, 0xFFFFFFFF, 0, 0, 0),
    "hello of zeros": greeting(Kind.HELLO, b"\x9a" + b"\x00" * 9),
    "hello of four billion fields": greeting(Kind.HELLO, b"\xdd\xff\xff\xff\xff"),
    "nested 5,000 deep": greeting(Kind.INTRODUCE, b"\x91" * 5000),
    "request before hello": pack_frame(
        DATA, 7, 0, 0, 1, [pack_record(Kind.REQUEST, 1, bytes(100))]
    ),
    "acknowledges the future": pack_frame(CONTROL, 0, 1 << 60, 1 << 60, 0, []),
    "introduces 32 times junk": greeting(Kind.INTRODUCE, encode_announcements([b"junk"] * 32)),
    "one byte too large": bytes(GREETING_BYTES_MAX + 1),
    "nearly too large for libzmq": bytes(OVERSIZE_FACTOR * GREETING_BYTES_MAX - 64),
    "3 MB": bytes(3 << 20),
}


@pytest.mark.parametrize("frame", GARBAGE.values(), ids=GARBAGE)
async def test_a_peer_with_a_key_that_sends_garbage(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It loses its own connection, with one line; nobody else notices."""
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        uri, server = server_endpoint(db, DOOR)
        with Stranger(uri, server, server) as insider:
            for _ in range(20):
                insider.socket.send(frame)
            for _ in range(20):
                assert await shop.request("databases", b"x", timeout=2) == b"x"
            # More than libzmq takes comes again as often as it has hung up; all else is heard once.
            await until(lambda: counted(db, "protocol violation") > 0)
            assert (
                len(frame) > OVERSIZE_FACTOR * GREETING_BYTES_MAX or counted(db, "violation") == 1
            )
        assert ["was disconnected" in line for line in warnings(caplog)] == [True]
        assert len(db.statistics().links) == 1


@pytest.mark.parametrize("parts", [2, 3, 50])
async def test_a_message_of_several_parts_costs_its_sender_and_nobody_else(parts: int) -> None:
    """Found: the second part was read as the name of a connection, and the node went down."""
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        uri, server = server_endpoint(db, DOOR)
        with Stranger(uri, server, server) as insider:
            for _ in range(5):
                insider.socket.send_multipart([b"part"] * parts)
            await until(lambda: counted(db, "violation"))
            for _ in range(20):
                assert await shop.request("databases", b"x", timeout=2) == b"x"
        assert len(db.statistics().links) == 1


async def test_a_flood_of_hellos_is_cut_off() -> None:
    async with node(echo_service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        uri, server = server_endpoint(db, DOOR)
        with Stranger(uri, server, server) as insider:
            junk = pack_frame(CONTROL, 0, 0, 0, 1, [pack_record(Kind.HELLO, 0, b"\xc0")])
            for _ in range(5000):
                insider.socket.send(junk)
            for _ in range(20):
                assert await shop.request("databases", b"x", timeout=2) == b"x"
            # On a busy machine all requests may be quicker than the flood.
            await until(lambda: counted(db, "violation"))
        assert counted(db, "violation") == 1, "the connection is not heard after the first"


async def test_captured_bytes_contain_none_of_the_payload() -> None:
    """Everything a node sends passes a recorder, which finds no plaintext in it."""
    from bench.proxy import Proxy

    word = b"the secret recipe of the mesh"
    ports = free_ports(8)
    recorded = bytearray()

    class Recorder(Proxy):
        def saw(self, data: bytes) -> None:
            recorded.extend(data)

    async with trio.open_nursery() as nursery:
        for place in range(4):
            recorder = Recorder((HOST, ports + place))
            await nursery.start(recorder.serve, (HOST, ports + 4 + place))
        places = [
            {
                "listen": f"tcp://{HOST}:{at}-{at + 1}",
                "advertise": f"tcp://{HOST}:{at + 4}-{at + 5}",
            }
            for at in (ports, ports + 2)
        ]
        async with node(echo_service(), **places[0]) as db, node("shop", db, **places[1]) as shop:
            await linked(shop, db)
            async with db.subscribe("t") as subscription:
                await subscribed(shop, "t")
                await shop.publish("t", word * 50)
                assert (await anext(subscription)).payload == word * 50
            assert await shop.request("databases", word * 50) == word * 50
        assert len(recorded) > 4 * 50 * len(word)
        assert word not in recorded
        assert b"databases" not in recorded
        nursery.cancel_scope.cancel()


async def test_rotation_with_two_generations(tmp_path: Path) -> None:
    """Old and new keys work side by side; a member with a dropped key is refused."""
    old = generate("databases", b"o" * 64)
    new = generate("databases", b"n" * 64)
    shop_pair = generate("shop", b"s" * 64)
    both_shop = FileKeyring([shop_pair, new.public_half(), old.public_half()])
    async with (
        node(echo_service(), keyring=FileKeyring([old, shop_pair.public_half()])) as old_db,
        node(echo_service(), keyring=FileKeyring([new, old, shop_pair.public_half()])) as new_db,
        node("shop", old_db, new_db, keyring=both_shop) as shop,
    ):
        await linked(shop, old_db, new_db)
        assert {member.node async for member, _ in shop.gather("databases", b"")} == {old_db.id, new_db.id}  # fmt: skip
        only_new = FileKeyring([shop_pair, new.public_half()])
        async with node("shop", new_db, keyring=only_new) as later:
            await linked(later, new_db)
            await until(lambda: counted(later, "a connection"))  # It was told of, and came.
            assert {member.node for member in later.members("databases")} == {new_db.id}


def test_rotating_files_keeps_both_generations_until_dropped(tmp_path: Path) -> None:
    first = new_cluster(tmp_path, "databases")
    second = rotate_cluster(tmp_path, "databases")
    from security.files import read_pairs

    assert [pair.key_id for pair in read_pairs(tmp_path)] == [second.key_id, first.key_id]
    assert drop_old_cluster(tmp_path, "databases")
    assert [pair.key_id for pair in read_pairs(tmp_path)] == [second.key_id]
