"""Every limit a user can meet raises an error that carries its number, and nothing is sent."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
import trio

import mesh
from mesh import zmq_transport
from mesh.config import AT_LEAST, MeshConfig
from mesh.protocol.dialling import greeting
from mesh.protocol.frame import DATA, GREETING_BYTES_MAX, Kind, pack_frame, pack_record
from mesh.protocol.hello import (
    ANNOUNCEMENTS_MAX,
    IDEMPOTENT_MAX,
    Hello,
    Limits,
    encode_announcements,
)
from mesh.protocol.request import REPLY_PREFIX, pack_head
from security.announcement import SIZE_BYTES_MAX
from tests.integration.test_security import warnings
from tests.nodes import linked, node
from tests.waiting import until

CURVE_EXTRA_BYTES = 64
"""More than its command's name, nonce, flags and tag."""


def archive() -> mesh.Service:
    service = mesh.Service("archive")

    @service.request
    async def hang(request: mesh.Request) -> bytes:
        await trio.sleep_forever()
        return b""

    @service.request("big")
    async def big(request: mesh.Request) -> bytes:
        return bytes(20_000)

    @service.tunnel
    async def keep(tunnel: mesh.Tunnel) -> None:
        await trio.sleep_forever()

    return service


async def test_payload_and_headers() -> None:
    async with node("shop", payload_bytes_max=10_000, headers_bytes_max=100) as shop:
        for send in (
            shop.request("archive", bytes(10_001)), shop.broadcast("archive", bytes(10_001)),
            shop.publish("t", bytes(10_001)), shop.publish_many("t", [b"", bytes(10_001)]),
        ):  # fmt: skip
            with pytest.raises(mesh.TooLarge) as caught:
                await send
            assert (caught.value.size_bytes, caught.value.limit_bytes) == (10_001, 10_000)
            assert str(caught.value).endswith("bytes (payload_bytes_max): a tunnel carries more")
        with pytest.raises(mesh.TooLarge):
            shop.publish_nowait("t", bytes(10_001))
        with pytest.raises(mesh.TooLarge) as caught:
            await shop.publish("t", b"", headers={"a": "x" * 100})
        assert caught.value.limit_bytes == 100
        assert str(caught.value).endswith("limit of 100 bytes (headers_bytes_max)")
        with pytest.raises(mesh.TooLarge) as caught:
            await shop.publish_many("t", [b""], headers=[bytes(101)])
        assert (caught.value.size_bytes, caught.value.limit_bytes) == (101, 100)
        assert str(caught.value).endswith("limit of 100 bytes (headers_bytes_max)")
        assert shop.statistics().publishing.published == 0


