"""Cancelled at any moment, nothing breaks and nothing is left behind."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
import trio
import trio.testing

import mesh
from mesh.protocol.sharing import Sharing
from tests.nodes import linked, node, subscribed
from tests.waiting import PATIENCE_S, until


def databases() -> mesh.Service:
    service = mesh.Service("databases")

    @service.request
    async def echo(request: mesh.Request) -> bytes:
        return request.payload

    @service.tunnel
    async def take_slowly(tunnel: mesh.Tunnel) -> None:
        async for _ in tunnel:
            await trio.testing.wait_all_tasks_blocked()

    return service


async def test_a_reader_that_is_cancelled_just_as_a_message_comes() -> None:
    """Found: it was woken twice, which trio does not forgive, and the whole node went down."""
    async with node("shop") as shop, shop.subscribe("t") as subscription:
        for _ in range(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(subscription.take)
                await trio.testing.wait_all_tasks_blocked()
                shop.publish_nowait("t", b"x")
                nursery.cancel_scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
        shop.publish_nowait("t", b"last")
        async for message in subscription:
            if message.payload == b"last":
                break


@pytest.mark.parametrize("how", ["batches", "messages"])
async def test_a_reader_for_whom_something_waits_is_cancelled_and_loses_nothing(how: str) -> None:
    """Found: it asked only when nothing waited, and under load was never cancelled."""
    async with node("shop") as shop, shop.subscribe("t.*") as subscription:
        for topic in ("t.1", "t.2"):
            await shop.publish(topic, b"x")
        await until(lambda: shop.statistics().subscriptions[0].waiting_bytes > 2 * 64)
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(subscription if how == "messages" else subscription.batches())
        assert scope.cancelled_caught
        assert [(await anext(subscription)).topic for _ in range(2)] == ["t.1", "t.2"]


async def test_who_sends_to_a_tunnel_with_room_is_cancelled_and_knows_what_was_sent() -> None:
    """Found: whoever sent to a reader who kept up was never cancelled."""
    read: list[bytes] = []
    service = mesh.Service("archive")

    @service.tunnel
    async def store(tunnel: mesh.Tunnel) -> None:
        read.extend([part async for part in tunnel])

    async with node(service) as archive, node("shop", archive) as shop:
        await linked(shop, archive)
        sent: list[bytes] = []
        async with shop.open_tunnel("archive") as tunnel:
            with trio.CancelScope() as scope:
                scope.cancel()
                for n in range(20):
                    part = b"%050000d" % n
                    await tunnel.send(part)
                    sent.append(part)
            assert scope.cancelled_caught
            await tunnel.send(b"on it goes")
        await until(lambda: read)
        assert read == [*sent, b"on it goes"]


class Feed(trio.abc.Instrument):
    """A part comes before every turn of the task that reads the tunnel."""

    def __init__(self, tunnel: mesh.Tunnel) -> None:
        self._tunnel, self._reader = tunnel, trio.lowlevel.current_task()
        self.fed: list[bytes] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._reader and len(self.fed) < 100:
            self.fed.append(b"%d" % len(self.fed))
            self._tunnel._end.received(self.fed[-1])


async def test_who_reads_a_tunnel_into_which_parts_keep_coming_is_cancelled() -> None:
    """Found: it asked only when nothing had come in the turn that it left to others."""
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        read: list[bytes] = []
        async with shop.open_tunnel("databases") as tunnel:
            feed = Feed(tunnel)
            trio.lowlevel.add_instrument(feed)
            await trio.lowlevel.checkpoint()
            with trio.CancelScope() as scope:
                scope.cancel()
                while True:
                    read.append(await anext(tunnel))
            trio.lowlevel.remove_instrument(feed)
            assert scope.cancelled_caught
            assert 0 < len(read) < 10
            read += [await anext(tunnel) for _ in range(len(feed.fed) - len(read))]
        assert read == feed.fed


async def test_who_is_cancelled_while_publishing_knows_whether_it_was_published() -> None:
    """Found: the first message of a topic was published, and its publisher told that it was cancelled."""
    done: list[str] = []
    seen: list[str] = []
    async with node("shop") as shop, shop.subscribe("t.>") as subscription:

        async def publish(topic: str) -> None:
            await shop.publish(topic, b"x", headers={"a": 1})
            done.append(topic)

        for number in range(40):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish, f"t.{number}")
                nursery.start_soon(cancel, nursery.cancel_scope)
        await shop.publish("t.last", b"")
        async for message in subscription:
            if message.topic == "t.last":
                break
            seen.append(message.topic)
    assert seen == done
    assert 0 < len(done) < 40, "the two come in any order"


async def cancel(scope: trio.CancelScope) -> None:
    scope.cancel()


async def test_requests_that_are_cancelled_at_any_moment() -> None:
    chance = Random(1)
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        answered = 0

        async def ask() -> None:
            nonlocal answered
            for n in range(40):
                # One of four has time: a busy machine may answer none within 10 ms.
                with trio.move_on_after(chance.choice([chance.uniform(0, 0.01)] * 3 + [inf])):
                    payload = b"%d" % n
                    assert await shop.request("databases", payload, timeout=PATIENCE_S) == payload
                    answered += 1

        async with trio.open_nursery() as nursery:
            for _ in range(25):
                nursery.start_soon(ask)
        assert answered
        await until(lambda: not shop.statistics().requests.outstanding)
        await until(lambda: not db.statistics().services[0].running)


async def test_a_subscription_that_is_cancelled_as_it_begins_is_none() -> None:
    """Found: it stayed, nobody read it, and with `block` its publishers waited for ever."""
    async with node("shop") as shop, node("sub", shop) as sub:
        await linked(shop, sub)
        with trio.CancelScope() as scope:
            scope.cancel()
            async with sub.subscribe("t", when_full="block", limit_bytes=1):
                raise AssertionError("entered")
        assert scope.cancelled_caught
        assert sub.statistics().subscriptions == ()
        with trio.fail_after(5):
            for _ in range(5):
                await shop.publish("t", b"x" * 10)


async def test_a_subscription_is_entered_once() -> None:
    async with node("shop") as shop:
        subscription = shop.subscribe("t")
        async with subscription:
            with pytest.raises(RuntimeError, match="entered only once"):
                await subscription.__aenter__()
        assert shop.statistics().subscriptions == ()


async def test_of_a_closed_subscription_what_waits_can_be_taken_and_then_nothing() -> None:
    async with node("shop") as shop:
        async with shop.subscribe("t") as subscription:
            await shop.publish("t", b"before")
            with pytest.raises(RuntimeError, match="shares from its begin"):
                subscription.share(Sharing())
            subscription.close()
            await shop.publish("t", b"after")
            assert (await subscription.take()).payloads == [b"before"]
            with pytest.raises(mesh.NodeClosed, match="is closed"):
                await subscription.take()
        closed = shop.subscribe("t")
        closed.close()
        with pytest.raises(RuntimeError, match="closed before"):
            await closed.__aenter__()
        assert shop.statistics().subscriptions == ()


async def test_closing_a_tunnel_under_those_who_use_it() -> None:
    """Found: they waited for ever, or sent after the end, which cost the link."""
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        reasons: list[str] = []

        async def push(tunnel: mesh.Tunnel) -> None:
            with pytest.raises(mesh.TunnelBroken) as caught:
                while True:
                    await tunnel.send(bytes(100_000))
            reasons.append(caught.value.reason)

        async def pull(tunnel: mesh.Tunnel) -> None:
            with pytest.raises(mesh.TunnelBroken) as caught:
                await tunnel.__anext__()
            reasons.append(caught.value.reason)

        with trio.fail_after(10):
            for _ in range(5):
                async with (
                    trio.open_nursery() as nursery,
                    shop.open_tunnel("databases", window_bytes=1000) as tunnel,
                ):
                    nursery.start_soon(push, tunnel)
                    nursery.start_soon(pull, tunnel)
                    await trio.testing.wait_all_tasks_blocked()
        assert sorted(set(reasons)) == [
            "this end was closed for reading", "this end was closed for sending",
        ]  # fmt: skip
        assert await shop.request("databases", b"still linked") == b"still linked"
        assert shop.statistics().refused == {}
        assert db.statistics().refused == {}


@pytest.mark.parametrize("how", ["break", "an exception", "cancelled"])
async def test_who_leaves_a_gather_early_cancels_those_that_have_yet_to_answer(how: str) -> None:
    """Found: their handlers ran until the deadline, and held what they had begun."""
    quick, slow, begun = mesh.Service("databases"), mesh.Service("databases"), trio.Event()

    @quick.request
    async def answer(request: mesh.Request) -> bytes:
        await begun.wait()
        return b"first"

    @slow.request
    async def wait(request: mesh.Request) -> bytes:
        begun.set()
        await trio.sleep_forever()
        raise AssertionError

    async with node(quick) as one, node(slow, one) as two, node("shop", one, two) as shop:
        await linked(shop, one, two)
        with pytest.raises(LookupError) if how == "an exception" else trio.CancelScope() as scope:
            async for _, reply in shop.gather("databases", b"", timeout=3600):
                assert reply == b"first"
                if how == "break":
                    break
                if how == "an exception":
                    raise LookupError
                assert isinstance(scope, trio.CancelScope)
                scope.cancel()
        await until(lambda: two.statistics().services[0].cancelled == 1)
        await until(lambda: not two.statistics().services[0].running)
        assert shop.statistics().requests.outstanding == 0


async def test_a_chain_of_requests_has_the_first_deadline_and_is_cancelled_to_its_end() -> None:
    deadlines: list[float] = []
    ends: list[str] = []
    reached = trio.Event()
    nodes: dict[str, mesh.Node] = {}

    def relay(cluster: str, following: str) -> mesh.Service:
        service = mesh.Service(cluster)

        @service.request
        async def ask_on(request: mesh.Request) -> bytes:
            assert request.deadline is not None
            deadlines.append(request.deadline)
            try:
                if following:
                    return await nodes[cluster].request(following, b"", timeout=7200)
                reached.set()
                await trio.sleep_forever()
            finally:
                ends.append(cluster)
            raise AssertionError

        return service

    async with (
        node(relay("c", "")) as nodes["c"], node(relay("b", "c"), nodes["c"]) as nodes["b"],
        node(relay("a", "b"), nodes["b"]) as nodes["a"], node("shop", nodes["a"]) as shop,
    ):  # fmt: skip
        await linked(shop, nodes["a"], nodes["b"], nodes["c"])
        await linked(nodes["a"], nodes["b"], nodes["c"])
        async with trio.open_nursery() as nursery:
            first_s = nursery.cancel_scope.deadline = trio.current_time() + 3600
            nursery.start_soon(shop.request, "a", b"")
            await reached.wait()
            nursery.cancel_scope.cancel()
        await until(lambda: len(ends) == 3)
    assert sorted(ends) == ["a", "b", "c"]
    assert len(deadlines) == 3
    assert max(deadlines) < first_s + 60, "give or take the time that each was on its way"


async def test_a_gather_that_is_kept_goes_on_although_one_wait_was_cancelled() -> None:
    service, go = mesh.Service("databases"), trio.Event()

    @service.request
    async def answer(request: mesh.Request) -> bytes:
        await go.wait()
        return b"late"

    async with node(service) as one, node("shop", one) as shop:
        await linked(shop, one)
        gathering = shop.gather("databases", b"")
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(gathering)
        go.set()
        assert [reply async for _, reply in gathering] == [b"late"]


@pytest.mark.parametrize("target", ["nobody", "databases"])
@pytest.mark.parametrize("deadline_s", [None, 0.0])
async def test_who_gathers_in_a_scope_that_is_over_is_cancelled(
    target: str, deadline_s: float | None
) -> None:
    """Found: of each member came a RequestTimeout, where a request is cancelled; of none, it went on."""
    async with node(databases()) as one, node(databases(), one) as two, node("shop", one, two) as shop:  # fmt: skip
        await linked(shop, one, two)
        with trio.CancelScope() as scope:
            if deadline_s is None:
                scope.cancel()
            else:  # The clock is there; the loop has yet to look at it.
                scope.deadline = trio.current_time() + deadline_s
            async for _ in shop.gather(target, b""):
                raise AssertionError("the body ran")
        assert scope.cancelled_caught
        assert shop.statistics().requests.outstanding == 0


async def test_who_is_cancelled_while_an_answer_is_ready_can_have_it_later() -> None:
    """Found: the loop went on in the cancelled scope for as long as answers were ready."""
    async with node(databases()) as one, node(databases(), one) as two, node("shop", one, two) as shop:  # fmt: skip
        await linked(shop, one, two)
        gathering, got = shop.gather("databases", b"x"), 0
        await until(lambda: not shop.statistics().requests.outstanding)
        with trio.CancelScope() as scope:
            async for _ in gathering:
                got += 1
                scope.cancel()
        assert scope.cancelled_caught
        assert (got, len(gathering)) == (1, 1)
        assert [reply async for _, reply in gathering] == [b"x"]


@pytest.mark.parametrize("target", ["nobody", "databases"])
async def test_who_gathers_at_once_again_and_again_leaves_others_their_turn(target: str) -> None:
    """Found: who asked until somebody was there never let anybody come."""
    asked = 0
    async with node(databases()) as one, node("shop", one) as shop:
        await linked(shop, one)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel, nursery.cancel_scope)
            while asked < 100:
                asked += 1
                async for _ in shop.gather(target, b"", timeout=0):
                    pass
    assert asked < 10


async def test_what_was_begun_of_a_gather_over_the_limit_is_taken_back() -> None:
    async with (
        node(databases()) as one, node(databases(), one) as two,
        node("shop", one, requests_max=1) as shop,
    ):  # fmt: skip
        await linked(shop, one, two)
        with pytest.raises(mesh.LimitReached, match="requests_max"):
            shop.gather("databases", b"")
        assert shop.statistics().requests.outstanding == 0
        assert await shop.request("databases", b"room") == b"room"


@pytest.mark.parametrize("what", ["a watch", "wait_members", "wait_subscribers"])
async def test_who_need_not_wait_for_members_is_cancelled_as_well(what: str) -> None:
    """Found: a loop over known members went on in a cancelled scope, and one around the others never let others run."""
    async with node("shop") as shop, node("sub", shop) as sub, sub.subscribe("t"):
        await linked(shop, sub)
        await subscribed(shop, "t")
        watch = shop.watch()
        with trio.CancelScope() as scope:
            scope.cancel()
            if what == "a watch":
                await anext(watch)
            elif what == "wait_members":
                await shop.wait_members("sub")
            else:
                await shop.wait_subscribers("t")
        assert scope.cancelled_caught
        assert (await anext(watch)).member.node == sub.id
