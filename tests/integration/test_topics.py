"""Publish-subscribe between nodes over real, encrypted links on loopback."""

from __future__ import annotations

from math import inf

import pytest
import trio
import trio.testing

import mesh
from mesh.protocol.interest import POLICIES
from mesh.subscription import IN_A_ROW_MAX
from tests.nodes import linked, node, subscribed
from tests.waiting import until


async def test_topics_match_at_the_publisher() -> None:
    async with node("shop") as shop, node("audit", shop) as audit:
        await linked(shop, audit)
        async with audit.subscribe("orders.*.created") as created, audit.subscribe("orders.>") as every:  # fmt: skip
            await subscribed(shop, "orders.x.created", 2)
            sent_before, began_s = shop.statistics().links[0].frames_sent, trio.current_time()
            for _ in range(50):
                await shop.publish("unwanted.topic", b"x")
            assert shop.statistics().publishing.nobody == 50
            await shop.publish("orders.eu.created", b"1", headers={"trace": 7})
            await shop.publish("orders.eu", b"2")
            message = await anext(created)
            assert (message.topic, message.payload) == ("orders.eu.created", b"1")
            assert message.headers == {"trace": 7}
            assert message.sender == shop.id
            assert [(await anext(every)).payload for _ in range(2)] == [b"1", b"2"]
            beats = 1 + int(
                (trio.current_time() - began_s) / mesh.MeshConfig(clusters=("shop",)).heartbeat_s
            )
            assert shop.statistics().links[0].frames_sent - sent_before <= 4 + beats


async def test_a_message_alone_is_on_its_way_before_any_other_task_runs() -> None:
    async with node("shop") as shop, node("audit", shop) as audit:
        await linked(shop, audit)
        async with audit.subscribe("t") as subscription:
            await subscribed(shop, "t")
            await shop.publish("t", b"x")
            assert shop.statistics().publishing.published == 1, "handed on, and not only gathered"
            assert (await anext(subscription)).payload == b"x"


async def test_what_leaves_with_a_request_was_company_too() -> None:
    """Found: gathered, it left before the pump's turn, and the first of every pair was taken for alone."""
    service, pairs = mesh.Service("audit"), 5

    @service.request
    async def answer(request: mesh.Request) -> bytes:
        return request.payload

    async with node("shop") as shop, node(service, shop) as audit:
        await linked(shop, audit)
        async with audit.subscribe("t"):
            await subscribed(shop, "t")
            await shop.publish("t", b"of a new topic: others may run meanwhile")
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(pairs):
                await shop.publish("t", b"one")
                await shop.publish("t", b"two")
                await shop.request("audit", b"and a request takes both along")
            assert shop.statistics().publishing.batches == 1 + 2 + (pairs - 1)


async def test_what_is_published_once_subscribers_are_there_reaches_all_of_them() -> None:
    """Found: right after `wait_members` it reached nobody, for what they subscribe to comes a moment later."""
    async with node("shop") as shop, shop.subscribe("t"):
        with trio.move_on_after(0.05) as patience:
            await shop.wait_subscribers("t")
        assert patience.cancelled_caught, "its own subscription is none of theirs"
        async with trio.open_nursery() as nursery:

            async def audit(pattern: str) -> None:
                async with node("audit", shop) as one, one.subscribe(pattern) as subscription:
                    assert (await anext(subscription)).payload == b"x"

            for pattern in ("t", ">", "*"):
                nursery.start_soon(audit, pattern)
            found = await shop.wait_subscribers("t", count=3)
            assert {one.clusters for one in found} == {("audit",)}
            assert len(found) == 3
            assert shop.interest() == {"t", ">", "*"}
            await shop.publish("t", b"x")


async def test_who_is_known_to_leave_is_no_subscriber_any_more() -> None:
    """Found: it was counted until its link ended, but not returned, so there could be fewer than were waited for."""
    async with node("shop") as shop, node("audit", shop) as audit, audit.subscribe("t"):
        (found,) = await shop.wait_subscribers("t")
        shop._core.left_by_hearsay(shop._core.peering.links[found.node])
        with trio.CancelScope(deadline=-inf) as at_once:
            await shop.wait_subscribers("t")
        assert at_once.cancelled_caught
        assert await shop.wait_subscribers("t", count=0) == []


async def test_a_node_hears_its_own_topics() -> None:
    async with node("shop") as shop, shop.subscribe("a.>") as subscription:
        await shop.publish("a.b", b"x")
        assert (await anext(subscription)).payload == b"x"


