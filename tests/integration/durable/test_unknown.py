"""What a broken connection leaves unknown, and who is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import trio
import trio.testing

import durable
from durable.client.pending_confirms import PendingConfirms
from durable.errors import BrokerLost, QueueFull, Unconfirmed
from durable.protocol.parts import Refusal
from tests.broker import broker as process
from tests.brokers import SMALL, at, client, drain, numbered, payloads, serving, shop_at, take
from tests.nodes import free_ports, node
from tests.waiting import until


async def test_a_publish_that_nobody_answers_in_time_is_unknown_and_stored_once(
    tmp_path: Path,
) -> None:
    """Found: without a broker it waited for ever."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined)
        async with serving(tmp_path, **at(port)):
            await shop.declare_queue("jobs")
            await shop.publish("", "jobs", b"0")
        with pytest.raises(Unconfirmed) as one, trio.fail_after(10):
            await shop.publish("", "jobs", b"1", timeout=0.01)
        with pytest.raises(Unconfirmed) as many, trio.fail_after(10):
            await shop.publish_many("", "jobs", [b"2", b"3"], timeout=0.01)
        assert (one.value.count, many.value.count) == (1, 2)
        hasty = durable.connect(joined, timeout=0.01)
        with pytest.raises(Unconfirmed, match=r"within 0\.01 s"), trio.fail_after(10):
            await hasty.publish("", "nowhere", b"x")
        async with serving(tmp_path, **at(port)):
            await shop.publish("", "jobs", b"4", timeout=inf)
            assert await drain(shop, "jobs") == numbered(5)


async def test_what_never_left_is_told_apart_from_what_is_unknown(tmp_path: Path) -> None:
    """Found: behind a full window nothing was sent, and yet it was said to go on being sent."""
    port = free_ports(1)
    told: list[tuple[int, int]] = []
    async with shop_at(port) as joined:
        shop = durable.connect(joined)
        async with serving(tmp_path, **at(port)):
            await shop.declare_queue("jobs")
            await shop.publish("", "jobs", b"")

        async def publish() -> None:
            with pytest.raises(Unconfirmed, match=r"no members|broken|gone") as unconfirmed:
                await shop.publish_many("", "jobs", [bytes(400_000)] * 3, timeout=0.1)
            told.append((unconfirmed.value.count, unconfirmed.value.unsent))

        await until(lambda: not joined.members("broker"))
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(publish)
        sent = sum(count for count, _ in told)
        assert 0 < sent < 30
        assert {count + unsent for count, unsent in told} == {3}
        async with serving(tmp_path, **at(port)):
            await shop.publish("", "jobs", b"", timeout=inf)
            assert len(await drain(shop, "jobs")) == 1 + sent + 1


@pytest.mark.parametrize("then", ["gone", "awaited", "back"])
async def test_acks_that_went_down_with_their_connection_are_told_on_leaving(
    tmp_path: Path, then: str
) -> None:
    """Found: nobody was told, and what had been processed came once more. So it was when somebody had
    given up waiting for the next connection."""
    killed = await trio.to_thread.run_sync(process, str(tmp_path))
    with closing(killed), ExitStack() as stack:
        listen = killed.ready["endpoint"]
        async with node("shop", seeds=[listen], drain_s=0.1) as joined:
            shop = durable.connect(joined)
            await shop.declare_queue("jobs")
            await shop.publish_many("", "jobs", numbered(10))
            with pytest.raises(BrokerLost, match="settled"), trio.fail_after(20):
                async with shop.consume("jobs") as deliveries:
                    found = await take(deliveries, 10)
                    killed.close()
                    await until(lambda: not joined.members("broker"))
                    await found[9].ack(multiple=True)
                    await trio.testing.wait_all_tasks_blocked()
                    if then == "awaited":
                        with trio.move_on_after(0.2):
                            await deliveries.take()
                    elif then == "back":
                        back = await trio.to_thread.run_sync(process, str(tmp_path), listen)
                        stack.callback(back.close)
                        assert payloads(await take(deliveries, 10)) == numbered(10)


async def test_what_was_sent_to_a_broker_that_took_more_than_the_next_one(tmp_path: Path) -> None:
    """It would have to be sent again word for word, which cannot be: not tried for ever."""
    frozen = await trio.to_thread.run_sync(process, str(tmp_path))
    listen = frozen.ready["endpoint"]
    with closing(frozen):
        async with (
            node("shop", seeds=[listen], drain_s=0.1) as joined,
            trio.open_nursery() as nursery,
        ):
            shop = durable.connect(joined)
            await shop.declare_queue("jobs")
            await shop.publish("", "jobs", b"")
            told: list[Unconfirmed] = []

            async def publish() -> None:
                with pytest.raises(Unconfirmed) as unconfirmed:
                    await shop.publish_many("", "jobs", [bytes(100_000)] * 3)
                told.append(unconfirmed.value)

            frozen.freeze()
            nursery.start_soon(publish)
            await until(lambda: shop._publisher is not None and bool(shop._publisher._outbox))
            frozen.close()
            config = replace(SMALL, tunnel_window_bytes=128 * 1024)
            async with serving(tmp_path, config=config, listen=listen):
                await until(lambda: told)
                assert told[0].count == 3
                await shop.publish("", "jobs", b"with another publisher")


async def test_what_a_timeout_leaves_unknown_is_told_apart_from_what_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: all of it was called unknown, and the refusals of those before were told to nobody."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("tight", max_length=1, overflow="reject-publish")
        await shop.publish("", "tight", b"")
        publisher = shop._own_publisher()
        outbox, handle_confirm = publisher._outbox, publisher._outbox.handle_confirm

        def only_first(sequence: int, refusals: Sequence[Refusal]) -> None:
            """What is said until one part of them is decided as a whole."""
            if outbox.confirmed == 1:
                handle_confirm(sequence, refusals)

        monkeypatch.setattr(outbox, "handle_confirm", only_first)
        with pytest.raises(Unconfirmed) as told:
            await shop.publish_many("", "tight", [bytes(1000)] * 5000, timeout=2)
        known = outbox.confirmed - 1
        assert 0 < known < 5000
        assert (told.value.count, told.value.unsent) == (5000 - known, 0)
        (note,) = told.value.__notes__
        assert note.startswith(f"{known} messages were refused: queue 'tight' is full")


async def test_what_is_answered_as_the_time_ends_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: it was called unknown, and would have been published again."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        for name, most in (("jobs", 2), ("tight", 1)):
            await shop.declare_queue(name, max_length=most, overflow="reject-publish")
        await shop.publish("", "tight", b"")
        publisher = shop._publisher = shop.publisher(window_bytes=1)
        publisher.start()
        wait_confirmed, entered = publisher.wait_confirmed, list[trio.CancelScope]()

        @contextmanager
        def within(seconds: float) -> Iterator[trio.CancelScope]:
            with trio.CancelScope() as scope:
                entered.append(scope)
                try:
                    yield scope
                finally:
                    entered.remove(scope)

        async def late(pending: PendingConfirms, patience_s: float) -> bool:
            """The answer, and only then the end of the time, as one turn of the scheduler has them."""
            if not all(run.done for run in pending.runs):
                await until(lambda: all(run.done for run in pending.runs))
                (scope,) = entered
                scope.cancel()
                await trio.sleep_forever()
            return await wait_confirmed(pending, patience_s)

        monkeypatch.setattr(shop._channel, "within", within)
        monkeypatch.setattr(publisher, "wait_confirmed", late)
        await shop.publish_many("", "jobs", [b"", b""])
        with pytest.raises(QueueFull):
            await shop.publish_many("", "tight", [b"", b""])
