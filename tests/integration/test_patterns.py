"""The four patterns between nodes over real, encrypted links on loopback."""

from __future__ import annotations

import pytest
import trio

import mesh
from tests.nodes import linked, node
from tests.waiting import PATIENCE_S, until


def databases() -> mesh.Service:
    service = mesh.Service("databases", concurrency=4)

    @service.request
    async def echo(request: mesh.Request) -> bytes:
        return request.payload

    @service.request("fail")
    async def fail(request: mesh.Request) -> bytes:
        raise mesh.ServiceError("no_row", "row 7 does not exist")

    @service.request("crash")
    async def crash(request: mesh.Request) -> bytes:
        raise KeyError("oops")

    @service.request("wrong")
    async def wrong(request: mesh.Request) -> str:
        return "not bytes"

    @service.request("caller", allow=["shop"])
    async def caller(request: mesh.Request) -> bytes:
        return request.caller.encode()

    @service.request("slow")
    async def slow(request: mesh.Request) -> bytes:
        await trio.sleep_forever()
        return b""

    @service.tunnel
    async def mirror(tunnel: mesh.Tunnel) -> None:
        async for part in tunnel:
            await tunnel.send(part)

    return service


async def test_request_reply_small_and_large() -> None:
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        for size in (0, 1, 70_000, 5 << 20):
            payload = bytes(size)
            assert await shop.request("databases", payload) == payload


async def test_errors_of_handlers_reach_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        for endpoint, code, message in (
            ("fail", "no_row", "row 7 does not exist"),
            ("crash", "failed", "KeyError"),
            ("wrong", "failed", "not bytes"),
            ("nothing", "no_such_endpoint", "nothing"),
        ):
            with pytest.raises(mesh.ServiceError, match=message) as caught:
                await shop.request(f"databases/{endpoint}", b"")
            assert caught.value.code == code
        with pytest.raises(mesh.ServiceError):
            await shop.request("databases/crash", b"")
    failures = [
        record
        for record in caplog.records
        if "further failures of this kind are not logged" in record.message
    ]
    assert len(failures) == 1, "one line per kind of failure, however often it happens"


async def test_allow_and_caller() -> None:
    async with node(databases()) as db, node("shop", db) as shop, node("web", db) as web:
        await linked(shop, db)
        await linked(web, db)
        assert await shop.request("databases/caller", b"") == b"shop"
        with pytest.raises(mesh.ServiceError, match="not_allowed"):
            await web.request("databases/caller", b"")


async def test_nobody_there() -> None:
    async with node("shop", settle_s=0.2) as shop:
        with pytest.raises(mesh.NoMembers, match="no other members either: see `mesh doctor`"):
            await shop.request("databases", b"")
        assert [answer async for answer in shop.gather("databases", b"")] == []
        assert await shop.broadcast("databases", b"") == 0
        await shop.publish("orders.new", b"")
        assert shop.statistics().publishing.nobody == 1
        with pytest.raises(mesh.NoMembers, match="no other members either"):
            async with shop.open_tunnel("databases"):
                pass


async def test_a_wrong_name_is_told_the_clusters_that_are_there() -> None:
    async with node(databases()) as db, node("shop", db, settle_s=0.1) as shop:
        await linked(shop, db)
        with pytest.raises(mesh.NoMembers, match=r"there are members of databases$"):
            await shop.request("database", b"")
        with pytest.raises(mesh.NoMembers, match=r"there are members of databases$"):
            async with shop.open_tunnel("database"):
                pass


async def test_deadline_of_the_enclosing_scope_ends_the_wait() -> None:
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        limit_s, service = 0.1, db.statistics().services[0]
        while service.cancelled + service.expired == 0:  # Too soon for a machine that is busy.
            with trio.move_on_after(limit_s) as scope:
                await shop.request("databases/slow", b"")
            assert scope.cancelled_caught
            await until(lambda: db.statistics().services[0].running == 0)
            limit_s, service = 2 * limit_s, db.statistics().services[0]
        assert service.cancelled + service.expired == 1
        assert shop.statistics().requests.outstanding == 0


