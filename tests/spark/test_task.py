"""One task of the sink, under a clock that jumps: what is sent when, without Spark."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from tests.waiting import virtual_sleep

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import numpy as np
import pyarrow as pa

import mesh
from durable.errors import BrokerLost, QueueFull
from spark.sink import publishing
from spark.sink.errors import Disordered, SendingFailed, Unreachable
from spark.sink.messages import Address, Messages
from spark.sink.noting import read_progress
from spark.sink.numbering import Ints
from spark.sink.options import read_sink_options
from spark.sink.publishing import PACED_ROWS, Identity, Task
from spark.sink.targets import Target

LEAD_US = 3_000_000


class Noting(Target):
    """What was sent when, by the clock that jumps; each row takes `row_s`."""

    def __init__(self, row_s: float = 0.0) -> None:
        super().__init__()
        self.sent: list[tuple[float, int, int]] = []
        self._row_s = row_s

    async def send(self, messages: Messages, sequences: Ints, low: int, high: int) -> None:
        self.sent.append((trio.current_time(), low, high))
        self.counts.sent += high - low
        await trio.lowlevel.checkpoint()
        if self._row_s:
            await virtual_sleep(self._row_s * (high - low))

    async def finish(self) -> None:
        await trio.lowlevel.checkpoint()


def messages(times_us: list[int]) -> Messages:
    count = len(times_us)
    return Messages(
        [b"x"] * count, None, [Address("", "jobs", "jobs", 0)], np.zeros(count, np.int64),
        None, np.array(times_us, np.int64), 0,
    )  # fmt: skip


def task(target: Target, **options: str) -> Task:
    start_us = time.time_ns() // 1000 + LEAD_US
    given = {"originMicros": "0", "startMicros": str(start_us), **options}
    return Task(read_sink_options(given), Identity("p/0", 0, 0), target)


async def test_messages_leave_when_they_are_due_and_together_when_they_are_together(
    autojump_clock: MockClock,
) -> None:
    """0, 0, 1 and 5 s at ten times the speed."""
    target = Noting()
    begun = trio.current_time()
    one = task(target, speed="10")
    await one.send(messages([0, 0, 1_000_000]))
    await one.send(messages([5_000_000]))
    assert [(low, high) for _, low, high in target.sent] == [(0, 2), (2, 3), (0, 1)]
    found = [at - begun for at, _, _ in target.sent]
    since = [at - found[0] for at in found]
    assert np.allclose(since, [0.0, 0.1, 0.5], atol=1e-5)
    assert 0 < found[0] <= LEAD_US / 1e6
    assert one.result().lateness.percentile_us(100) <= 2


async def test_who_is_behind_sends_pieces_and_tells_how_late_they_are(
    autojump_clock: MockClock,
) -> None:
    """All is due at once and takes 1 ms a row: the last piece is as late as those before it took."""
    target = Noting(row_s=0.001)
    one = task(target, speed="1")
    await one.send(messages([0] * 1000))
    assert [high - low for _, low, high in target.sent] == [PACED_ROWS] * 3 + [
        1000 - 3 * PACED_ROWS
    ]
    late = one.result().lateness
    assert sum(late.counts.values()) == 1000
    assert 0.98 <= late.percentile_us(100) / (3 * PACED_ROWS * 1000) <= 1.03


async def test_a_rate_is_kept(autojump_clock: MockClock) -> None:
    target = Noting()
    await task(target, ratePerTask="100").send(messages([0] * 50))
    at = [one for one, _, _ in target.sent]
    assert np.allclose(np.diff(at), 0.01, atol=1e-5)


class Stalling(Noting):
    """Takes 3 s for its 20th row, as while a broker is restarted."""

    async def send(self, messages: Messages, sequences: Ints, low: int, high: int) -> None:
        await super().send(messages, sequences, low, high)
        if low < 20 <= high:
            await virtual_sleep(3)


async def test_a_rate_alone_makes_up_for_no_stall(autojump_clock: MockClock) -> None:
    """100 a second: 2.99 s are lost, but for 20 ms, and the report says so."""
    target = Stalling()
    one = task(target, ratePerTask="100")
    await one.send(messages([0] * 40))
    await one.send(messages([0] * 10))
    at = np.repeat([when for when, _, _ in target.sent], [b - a for _, a, b in target.sent])
    assert len(at) == 50
    within = [((at >= one) & (at < one + 0.0999)).sum() for one in at]
    assert max(within) <= 13, "a tenth of a second, and what 20 ms are worth"
    assert at[-1] - at[0] >= 49 * 0.01 + 2.96
    assert one.result().lateness.percentile_us(100) >= 2.9e6


async def test_with_a_speed_what_a_stall_held_up_leaves_at_once(autojump_clock: MockClock) -> None:
    target = Stalling()
    await task(target, speed="1").send(messages(list(range(0, 500_000, 10_000))))
    assert target.sent[-1][1:] == (20, 50)


async def test_a_task_on_another_machine_than_the_driver_has_nowhere_to_note_how_far_it_is(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    target = Noting(row_s=1.0)
    one = task(target, progress=str(tmp_path / "of the driver"))
    await one.send(messages([0] * 2))
    await one.send(messages([0]))
    assert [high - low for _, low, high in target.sent] == [2, 1]


class Numbering(Noting):
    """The sequences that rows had."""

    def __init__(self) -> None:
        super().__init__()
        self.sequences: list[int] = []

    async def send(self, messages: Messages, sequences: Ints, low: int, high: int) -> None:
        await super().send(messages, sequences, low, high)
        self.sequences += sequences[low:high].tolist()


def of_two_queues(queues: list[int], offsets: list[int]) -> Messages:
    addresses = [Address("", name, name, 0) for name in ("jobs", "mail")]
    return messages([0] * len(queues))._replace(
        addresses=addresses, address_index=np.array(queues), offsets=np.array(offsets, np.int64)
    )


async def test_rows_have_their_offsets_as_sequences_whatever_is_left_out(
    autojump_clock: MockClock,
) -> None:
    """In the order of each queue, of which there are two."""
    target = Numbering()
    one = task(target, numbering="offsets", id="r")
    await one.send(of_two_queues([0, 1, 0, 1], [3, 0, 5, 1]))
    await one.send(of_two_queues([1, 0, 0], [9, 6, 8]))
    assert target.sequences == [3, 0, 5, 1, 9, 6, 8]
    assert sorted(one.result().lanes) == ["jobs/0", "mail/0"]
    with pytest.raises(Disordered, match="mail/0"):
        await one.send(of_two_queues([0, 1], [9, 9]))


async def test_rows_without_offsets_are_numbered_on(autojump_clock: MockClock) -> None:
    target = Numbering()
    one = task(target)
    await one.send(messages([0] * 3))
    await one.send(messages([0] * 2))
    assert target.sequences == [0, 1, 2, 3, 4]


async def test_what_was_left_out_is_done_and_not_sent(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    target = Noting(row_s=1.0)
    one = task(target, progress=str(tmp_path))
    target.counts.duplicates = 30
    await one.send(messages([0] * 2)._replace(skipped=500))
    assert read_progress(tmp_path) == (532, 2)


class Losing(Noting):
    """Loses its broker at one of three places."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    async def send(self, messages: Messages, sequences: Ints, low: int, high: int) -> None:
        if self.where == "sending" and self.sent:
            raise BrokerLost("broker", "on purpose")
        await super().send(messages, sequences, low, high)

    async def finish(self) -> None:
        await super().finish()
        if self.where == "finishing":
            raise BrokerLost("broker", "on purpose")

    @asynccontextmanager
    async def open_target(self, *_: Any) -> AsyncGenerator[Target]:
        if self.where == "opening":
            raise BrokerLost("broker", "on purpose")
        yield self
        if self.where == "closing":
            raise BrokerLost("broker", "on purpose")


