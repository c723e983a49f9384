"""What remains of a node that has left: nobody waits for it, and nothing confirmed is missing."""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

import mesh
from discovery.finder import Sink
from mesh import joining
from mesh.nursery import running
from tests.loopback import HOST
from tests.nodes import free_ports, linked, node, subscribed
from tests.waiting import until


def archive(read: list[bytes], ends: list[str], goes_on: trio.Event | None = None) -> mesh.Service:
    """Reads the first part when it comes, and the others when it may go on."""
    service = mesh.Service("archive")

    @service.tunnel
    async def store(tunnel: mesh.Tunnel) -> None:
        async for part in tunnel:
            read.append(part)
            if goes_on is not None:
                await goes_on.wait()
        ends.append("complete")

    return service


async def test_all_that_wait_are_told() -> None:
    """Found: those outside of its block waited for ever."""
    ends: dict[str, str] = {}

    async def expect(name: str, verb: Callable[[], Awaitable[object]]) -> None:
        try:
            await verb()
            ends[name] = "returned"
        except mesh.MeshError as error:
            ends[name] = type(error).__name__
        except StopAsyncIteration:
            ends[name] = "ended"

    async with trio.open_nursery() as nursery, node(archive([], [])) as other:
        async with node("shop", other, drain_s=0.1) as shop:
            await linked(shop, other)
            subscription = await shop.subscribe("t").__aenter__()
            opening = shop.open_tunnel("archive")
            tunnel = await opening.__aenter__()
            stuck = await shop.subscribe("full", when_full="block", limit_bytes=1).__aenter__()
            await shop.publish("full", b"x")

            async def publish() -> None:
                while True:
                    await shop.publish("full", b"x")

            watch = shop.watch("nobody")
            for name, verb in (
                ("subscription", subscription.take), ("watch", watch.__anext__),
                ("tunnel", tunnel.__anext__), ("publish", publish),
                ("wait_members", lambda: shop.wait_members("nobody")),
                ("wait_subscribers", lambda: shop.wait_subscribers("nobody")),
                ("request", lambda: shop.request("nobody", b"", timeout=60)),
            ):  # fmt: skip
                nursery.start_soon(expect, name, verb)
            await trio.testing.wait_all_tasks_blocked()
            assert stuck
        await until(lambda: len(ends) == 7)
        for name, late in (
            ("late publish", lambda: shop.publish("t", b"")),
            ("late broadcast", lambda: shop.broadcast("archive", b"")),
            ("late request", lambda: shop.request("archive", b"")),
            ("late subscribe", lambda: shop.subscribe("t").__aenter__()),
            ("late tunnel", lambda: shop.open_tunnel("archive").__aenter__()),
        ):  # fmt: skip
            await expect(name, late)
        with pytest.raises(mesh.NodeClosed):
            shop.gather("archive", b"")
        with pytest.raises(mesh.NodeClosed):
            shop.watch()
        await subscription.__aexit__(None, None, None)
        await opening.__aexit__(None, None, None)
    assert ends.pop("watch") == "ended"
    assert ends.pop("tunnel") == "TunnelBroken"
    assert set(ends.values()) == {"NodeClosed"}


async def test_a_node_that_is_cancelled_says_goodbye_and_only_the_cancellation_comes_out() -> None:
    """Found: its sockets closed while what ran beside it still had tunnels to end: a ZMQError."""
    async with node(archive([], [])) as other:
        with trio.CancelScope() as scope:
            async with node("shop", other) as shop:
                await linked(shop, other)
                held = trio.Semaphore(0)

                async def hold() -> None:
                    async with shop.open_tunnel("archive"), running(trio.sleep_forever):
                        held.release()
                        await trio.sleep_forever()

                for _ in range(20):
                    shop.run_beside(hold)
                for _ in range(20):
                    await held.acquire()
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        await until(lambda: not other.members("shop"))


