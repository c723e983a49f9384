"""Threads reach a node as docs/guide.md says."""

from __future__ import annotations

from threading import Thread

import trio

from mesh.statistics import NodeStatistics
from tests.nodes import node


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
