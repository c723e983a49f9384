"""Rows to topics: each topic's in their order, whatever queues and exchanges they were captured in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

import numpy as np

import mesh
from spark.sink.errors import Unreachable
from spark.sink.messages import Address, Messages
from spark.sink.targets import TopicsTarget
from tests.driving import Ticking, driving
from tests.waiting import until, virtual_sleep

addresses = st.builds(
    Address, st.sampled_from(["", "x"]), st.sampled_from("abc"), st.sampled_from("pq"), st.just(0)
)


class Node:
    """What has been published, by topic."""

    def __init__(self) -> None:
        self.published: defaultdict[str, list[tuple[bytes, bytes]]] = defaultdict(list)

    async def publish_many(
        self, topic: str, payloads: Sequence[bytes], *, headers: Sequence[bytes]
    ) -> None:
        await trio.lowlevel.checkpoint()
        self.published[topic] += zip(payloads, headers, strict=True)

    async def wait_sent(self, waiting_bytes: int = 0) -> None:
        await trio.lowlevel.checkpoint()

    def statistics(self) -> Any:
        return SimpleNamespace(publishing=SimpleNamespace(nobody=0, dropped=0))


class Slow(Node):
    """Its loop is blocked while members take what was published."""

    def __init__(self) -> None:
        super().__init__()
        self.driver, self.sent = driving(Ticking()), False
        self.within = self.driver.within

    async def wait_sent(self, waiting_bytes: int = 0) -> None:
        while not self.sent:
            await virtual_sleep(0.01)  # As a node does.


@given(st.lists(addresses, min_size=1, max_size=30), st.integers(1, 9))
def test_each_topic_has_its_rows_in_order(rows: list[Address], at_a_time: int) -> None:
    """Found: of one topic first came what one queue had of it, and then what the other had."""
    count = len(rows)
    distinct = sorted(set(rows))
    sequences = np.arange(count)
    messages = Messages(
        [b"%d" % one for one in range(count)], [b"h%d" % one for one in range(count)], distinct,
        np.array([distinct.index(one) for one in rows]), None, sequences, 0,
    )  # fmt: skip
    node = Node()
    target = TopicsTarget(cast("mesh.Node", node), 1.0)

    async def send() -> None:
        for low in range(0, count, at_a_time):
            await target.send(messages, sequences, low, min(count, low + at_a_time))

    trio.run(send)
    expected: defaultdict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
    for number, one in enumerate(rows):
        expected[one.key].append((b"%d" % number, b"h%d" % number))
    assert node.published == expected
    assert target.counts.sent == count


@pytest.mark.parametrize("taken", [True, False])
async def test_what_members_take_while_the_loop_is_blocked_is_taken_in_time(
    taken: bool, mock_clock: MockClock
) -> None:
    """Found by reading: a job failed, of which all was with its members."""
    node = Slow()
    target = TopicsTarget(cast("mesh.Node", node), 1.0)
    ends: list[type[BaseException] | None] = []

    async def finish() -> None:
        try:
            await target.finish()
        except Unreachable as error:
            ends.append(type(error))
        else:
            ends.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.driver._run_timers)
        nursery.start_soon(finish)
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        node.sent = taken
        mock_clock.autojump_threshold = 0
        await until(lambda: ends)
        nursery.cancel_scope.cancel()
    assert ends == [None if taken else Unreachable]