async def test_overload_is_said_before_anything_starts() -> None:
    async with (
        node(databases(), queue_requests=2) as db,
        node("shop", db) as shop,
        trio.open_nursery() as nursery,
    ):
        await linked(shop, db)
        for _ in range(4 + 2):
            nursery.start_soon(shop.request, "databases/slow", b"")
        await until(lambda: db.statistics().services[0].queued == 2)
        with pytest.raises(mesh.Overloaded) as caught:
            await shop.request("databases/slow", b"")
        assert caught.value.retry_after_s > 0
        assert (caught.value.setting, caught.value.limit) == ("queue_requests", 2)
        assert not caught.value.maybe_executed
        nursery.cancel_scope.cancel()


async def test_gather_yields_every_member_once() -> None:
    async with node(databases()) as one, node(databases(), one) as two, node("shop", one) as shop:
        await linked(shop, one, two)
        answers = {member.node: answer async for member, answer in shop.gather("databases", b"q")}
        assert answers == {one.id: b"q", two.id: b"q"}
        async for _, answer in shop.gather("databases/slow", b"", timeout=0.1):
            assert isinstance(answer, mesh.RequestTimeout)
        late = [answer async for _, answer in shop.gather("databases", b"q", timeout=0)]
        assert [type(answer) for answer in late] == [mesh.RequestTimeout] * 2
        with pytest.raises(mesh.RequestTimeout) as caught:
            await shop.request("databases", b"q", timeout=0)
        assert not caught.value.maybe_executed


async def test_broadcast_reaches_every_member() -> None:
    heard: list[tuple[str, bytes]] = []

    def caches() -> mesh.Service:
        service = mesh.Service("caches")

        @service.broadcast("flush")
        async def flush(request: mesh.Request) -> None:
            heard.append((request.caller, request.payload))

        return service

    async with node(caches()) as one, node(caches(), one) as two, node("shop", one) as shop:
        await linked(shop, one, two)
        assert await shop.broadcast("caches/flush", b"all") == 2
        await until(lambda: len(heard) == 2)
        assert heard == [("shop", b"all")] * 2


async def test_parts_sent_in_a_row_share_frames_and_leave_others_their_turn() -> None:
    count = 200
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        async with shop.open_tunnel("databases") as tunnel, trio.open_nursery() as nursery:
            turns, sent_before = 0, shop.statistics().links[0].frames_sent

            async def other() -> None:
                nonlocal turns
                while True:
                    await trio.lowlevel.checkpoint()
                    turns += 1

            nursery.start_soon(other)
            for _ in range(count):
                await tunnel.send(bytes(8 << 10))
            gathered = count * (8 << 10) // (256 << 10)
            assert turns >= gathered // 2
            assert shop.statistics().links[0].frames_sent - sent_before <= 2 * gathered
            await tunnel.send_eof()
            assert len([part async for part in tunnel]) == count
            nursery.cancel_scope.cancel()


async def test_tunnel_keeps_parts_and_half_closes() -> None:
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        parts = [bytes([n]) * size for n, size in enumerate((0, 1, 1000, 65_536, 300_000))]
        async with shop.open_tunnel("databases") as tunnel:
            for part in parts:
                await tunnel.send(part)
            await tunnel.send_eof()
            assert [part async for part in tunnel] == parts
        await until(lambda: not shop.statistics().tunnels and not db.statistics().tunnels)