async def test_what_is_no_bytes_is_a_type_error_and_harms_nobody() -> None:
    async with node("shop") as shop, shop.subscribe("t") as subscription:
        for wrong in ("text", bytearray(b"x"), None, 7):
            with pytest.raises(TypeError):
                await shop.publish("t", wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                await shop.request("archive", wrong)  # type: ignore[arg-type]
        await shop.publish("t", b"right")
        assert (await anext(subscription)).payload == b"right"


@pytest.mark.parametrize("wrong", [None, 5, b"why", ValueError("why")])
async def test_a_reason_that_is_no_text_is_a_type_error_and_the_tunnel_goes_on(wrong: Any) -> None:
    """Found: the parts that waited had been dropped; the reader got those behind them, and a clean end."""
    service, read = mesh.Service("archive"), list[bytes]()

    @service.tunnel
    async def keep(tunnel: mesh.Tunnel) -> None:
        read.extend([part async for part in tunnel])
        await tunnel.send(b"kept")

    async with node(service) as member, node("shop", member) as shop:
        await linked(shop, member)
        async with shop.open_tunnel("archive") as tunnel:
            await tunnel.send(b"before")
            with pytest.raises(TypeError, match="reason: want text, got"):
                tunnel.abort(wrong)
            await tunnel.send(b"behind")
            await tunnel.send_eof()
            assert await anext(tunnel) == b"kept"
        with pytest.raises(TypeError, match="reason: want text, got"):
            tunnel.abort(wrong)
    assert read == [b"before", b"behind"]


async def test_requests_max_and_a_reply_that_is_too_large() -> None:
    async with (
        node(archive(), payload_bytes_max=10_000) as member,
        node("shop", member, requests_max=3) as shop,
        trio.open_nursery() as nursery,
    ):
        await linked(shop, member)
        with pytest.raises(mesh.ServiceError, match="20000 bytes exceeds the limit of 10000"):
            await shop.request("archive/big", b"")
        for _ in range(3):
            nursery.start_soon(shop.request, "archive", b"")
        await until(lambda: shop.statistics().requests.outstanding == 3)
        with pytest.raises(mesh.LimitReached) as caught:
            await shop.request("archive", b"")
        assert (caught.value.setting, caught.value.limit) == ("requests_max", 3)
        nursery.cancel_scope.cancel()


async def test_subscriptions_tunnels_and_topics() -> None:
    settings = {"subscriptions_max": 2, "tunnels_max": 2, "topics_max": 2}
    async with (
        node(archive(), drain_s=0.0, tunnels_max=2) as member,
        node("shop", member, **settings) as shop,
    ):
        await linked(shop, member)
        async with shop.subscribe("a"), shop.subscribe("b"):
            with pytest.raises(mesh.LimitReached, match="subscriptions_max is 2"):
                async with shop.subscribe("c"):
                    pass
        async with shop.open_tunnel("archive"), shop.open_tunnel("archive"):
            with pytest.raises(mesh.LimitReached, match="tunnels_max is 2"):
                async with shop.open_tunnel("archive"):
                    pass
            async with node("web", member) as web:
                await linked(web, member)
                with pytest.raises(mesh.Overloaded, match="tunnels_max is 2") as caught:
                    async with web.open_tunnel("archive"):
                        pass
                assert (caught.value.tried, caught.value.limit) == (1, 2)
        for number in range(10):  # Idle topics give way to new ones.
            await shop.publish(f"t.{number}", b"")
        assert shop.statistics().publishing.topics == 2


async def test_a_tunnel_goes_to_the_next_member_while_one_is_full() -> None:
    async with (
        node(archive(), tunnels_max=1, drain_s=0.0) as one,
        node(archive(), one, tunnels_max=1, drain_s=0.0) as other,
        node("shop", one, other) as shop,
    ):
        await linked(shop, one, other)
        async with shop.open_tunnel("archive"), shop.open_tunnel("archive"):
            tunnels = [member._core.patterns.tunnels for member in (one, other)]
            assert [len(of) for of in tunnels] == [1, 1]
            with pytest.raises(mesh.Overloaded, match="tunnels_max is 1") as caught:
                async with shop.open_tunnel("archive"):
                    pass
            assert caught.value.tried == 2


async def test_opening_a_tunnel_is_entered_once() -> None:
    async with node(archive()) as member, node("shop", member) as shop:
        await linked(shop, member)
        opening = shop.open_tunnel("archive")
        async with opening:
            with pytest.raises(RuntimeError, match=r"^entered twice: .*node\.open_tunnel"):
                await opening.__aenter__()


async def test_an_address_in_use_is_one_error_that_says_what_else_to_listen_on() -> None:
    async with node("a") as one:
        with pytest.raises(mesh.CannotBind, match=r"already in use; use port 0") as caught:
            async with node("b", listen=one.endpoints[0]):
                pass
        assert caught.value.__suppress_context__, "libzmq's own words are in it"


async def test_peers_max() -> None:
    async with node("a", peers_max=1) as hub, node("b", hub) as one:
        await linked(hub, one)
        async with node("c", hub, settle_s=0.3) as other:
            with pytest.raises(mesh.NoMembers):
                await other.request("a", b"", timeout=1)
            await until(lambda: any("peers_max" in key for key in hub.statistics().refused))
        assert len(hub.statistics().links) == 1


async def test_a_process_without_descriptors_says_so_once_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: nobody could connect, its peers saw silence, and nothing told why."""
    calls, short = [0], [False]
    duplicate = os.dup

    def dup(descriptor: int) -> int:
        calls[0] += 1
        if short[0]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return duplicate(descriptor)

    async def some_checks(*, are_short: bool) -> None:
        calls[0], short[0] = 0, are_short
        await until(lambda: calls[0] > 2)

    monkeypatch.setattr(zmq_transport, "DESCRIPTORS_CHECK_S", 0.001)
    monkeypatch.setattr(os, "dup", dup)
    said = "cannot accept connections: Too many open files (`ulimit -n`)"
    async with node("shop"):
        for times in (1, 2):
            await some_checks(are_short=False)
            await some_checks(are_short=True)
            assert warnings(caplog) == [said] * times
        short[0] = False


async def test_small_frames_are_no_limit_to_greetings() -> None:
    """Found: with frames of 4 KiB a node never linked with one of many endpoints, and said nothing."""
    service = mesh.Service("big")

    async def answer(request: mesh.Request) -> bytes:
        return b""

    for number in range(IDEMPOTENT_MAX):
        service.request(f"{number:063}", idempotent=True)(answer)
    small: dict[str, Any] = {"frame_bytes_max": 4096, "chunk_bytes": 1024}
    async with node(service) as big, node("small", big, **small) as one:
        await linked(one, big)


def test_the_longest_greetings_are_taken() -> None:
    limits = Limits(window=1 << 40, frame_max=1 << 40, record_max=1 << 40, reassembly_max=1 << 40)
    hello = Hello(
        lane=1, node=bytes(16), target=bytes(16), link_id=bytes(16), resume=True, expects=1 << 63,
        limits=limits, announcement=bytes(SIZE_BYTES_MAX),
        idempotent=(f"{'c' * 63}/{'e' * 63}",) * IDEMPOTENT_MAX,
    ).encode()  # fmt: skip
    introduced = encode_announcements([bytes(SIZE_BYTES_MAX)] * ANNOUNCEMENTS_MAX)
    for kind, body in ((Kind.HELLO, hello), (Kind.INTRODUCED, introduced)):
        encrypted = len(greeting(DATA, kind, body)) + CURVE_EXTRA_BYTES
        assert encrypted <= GREETING_BYTES_MAX


def test_small_payloads_are_no_limit_to_gossip() -> None:
    """Found: what a network of 13 says of itself in pieces of 1 KiB cost the link, again and again."""
    told = encode_announcements([bytes(SIZE_BYTES_MAX)] * ANNOUNCEMENTS_MAX)
    assert len(told) <= AT_LEAST["reassembly_bytes_max"]
    with pytest.raises(mesh.ConfigError, match="reassembly_bytes_max"):
        MeshConfig(clusters=("small",), payload_bytes_max=1000, reassembly_bytes_max=len(told))


def record(kind: Kind, ident: int, body: bytes, *, sequence: int = 1) -> bytes:
    """A frame with just that: the first one on its lane."""
    return pack_frame(DATA, sequence, 0, 0, 1, [pack_record(kind, ident, body)])


PAYLOAD_BYTES_MAX = 20_000
TOO_MUCH = bytes(PAYLOAD_BYTES_MAX + 1)
BAD_FRAMES = {
    "no frame": b"garbage",
    "a gap": pack_frame(DATA, 99, 0, 0, 0, []),
    "acknowledges the future": pack_frame(DATA, 0, 0, 10**9, 0, []),
    "bytes after the last record": pack_frame(
        DATA, 0, 0, 0, 1, [pack_record(Kind.TUNNEL_DATA, 9, b"?"), b"x"]
    ),
    "a tunnel opened with nil": record(Kind.TUNNEL_OPEN, 2, b"\xc0"),
    "negative credit": record(Kind.CREDIT, 1, b"\x91\xff"),
    "an empty request": record(Kind.REQUEST, 1, b""),
    "an empty batch": record(Kind.BATCH, 1, b""),
    "an unknown policy": record(Kind.SUBSCRIBE, 1, b"\x93\xa1*\x09\x01"),
    "ends no subscription": record(Kind.UNSUBSCRIBE, 77, b""),
    "a second hello": record(Kind.HELLO, 1, b""),
    "what no window bounds": record(Kind.CANCEL, 1, b"", sequence=0),
    "too large a request": record(Kind.REQUEST, 1, pack_head("archive", "") + TOO_MUCH),
    "too large a broadcast": record(Kind.BROADCAST, 1, pack_head("archive", "") + TOO_MUCH),
    "too large a reply": record(Kind.REPLY, 1, bytes(REPLY_PREFIX.size) + TOO_MUCH),
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES)
async def test_a_member_that_breaks_the_protocol_on_its_link_loses_it(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """One line, one link; and the link comes back, for a bug may pass."""
    async with (
        node(archive(), payload_bytes_max=PAYLOAD_BYTES_MAX) as victim,
        node("shop", victim) as liar, node("web", victim) as web,
    ):  # fmt: skip
        await linked(victim, liar, web)
        link = liar._core.peering.links[victim.id]
        before = link.link_id
        assert link.data.conn is not None
        liar._core.out.append((link.data.conn, frame))
        liar._driver.flush()
        await until(lambda: any("violation" in key for key in victim.statistics().refused))
        lines = [
            one.getMessage() for one in caplog.records if "was disconnected" in one.getMessage()
        ]
        assert len(lines) == 1

        def linked_anew() -> bool:
            link = victim._core.peering.links.get(liar.id)
            return link is not None and link.link_id != before

        await until(linked_anew)
        assert web.id in {one.node for one in victim.members("web")}


async def test_handlers_of_tunnels_that_broke_count_as_long_as_they_run() -> None:
    """Found: who opened and broke off, again and again, had a handler more each time, whatever the limit."""
    service = mesh.Service("archive")
    running, let_go = 0, trio.Event()

    @service.tunnel
    async def busy_elsewhere(tunnel: mesh.Tunnel) -> None:
        nonlocal running
        running += 1
        await let_go.wait()
        running -= 1

    async with node(service, tunnels_max=3) as member, node("shop", member) as shop:
        await linked(shop, member)

        async def break_off() -> None:
            async with shop.open_tunnel("archive") as tunnel:
                tunnel.abort("for the test")

        for _ in range(3):
            await break_off()
        await until(lambda: not member.statistics().tunnels)
        with pytest.raises(mesh.Overloaded, match="tunnels_max is 3"):
            await break_off()
        assert running == 3
        let_go.set()
        await until(lambda: not running)
        await break_off()