async def test_what_was_refused_is_told_with_how_many_were(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Found: of a replay of which a full queue took nothing, that all had been sent."""

    class Refusing(Noting):
        async def finish(self) -> None:
            error = QueueFull("jobs", 1, None)
            error.add_note("2 messages were refused")
            raise error

        @asynccontextmanager
        async def open_target(self, *_: Any) -> AsyncGenerator[Target]:
            yield self

    monkeypatch.setattr(publishing, "open_target", Refusing().open_target)
    rows = pa.record_batch({"topic": ["orders"], "value": [b"x"]})
    node, options = cast("mesh.Node", None), read_sink_options({})
    with pytest.raises(SendingFailed, match=r"jobs.*; 2 messages were refused \(2 messages of"):
        await publishing._publish(node, iter([rows, rows]), options, Identity("p/0", 0, 0))


@pytest.mark.parametrize(
    ("where", "kind", "told"),
    [
        ("opening", Unreachable, "the mesh cannot be reached"),
        ("sending", SendingFailed, "1 messages of this task had been handed over"),
        ("finishing", SendingFailed, "2 messages of this task had been handed over"),
        ("closing", SendingFailed, "2 messages of this task had been handed over"),
    ],
)
async def test_a_broker_that_is_lost_is_told_with_what_had_been_sent(
    monkeypatch: pytest.MonkeyPatch, where: str, kind: type[Exception], told: str
) -> None:
    monkeypatch.setattr(publishing, "open_target", Losing(where).open_target)
    rows = pa.record_batch({"topic": ["orders"], "value": [b"x"]})
    node, options = cast("mesh.Node", None), read_sink_options({})
    with pytest.raises(kind, match=f"on purpose.*{told}|{told}.*on purpose"):
        await publishing._publish(node, iter([rows, rows]), options, Identity("p/0", 0, 0))