@pytest.mark.parametrize("outbox_bytes", [16 << 20, 70_000])
async def test_parts_as_large_as_the_window_between_small_ones(outbox_bytes: int) -> None:
    """The reader keeps credit for small parts back; whoever needs it asks. Found: with an outbox
    smaller than a quarter of the reader's window, an empty part was never asked for."""
    service = mesh.Service("archive")

    @service.tunnel
    async def keep(tunnel: mesh.Tunnel) -> None:
        async for part in tunnel:
            await tunnel.send(part)
        await tunnel.send_eof()

    async with (
        node(service, outbox_bytes=outbox_bytes) as archive,
        node("shop", archive, outbox_bytes=outbox_bytes) as shop,
    ):
        await linked(shop, archive)
        with trio.fail_after(PATIENCE_S):
            async with shop.open_tunnel("archive") as tunnel, trio.open_nursery() as nursery:
                most = tunnel.part_bytes_max
                sizes = [0, most, 20, most, most * 3 // 4 + 1, 1, 0, most - 1, most // 4, most] * 3
                parts = [bytes([n]) * size for n, size in enumerate(sizes)]

                async def send() -> None:
                    for part in parts:
                        await tunnel.send(part)
                    await tunnel.send_eof()

                nursery.start_soon(send)
                assert [part async for part in tunnel] == parts


async def test_each_part_is_taken_in_the_turn_in_which_it_comes() -> None:
    taken: list[bytes] = []
    tasks: set[object] = set()
    waiting, after = trio.Event(), list[int]()
    service = mesh.Service("archive")

    def take(part: bytes) -> bool:
        tasks.add(trio.lowlevel.current_task())
        taken.append(part)
        return True

    @service.tunnel
    async def keep(tunnel: mesh.Tunnel) -> None:
        waiting.set()
        assert await tunnel.each(take, lambda: after.append(len(taken))) is None
        assert trio.lowlevel.current_task() not in tasks
        assert (after[-1], after) == (len(taken), sorted(set(after))), "after all that had come"
        await tunnel.send(b"kept")

    async with node(service) as archive, node("shop", archive) as shop:
        await linked(shop, archive)
        async with shop.open_tunnel("archive") as tunnel:
            await waiting.wait()
            await trio.testing.wait_all_tasks_blocked()
            parts = [bytes([number]) * 20_000 for number in range(100)]
            for part in parts:
                await tunnel.send(part)
            await tunnel.send_eof()
            assert [part async for part in tunnel] == [b"kept"]
    assert taken == parts


async def test_a_part_that_is_not_taken_is_the_last_one_for_now() -> None:
    taken: list[bytes] = []
    refused: list[tuple[bytes, int]] = []
    after: list[int] = []
    service = mesh.Service("archive")

    def take(part: bytes) -> bool:
        if part == b"no":
            return False
        taken.append(part)
        return True

    @service.tunnel
    async def keep(tunnel: mesh.Tunnel) -> None:
        await until(lambda: archive.statistics().tunnels[0].received_parts == len(parts))
        while (part := await tunnel.each(take, lambda: after.append(len(taken)))) is not None:
            refused.append((part, len(taken)))
        await tunnel.send(b"kept")

    parts = [b"0", b"1", b"no", b"2", b"no", b"no", b"3"]
    async with node(service) as archive, node("shop", archive) as shop:
        await linked(shop, archive)
        async with shop.open_tunnel("archive") as tunnel:
            for part in parts:
                await tunnel.send(part)
            await tunnel.send_eof()
            assert [part async for part in tunnel] == [b"kept"]
    assert taken == [b"0", b"1", b"2", b"3"]
    assert refused == [(b"no", 2), (b"no", 3), (b"no", 3)]
    assert after == [2, 3, 3, 4]


async def test_what_take_raises_ends_its_own_tunnel_only() -> None:
    service = mesh.Service("archive")
    broke: list[str] = []

    @service.tunnel
    async def fails(tunnel: mesh.Tunnel) -> None:
        with pytest.raises(ZeroDivisionError):
            await tunnel.each(lambda part: 1 // len(part) > 0)
        await tunnel.send(b"heard")
        try:
            await tunnel.each(lambda part: True)
        except mesh.TunnelBroken as error:
            broke.append(str(error))
            raise

    async with node(service) as archive, node("shop", archive) as shop:
        await linked(shop, archive)
        async with shop.open_tunnel("archive") as tunnel:
            await tunnel.send(b"x")
            await tunnel.send(b"")
            assert await anext(tunnel) == b"heard"
            tunnel.abort("enough")
        await until(lambda: broke)
        assert "enough" in broke[0]
        async with shop.open_tunnel("archive") as tunnel:
            await tunnel.send(b"")
            assert await anext(tunnel) == b"heard"


@pytest.mark.parametrize(
    ("first", "second"), [("each", "each"), ("each", "next"), ("next", "each")]
)
async def test_who_reads_a_tunnel_beside_a_task_that_is_handed_each_part_is_told(
    first: str, second: str
) -> None:
    """Found: as an AssertionError of two words, or not at all: whoever iterated got nothing."""
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        read: list[bytes] = []
        async with shop.open_tunnel("databases") as tunnel, trio.open_nursery() as nursery:

            def take(part: bytes) -> bool:
                read.append(part)
                return True

            async def start(how: str) -> None:
                if how == "next":
                    take(await anext(tunnel))
                await tunnel.each(take)

            nursery.start_soon(start, first)
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(5), pytest.raises(RuntimeError, match="two tasks read a tunnel"):
                await start(second)
            for part in (b"1", b"2"):
                await tunnel.send(part)
            await tunnel.send_eof()
        assert read == [b"1", b"2"]


async def test_a_reader_that_stops_stops_the_writer() -> None:
    service = mesh.Service("archive")

    @service.tunnel
    async def never_read(tunnel: mesh.Tunnel) -> None:
        await trio.sleep_forever()

    @service.request
    async def echo(request: mesh.Request) -> bytes:
        return request.payload

    async with node(service, drain_s=0.0) as archive, node("shop", archive) as shop:
        await linked(shop, archive)
        async with shop.open_tunnel("archive") as tunnel, trio.open_nursery() as nursery:
            sent = 0

            async def write() -> None:
                nonlocal sent
                while True:
                    await tunnel.send(bytes(50_000))
                    sent += 50_000

            def unread_bytes() -> int:
                return sum(one.unread_bytes for one in archive.statistics().tunnels)

            nursery.start_soon(write)
            await until(lambda: unread_bytes() + 50_000 > tunnel.window_bytes)
            for _ in range(20):  # What could leave in the meantime would come before the answer.
                await shop.request("archive", b"")
            assert sent == unread_bytes() <= tunnel.window_bytes
            nursery.cancel_scope.cancel()
            with pytest.raises(mesh.TooLarge) as caught:
                await tunnel.send(bytes(tunnel.window_bytes + 1))
            assert caught.value.limit_bytes == tunnel.part_bytes_max
            source = "the other end's window, by default tunnel_window_bytes"
            assert str(caught.value).endswith(f" ({source}): send it as several parts")


async def test_what_would_have_to_wait_is_not_sent_nowait() -> None:
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        async with shop.open_tunnel("databases") as tunnel:
            tunnel.send_nowait(b"first")
            sent = [b"first"]
            with pytest.raises(trio.WouldBlock):
                while True:
                    tunnel.send_nowait(part := len(sent).to_bytes(2, "big") * 25_000)
                    sent.append(part)
            await tunnel.send_eof()
            assert [part async for part in tunnel] == sent


async def test_a_tunnel_breaks_on_both_sides() -> None:
    broken: list[mesh.TunnelBroken] = []
    service = mesh.Service("archive")

    @service.tunnel
    async def read(tunnel: mesh.Tunnel) -> None:
        try:
            async for _ in tunnel:
                pass
        except mesh.TunnelBroken as error:
            broken.append(error)
            raise

    @service.tunnel("fails")
    async def fails(tunnel: mesh.Tunnel) -> None:
        await anext(tunnel)
        raise ValueError("disk on fire")

    async with node(service) as archive, node("shop", archive) as shop:
        await linked(shop, archive)
        with pytest.raises(KeyError):
            async with shop.open_tunnel("archive") as tunnel:
                await tunnel.send(b"x")
                raise KeyError
        await until(lambda: broken)
        with pytest.raises(mesh.TunnelBroken):
            async with shop.open_tunnel("archive/fails") as tunnel:
                await tunnel.send(b"x")
                async for _ in tunnel:
                    pass


async def test_tunnels_do_not_starve_requests() -> None:
    async with node(databases()) as db, node("shop", db) as shop, trio.open_nursery() as nursery:
        await linked(shop, db)

        async def pour() -> None:
            async with shop.open_tunnel("databases") as tunnel, trio.open_nursery() as both:

                async def drain() -> None:
                    async for _ in tunnel:
                        pass

                both.start_soon(drain)
                while True:
                    await tunnel.send(bytes(65_536))

        for _ in range(4):
            nursery.start_soon(pour)
        await until(lambda: len(shop.statistics().tunnels) == 4)
        for _ in range(50):
            await shop.request("databases", b"x", timeout=5)
        nursery.cancel_scope.cancel()
