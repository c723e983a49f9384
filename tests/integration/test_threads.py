"""Threads reach a node as docs/guide.md says."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from threading import Thread
from typing import Any

import trio

from mesh import MeshError, WrongThread
from mesh.statistics import NodeStatistics
from tests.brokers import client, serving
from tests.nodes import node


async def told_elsewhere(
    names: Iterable[str], attempt: Callable[[str], object]
) -> dict[str, Exception]:
    """What `attempt` of each of them raises in a thread of its own."""
    told: dict[str, Exception] = {}

    def foreign() -> None:
        for name in names:
            try:
                attempt(name)
            except (
                MeshError, AssertionError, AttributeError, RuntimeError, StopIteration
            ) as error:  # fmt: skip
                told[name] = error

    thread = Thread(target=foreign)
    thread.start()
    await trio.to_thread.run_sync(thread.join)
    return told


async def test_other_threads_go_through_trio() -> None:
    async with node("x") as one, one.subscribe("t") as messages:
        token = trio.lowlevel.current_trio_token()

        def of_trio() -> NodeStatistics:
            trio.from_thread.run(one.publish, "t", b"waits")
            trio.from_thread.run_sync(one.publish_nowait, "t", b"does not")
            return trio.from_thread.run_sync(one.statistics)

        def foreign() -> None:
            trio.from_thread.run(one.publish, "t", b"with a token", trio_token=token)

        assert isinstance(await trio.to_thread.run_sync(of_trio), NodeStatistics)
        thread = Thread(target=foreign)
        thread.start()
        with trio.fail_after(5):
            got = [(await anext(messages)).payload for _ in range(3)]
        await trio.to_thread.run_sync(thread.join)
    assert got == [b"waits", b"does not", b"with a token"]


async def test_what_the_durable_tier_asks_and_publishes_belongs_to_that_thread_too(
    tmp_path: Path,
) -> None:
    """Found: it waited for ever, and ended the node as crashed, or raised an AssertionError without a word."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"ours")

        async def consume() -> None:
            async with shop.consume("jobs"):
                raise AssertionError("it was entered")

        verbs: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "publish": lambda: shop.publish("", "jobs", b"x"),
            "publish_many": lambda: shop.publish_many("", "jobs", [b"x"]),
            "statistics": shop.statistics,
            "consume": consume,
        }

        told = await told_elsewhere(verbs, lambda name: trio.run(verbs[name]))
        assert {name: type(error) for name, error in told.items()} == dict.fromkeys(
            verbs, WrongThread
        )
        await shop.publish("", "jobs", b"ours again")
        assert (await shop.statistics())["queues"]["jobs"]["ready"] == 2


async def test_a_foreign_thread_is_told_how_before_anything_is_sent() -> None:
    """Found: `publish` raised when the message was on its way, and from then on nothing was raised."""
    async with node("x") as one, one.subscribe("t") as messages:
        await one.publish("t", b"ours")
        with trio.fail_after(5):
            await messages.take()
        verbs: dict[str, Callable[[], Any]] = {
            "publish": lambda: one.publish("t", b"x"),
            "publish a new topic": lambda: one.publish("u", b"x"),
            "publish_nowait": lambda: one.publish_nowait("t", b"x"),
            "publish_nowait a new topic": lambda: one.publish_nowait("v", b"x"),
            "publish_many": lambda: one.publish_many("t", [b"x"]),
            "request": lambda: one.request("x", b"x"),
            "gather": lambda: one.gather("x", b"x"),
            "broadcast": lambda: one.broadcast("x", b"x"),
            "run_beside": lambda: one.run_beside(trio.sleep_forever),
        }

        def attempt(name: str) -> None:
            made = verbs[name]()
            if isinstance(made, Coroutine):
                made.send(None)

        told = await told_elsewhere(verbs, attempt)
        assert {name: type(error) for name, error in told.items()} == dict.fromkeys(
            verbs, WrongThread
        )
        assert "trio.from_thread.run(" in str(told["publish"])
        await one.publish("t", b"ours again")
        with trio.fail_after(5):
            assert (await messages.take()).payloads == [b"ours again"]
