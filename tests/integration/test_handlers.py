"""Whatever a handler does, its caller hears of it and the node lives."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

import mesh
from tests.nodes import linked, node
from tests.waiting import PATIENCE_S, until


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class NoCode(mesh.ServiceError):
    def __init__(self) -> None:
        Exception.__init__(self, "ServiceError's own is not called")


async def wait_and_fail() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("clean-up failed")


def service() -> mesh.Service:
    databases = mesh.Service("databases")

    @databases.request("unspeakable")
    async def unspeakable(request: mesh.Request) -> bytes:
        raise Unspeakable

    @databases.request("code")
    async def code(request: mesh.Request) -> bytes:
        raise mesh.ServiceError(404, "x")  # type: ignore[arg-type]

    @databases.request("group")
    async def group(request: mesh.Request) -> bytes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_and_fail)
            raise mesh.ServiceError("mine", "from a nursery")

    @databases.request("cleanup")
    async def cleanup(request: mesh.Request) -> bytes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_and_fail)
            nursery.start_soon(trio.sleep_forever)
        return b""

    @databases.request("no_code")
    async def no_code(request: mesh.Request) -> bytes:
        raise NoCode

    @databases.request("exit")
    async def leave(request: mesh.Request) -> bytes:
        raise SystemExit(3)

    @databases.tunnel("bad")
    async def bad(tunnel: mesh.Tunnel) -> None:
        raise RuntimeError("before it read anything")

    @databases.request
    async def fine(request: mesh.Request) -> bytes:
        return b"fine"

    return databases


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "mesh")


@pytest.mark.parametrize(
    ("endpoint", "codes", "words"),
    [
        ("unspeakable", ["failed"], "Unspeakable"),
        ("code", ["failed"], "want code and message as str, got int"),
        ("group", ["mine", "failed"], ""),
        ("no_code", ["failed"], ""),
    ],
)
async def test_failures_reach_the_caller(endpoint: str, codes: list[str], words: str) -> None:
    """Found: a derived ServiceError that had set no code took the node down."""
    async with node(service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        for _ in range(2):
            with pytest.raises(mesh.ServiceError) as caught:
                await shop.request(f"databases/{endpoint}", b"")
            assert caught.value.code in codes
            assert words in caught.value.message
        assert await shop.request("databases", b"") == b"fine"


async def test_a_handler_that_fails_while_it_is_cancelled() -> None:
    """Found: what its clean-up raised went past everybody and took the node down."""
    async with node(service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        with trio.move_on_after(0.05):
            await shop.request("databases/cleanup", b"")
        await until(lambda: not db.statistics().services[0].running)
        assert await shop.request("databases", b"") == b"fine"


async def test_an_exit_in_a_handler_ends_the_process_as_it_would_elsewhere() -> None:
    async with node("shop") as shop:
        ended: list[Any] = []
        with trio.move_on_after(5):
            try:
                async with node(service(), shop) as db:
                    await linked(shop, db)
                    with pytest.raises(mesh.PeerLost):
                        await shop.request("databases/exit", b"")
                    await trio.sleep_forever()
            except BaseException as error:
                ended.append(error)
        assert [type(error) for error in ended] == [SystemExit]


async def test_a_tunnel_handler_that_fails_at_once_is_no_overload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found: the caller was told that the member was busy, and to try again; the log had a group, each time."""
    caplog.set_level(logging.ERROR, "mesh")
    async with node(service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        for _ in range(3):
            async with shop.open_tunnel("databases/bad") as tunnel:
                with pytest.raises(mesh.TunnelBroken, match="other end: RuntimeError"):
                    async for _ in tunnel:
                        pass
        ((kind, *_),) = [record.exc_info for record in caplog.records if record.exc_info]
    assert kind is RuntimeError


@pytest.mark.parametrize("how", ["ends", "fails", "first"])
async def test_a_handler_that_has_read_all_is_told_when_nobody_waits_for_what_it_says(
    how: str,
) -> None:
    """Found: a consumer of a broker that was gone was kept until the disk was back, and in the way of others."""
    databases, read, told = mesh.Service("databases"), trio.Event(), trio.Event()

    @databases.tunnel
    async def store(tunnel: mesh.Tunnel) -> None:
        if how == "first":
            await tunnel.send_eof()
        assert [part async for part in tunnel] == [b"part"]
        read.set()
        await tunnel.deserted()
        told.set()

    async with node(databases) as serving, node("shop", serving) as shop:
        await linked(shop, serving)
        async with shop.open_tunnel("databases") as tunnel:
            await tunnel.send(b"part")
            await tunnel.send_eof()
            await read.wait()
            if how == "ends":
                await tunnel.aclose()
            elif how == "fails":
                tunnel.abort("no more")
            with trio.fail_after(PATIENCE_S):
                await told.wait()


async def test_a_member_that_does_not_answer_a_tunnel_is_a_timeout() -> None:
    async with node(service()) as db, node("shop", db) as shop:
        await linked(shop, db)
        link = shop._core.peering.links[db.id]
        link.data.window_bytes = 0  # Nothing leaves any more.
        with pytest.raises(mesh.RequestTimeout):
            async with shop.open_tunnel("databases/bad", timeout=0.1):
                raise AssertionError("opened")


async def test_a_tunnel_is_given_as_long_as_a_request_unless_something_else_is_said() -> None:
    async with node(service()) as db, node("shop", db, request_timeout_s=0.1) as shop:
        await linked(shop, db)
        shop._core.peering.links[db.id].data.window_bytes = 0
        with pytest.raises(mesh.RequestTimeout) as caught:
            async with shop.open_tunnel("databases/bad"):
                raise AssertionError("opened")
        assert caught.value.timeout_s == 0.1


async def test_a_deadline_or_a_cancellation_ends_one_call_and_none_after_it() -> None:
    """Calls share a task and its cancel scope, one after the other."""
    databases = mesh.Service("databases", concurrency=1)
    ends: list[str] = []
    deadlines: list[float] = []
    gave_up = trio.Event()

    @databases.request
    async def work(request: mesh.Request) -> bytes:
        assert request.deadline is not None
        deadlines.append(request.deadline)
        try:
            if request.payload == b"hang":
                await trio.sleep_forever()
            if request.payload == b"outlast":
                await until(lambda: trio.current_time() > deadlines[-2])
                await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            ends.append("cancelled")
            raise
        ends.append("done")
        return request.payload

    @databases.request("late")
    async def late(request: mesh.Request) -> bytes:
        deadline = request.deadline
        assert deadline is not None
        with trio.CancelScope(shield=True):
            await until(lambda: trio.current_time() > deadline)
            # In a loop that is late who asks has some time left, and takes what comes in it.
            await gave_up.wait()
        ends.append("late")
        return b""

    async with node(databases) as db, node("shop", db) as shop:
        await linked(shop, db)

        async def ends_late(target: str, payload: bytes) -> None:
            """A handler that has begun; on a machine that is busy 0.1 s may be too little for it."""
            nonlocal gave_up
            before, timeout_s = len(ends), 0.1
            while len(ends) == before:
                gave_up = trio.Event()
                with pytest.raises(mesh.RequestTimeout):
                    await shop.request(target, payload, timeout=timeout_s)
                gave_up.set()
                await until(lambda: not db.statistics().services[0].running)
                timeout_s *= 2

        assert await shop.request("databases", b"", timeout=1) == b""
        assert await shop.request("databases", b"outlast", timeout=20) == b"outlast"
        await ends_late("databases", b"hang")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shop.request, "databases", b"hang")
            await until(lambda: db.statistics().services[0].running)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await until(lambda: len(ends) == 4)
        await ends_late("databases/late", b"")
        assert await shop.request("databases", b"outlast") == b"outlast"
        assert ends == ["done", "done", "cancelled", "cancelled", "late", "done"]
