"""Large things, many at once, and members that take less than others."""

from __future__ import annotations

import pytest
import trio

import mesh
from tests.nodes import linked, node

KIB = 1 << 10


def archive() -> mesh.Service:
    service = mesh.Service("archive")

    @service.request
    async def size(request: mesh.Request) -> bytes:
        return b"%d" % len(request.payload)

    @service.request("grow")
    async def grow(request: mesh.Request) -> bytes:
        return bytes(int(request.payload))

    @service.tunnel
    async def sizes(tunnel: mesh.Tunnel) -> None:
        async for part in tunnel:
            await tunnel.send(b"%d" % len(part))

    return service


async def test_large_parts_of_many_tunnels_at_once() -> None:
    """Found: a piece of each in turn, 67 MB of unfinished records, and the link was cut."""
    async with (
        node(archive(), reassembly_bytes_max=2048 * KIB, payload_bytes_max=1024 * KIB) as db,
        node("shop", db) as shop,
    ):
        await linked(shop, db)

        async def one() -> None:
            async with shop.open_tunnel("archive") as tunnel:
                await tunnel.send(bytes(900 * KIB))
                assert await tunnel.__anext__() == b"%d" % (900 * KIB)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(one)
        assert db.statistics().refused == {}


async def test_many_of_the_largest_requests_at_once() -> None:
    """More than may wait for one link: they take turns, none fails."""
    settings = {"payload_bytes_max": 256 * KIB, "reassembly_bytes_max": 512 * KIB}
    async with (
        node(archive(), **settings) as db,
        node("shop", db, outbox_bytes=512 * KIB, **settings) as shop,
    ):
        await linked(shop, db)

        async def ask() -> None:
            assert await shop.request("archive", bytes(256 * KIB)) == b"%d" % (256 * KIB)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(40):
                    nursery.start_soon(ask)
        link = next(iter(shop.statistics().links))
        assert link.resumes == 0


async def test_a_member_that_takes_less_than_others() -> None:
    """Found: what it did not take cost it the link, and an idempotent request every member's."""
    async with (
        node(archive(), payload_bytes_max=100 * KIB) as db,
        node("shop", db) as shop,
    ):
        await linked(shop, db)
        limit = (
            r"102401 bytes exceeds the limit of 102400 bytes \({} of {}\): a tunnel carries more$"
        )
        theirs = limit.format("payload_bytes_max", "the other end")
        with pytest.raises(mesh.TooLarge, match=theirs):
            await shop.request("archive", bytes(100 * KIB + 1))
        assert await shop.broadcast("archive", bytes(100 * KIB + 1)) == 0
        async with shop.open_tunnel("archive") as tunnel:
            several = r"\(the lesser payload_bytes_max of both ends\): send it as several parts$"
            with pytest.raises(mesh.TooLarge, match=several):
                await tunnel.send(bytes(tunnel.part_bytes_max + 1))
            await tunnel.send(bytes(tunnel.part_bytes_max))
            assert await tunnel.__anext__() == b"102400"
        lesser = limit.format("the lesser payload_bytes_max", "both ends")
        with pytest.raises(mesh.ServiceError, match=f"reply of {lesser}"):
            await shop.request("archive/grow", b"102401")
        assert db.statistics().refused == {}


@pytest.mark.parametrize("size", [1e6, "1", True])
async def test_sizes_that_are_no_numbers_are_refused_here(size: object) -> None:
    """Found: they were told to the peers, who hung up."""
    async with node("shop") as shop:
        with pytest.raises(TypeError, match="limit_bytes"):
            shop.subscribe("t", limit_bytes=size)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="window_bytes"):
            shop.open_tunnel("archive", window_bytes=size)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, -1, 1 << 64])
async def test_sizes_out_of_range_are_refused_here(size: int) -> None:
    async with node("shop") as shop:
        with pytest.raises(ValueError, match=f"limit_bytes: .*got {size}"):
            shop.subscribe("t", limit_bytes=size)
        with pytest.raises(ValueError, match=f"window_bytes: .*got {size}"):
            shop.open_tunnel("archive", window_bytes=size)


@pytest.mark.parametrize("timeout", [float("nan"), -1.0])
async def test_impossible_timeouts_are_refused_here(timeout: float) -> None:
    async with node("shop") as shop:
        with pytest.raises(ValueError, match="timeout: want seconds"):
            await shop.request("archive", b"", timeout=timeout)
        with pytest.raises(ValueError, match="timeout: want seconds"):
            shop.open_tunnel("archive", timeout=timeout)
        assert shop.statistics().requests.outstanding == 0


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({1: 2}, "want text as a name, got 1"), ({"a": object()}, "'a': can not serialize"),
        ({"a": {1: 2}}, "'a'"), ({"a": 1 << 64}, "'a'"), ("text", "want a mapping, got str"),
    ],
)  # fmt: skip
async def test_headers_nobody_could_read_are_refused_here(headers: object, words: str) -> None:
    """Found: they were sent, and each subscriber saw none."""
    async with node("shop") as shop, shop.subscribe("t") as subscription:
        with pytest.raises(TypeError, match=words):
            await shop.publish("t", b"", headers=headers)  # type: ignore[arg-type]
        many = {f"name{n}": [True, None, 1.5, b"b", {"deep": "er"}] for n in range(100)}
        await shop.publish("t", b"", headers=many)
        async for message in subscription:
            assert message.headers == many
            break