async def test_a_blocked_publisher_leaves_nothing_behind() -> None:
    """Found: the last message, accepted and waiting for credit, was lost uncounted."""
    got: list[bytes] = []
    leaving: list[mesh.Node] = []
    async with (
        node("sub") as sub, trio.open_nursery() as nursery,
        sub.subscribe("t", when_full="block", limit_bytes=1) as messages,
    ):  # fmt: skip

        async def consume() -> None:
            async for message in messages:
                got.append(message.payload)
                if len(got) == 8:  # The next one has come; the last one waits for its credit.
                    await until(lambda: leaving[0]._core.closing)

        nursery.start_soon(consume)
        async with node("shop", sub) as shop:
            leaving.append(shop)
            await subscribed(shop, "t")
            for n in range(10):
                await shop.publish("t", b"%d" % n)
            assert shop._core.patterns.publisher.waiting
        await until(lambda: len(got) == 10)
        nursery.cancel_scope.cancel()
    assert got == [b"%d" % n for n in range(10)]


async def test_a_tunnel_that_was_closed_is_complete_although_its_node_is_gone() -> None:
    """Found: what had arrived, its end included, was dropped with the link."""
    read: list[bytes] = []
    ends: list[str] = []
    goes_on = trio.Event()
    async with node(archive(read, ends, goes_on)) as other:
        async with node("shop", other) as shop:
            await linked(shop, other)
            async with shop.open_tunnel("archive") as tunnel:
                for n in range(100):
                    await tunnel.send(b"%d" % n)
        await until(lambda: not other.members("shop"))
        assert len(read) == 1
        goes_on.set()
        await until(lambda: ends)
    assert read == [b"%d" % n for n in range(100)]


async def test_handlers_that_still_run_reach_others_by_every_verb() -> None:
    """Found: `request` did, all others raised NodeClosed as soon as the node was leaving."""
    shop, begun, goes_on = mesh.Service("shop"), trio.Event(), trio.Event()
    here: list[mesh.Node] = []

    @shop.request
    async def sell(request: mesh.Request) -> bytes:
        me = here[0]
        begun.set()
        await goes_on.wait()
        answers = [answer async for _, answer in me.gather("archive/ask", b"?")]
        told = await me.broadcast("archive/tell", b"!")
        async with me.open_tunnel("archive") as tunnel:
            await tunnel.send(b"part")
        async with me.subscribe("t") as messages:
            await until(lambda: other._core.patterns.interest.match("t"))
            await other.publish("t", b"message")
            message = await anext(messages)
        return repr((answers, told, message.payload)).encode()

    read: list[bytes] = []
    store = archive(read, [])

    @store.request("ask")
    async def ask(request: mesh.Request) -> bytes:
        return b"answer"

    @store.broadcast("tell")
    async def tell(request: mesh.Request) -> None: ...

    async with node(store) as other, trio.open_nursery() as nursery:

        async def stay() -> None:
            async with node(shop, other) as me:
                here.append(me)
                await begun.wait()

        async def ask_shop() -> None:
            reply = await other.request("shop", b"", timeout=10)
            assert reply == repr(([b"answer"], 1, b"message")).encode()

        nursery.start_soon(stay)
        await other.wait_members("shop")
        nursery.start_soon(ask_shop)
        await begun.wait()
        await until(lambda: here[0]._core.closing)
        goes_on.set()
    assert read == [b"part"]


async def test_nothing_more_is_published_once_a_node_is_leaving() -> None:
    """Found: to a topic in use it was."""
    async with node("shop") as shop, shop.subscribe("t") as messages:
        await shop.publish("t", b"before")
        assert (await anext(messages)).payload == b"before"
        shop._core.drain()
        with pytest.raises(mesh.NodeClosed):
            await shop.publish("t", b"x")
        with pytest.raises(mesh.NodeClosed):
            shop.publish_nowait("t", b"x")
        with pytest.raises(mesh.NodeClosed):
            await shop.publish_many("t", [b"x"])
    assert shop.statistics().publishing.published == 1


async def test_a_publish_many_that_is_under_way_when_its_node_leaves_ends() -> None:
    """Found: it went on when the node had left, and so did every `publish` to its topic."""
    count = 20_000
    async with trio.open_nursery() as nursery, node("shop") as shop, shop.subscribe("t"):

        async def publish() -> None:
            with pytest.raises(mesh.NodeClosed):
                await shop.publish_many("t", [bytes(1000)] * count)
            with pytest.raises(mesh.NodeClosed):
                await shop.publish("t", b"after")

        nursery.start_soon(publish)
        while not shop.statistics().publishing.batches:
            await trio.lowlevel.checkpoint()
    assert 0 < shop.statistics().publishing.published < count