@pytest.mark.parametrize("policy", POLICIES)
async def test_slow_subscriber_under_each_policy(policy: str) -> None:
    """Promise: every drop is counted and seen as a gap; `block` loses nothing."""
    count, limit = 20_000, 64 * 1024
    async with node("shop") as shop, node("audit", shop) as audit:
        await linked(shop, audit)
        async with audit.subscribe("t", when_full=policy, limit_bytes=limit) as slow:
            await subscribed(shop, "t")
            got = lost = sequence = 0
            ended = False

            async def publish() -> None:
                for number in range(count):
                    await shop.publish("t", number.to_bytes(4, "little") * 8)
                await until(end, 40)

            async def end() -> bool:
                """One of them finds room."""
                await shop.publish("t", b"end")
                return ended

            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish)
                if policy != "block":
                    await until(lambda: slow.statistics().dropped > 0)
                with trio.fail_after(40):
                    async for message in slow:
                        lost += message.lost
                        got += 1
                        sequence = message.sequence
                        assert got + lost == sequence + 1
                        if message.payload == b"end":
                            break
                        assert int.from_bytes(message.payload[:4], "little") == sequence
                        assert slow.statistics().waiting_bytes <= limit
                ended = True
            assert sequence >= count
            if policy == "block":
                assert (got, lost) == (count + 1, 0)
            else:
                dropped = slow.statistics().dropped + shop.statistics().publishing.dropped
                assert lost == dropped > 0


async def test_one_stuck_subscriber_does_not_stop_the_others() -> None:
    async with node("shop") as shop, node("audit", shop) as audit, node("stuck", shop) as stuck:
        await linked(shop, audit, stuck)
        async with audit.subscribe("t") as reading, stuck.subscribe("t", limit_bytes=1000):
            await subscribed(shop, "t", 2)
            for number in range(5000):
                await shop.publish("t", str(number).encode())
            for number in range(5000):
                assert (await anext(reading)).payload == str(number).encode()


async def test_a_batch_is_not_taken_before_the_rest_of_the_one_before() -> None:
    """Found: who took some messages one by one, and then batches, got the rest behind these."""
    async with node("shop") as shop, shop.subscribe("t") as subscription:
        await shop.publish_many("t", [b"0", b"1", b"2"])
        assert (await anext(subscription)).payload == b"0"
        await shop.publish_many("t", [b"3", b"4"])
        for _ in range(2):
            with pytest.raises(RuntimeError, match="take them first"):
                await anext(subscription.batches())
        assert [(await anext(subscription)).payload for _ in range(2)] == [b"1", b"2"]
        batch = await subscription.take()
        assert batch.payloads == [b"3", b"4"]
        assert repr(batch) == "<Delivery 3 't' 2 messages>"
        await shop.publish("t", b"5")
        assert (await anext(subscription)).payload == b"5"


async def test_two_tasks_that_read_one_subscription_or_watch_are_told() -> None:
    """Found: as an AssertionError of two words; under `python -O` the first one waited for ever."""
    async with node("shop") as shop, shop.subscribe("t") as subscription:
        watch = shop.watch("nobody")
        for read, another in (
            (subscription.take, subscription.__anext__),
            (subscription.__anext__, subscription.batches().__anext__),
            (watch.__anext__, watch.__anext__),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(RuntimeError, match="two tasks wait at once"):
                    await another()
                nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscription.take)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="two tasks"):
                await subscription.take()
            await shop.publish("t", b"to the first, which waits on")


async def test_small_batches_are_taken_in_a_row_and_leave_others_their_turn() -> None:
    """Found: a turn of the loop for each batch, and from many publishers each has one message."""
    turns, count = 0, 4 * IN_A_ROW_MAX

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with node("shop") as shop, shop.subscribe("t.*") as subscription:
        for number in range(count):
            await shop.publish(f"t.{number}", b"x")
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            for _ in range(count):
                await anext(subscription)
            nursery.cancel_scope.cancel()
    assert 3 <= turns <= 4


@pytest.mark.parametrize("size_bytes", [1000, 100_000])
async def test_publishing_to_many_topics_leaves_others_their_turn(size_bytes: int) -> None:
    """Found: before one of them was full nothing left and nobody ran, however much had gathered."""
    turns = waiting_bytes = 0
    each, topics = 20_000_000 // (200 * size_bytes), [f"t.{number}" for number in range(200)]

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with node("shop") as shop, shop.subscribe("t.*"):
        streams = shop._core.patterns.publisher.streams.values()
        for topic in topics:
            await shop.publish(topic, b"known")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            for _ in range(each):
                for topic in topics:
                    await shop.publish(topic, bytes(size_bytes))
                waiting_bytes = max(waiting_bytes, sum(stream.size_bytes for stream in streams))
            nursery.cancel_scope.cancel()
    window_bytes = shop.config.window_bytes
    assert waiting_bytes <= window_bytes, f"{waiting_bytes} bytes, the window is {window_bytes}"
    assert turns >= 20_000_000 // window_bytes