class Recorder:
    """A finder that finds nobody and remembers what it was told."""

    source = "recorder"

    def __init__(self) -> None:
        self.told: list[str] = []

    async def run(self, sink: Sink) -> None:
        await trio.sleep_forever()

    async def announce(self, announcement: bytes, port: int) -> None:
        self.told.append("announce")

    async def withdraw(self) -> None:
        self.told.append("withdraw")

    def problem(self) -> str | None:
        return None


async def test_a_node_that_left_is_not_announced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: it was, right after it had been withdrawn, and every node alone left a second late."""
    recorder = Recorder()
    monkeypatch.setattr(joining, "make_finders", lambda config, node: [recorder])
    async with node("shop"):
        await until(lambda: recorder.told)
    assert recorder.told == ["announce", "withdraw"]


class Canceller(Recorder):
    """A finder that comes to a checkpoint just as its node is cancelled."""

    def __init__(self, scope: trio.CancelScope) -> None:
        super().__init__()
        self._scope = scope

    async def run(self, sink: Sink) -> None:
        self._scope.cancel()
        await trio.lowlevel.checkpoint_if_cancelled()
        await trio.sleep_forever()


async def test_what_runs_beside_a_block_that_is_cancelled_as_it_begins_says_goodbye(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: it was shielded when it had seen the cancellation already, and trio failed in it."""
    for _ in range(10):  # Which of the tasks comes first is for trio to choose.
        with trio.CancelScope() as scope:
            finder = Canceller(scope)
            monkeypatch.setattr(joining, "make_finders", lambda config, node, one=finder: [one])
            async with node("shop"):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert finder.told[-1] == "withdraw"


class CancelAt(trio.abc.Instrument):
    """Cancels a scope before the task that comes so many turns of tasks from now."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope, self.turns = scope, math.inf

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.turns -= 1
        if self.turns == 0:
            self._scope.cancel()


def threads_at_work() -> set[threading.Thread]:
    """Without those that trio keeps for ten idle seconds: whether there is one of them is up to the tests before."""
    return {one for one in threading.enumerate() if not one.name.startswith("Trio thread ")}


@pytest.mark.parametrize("when", ["joining", "leaving"])
async def test_a_node_that_is_cancelled_at_any_turn_leaves_nothing_and_frees_its_port(
    when: str,
) -> None:
    listen = f"tcp://{HOST}:{free_ports(2)}"
    turns, cancelled = 0, True
    while cancelled:
        turns += 1
        threads, tasks = threads_at_work(), trio.lowlevel.current_statistics().tasks_living
        with trio.CancelScope() as scope:
            canceller = CancelAt(scope)
            trio.lowlevel.add_instrument(canceller)
            try:
                canceller.turns = turns if when == "joining" else math.inf
                async with node("shop", listen=listen) as shop, shop.subscribe("t"):
                    canceller.turns = turns if when == "leaving" else math.inf
            finally:
                trio.lowlevel.remove_instrument(canceller)
        cancelled = scope.cancel_called
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert threads_at_work() <= threads
    assert turns > 5


@pytest.mark.parametrize("lasts", [False, True])
async def test_a_node_that_leaves_waits_for_handlers_of_tunnels(lasts: bool) -> None:
    """Found: they were cut off at once, whatever `drain_s` said."""
    service, ends, may_end = mesh.Service("archive"), list[str](), trio.Event()

    @service.tunnel
    async def store(tunnel: mesh.Tunnel) -> None:
        if lasts:
            tunnel.lasts()
        parts = [part async for part in tunnel]
        await may_end.wait()
        ends.append("stored")
        await tunnel.send(b"%d" % len(parts))

    async def send() -> None:
        try:
            async with shop.open_tunnel("archive") as tunnel:
                await tunnel.send(b"part")
                await tunnel.send_eof()
                ends.extend([str(part) async for part in tunnel])
        except mesh.TunnelBroken:
            ends.append("broken")

    async def end_once_it_leaves() -> None:
        await until(lambda: core.closing)
        may_end.set()

    async with (
        node("shop") as shop, trio.open_nursery() as nursery,
        node(service, shop, drain_s=60.0) as other,
    ):  # fmt: skip
        core = other._core
        await linked(shop, other)
        nursery.start_soon(send)
        await until(lambda: len(core.patterns.tunnels) == 1)
        if not lasts:
            nursery.start_soon(end_once_it_leaves)
    assert ends == (["broken"] if lasts else ["stored", "b'1'"])
