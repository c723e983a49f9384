"""Queues that go, and what had died in them: where they go by themselves, it is dead-lettered first.

On a memory disk with segments of 8 KiB, in virtual time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from durable.broker.control import Control
from durable.broker.peer import Peer
from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.errors import InUse, StoreFull
from durable.log.memory_disk import Volume
from durable.protocol.listing import read_listing
from durable.queues.consumers import Consumer
from durable.queues.queue import REJECT
from tests.integration.durable.test_full_disk import SEGMENT, fill
from tests.integration.durable.test_too_large import declare, publish, ready
from tests.power_cuts import CONFIG, Cuts, Ledger, run
from tests.vhosts import flushed, make_batch, settle_ready
from tests.waiting import until, virtual_sleep

TO_GRAVES = {"dead_letter_exchange": "", "dead_letter_routing_key": "graves"}
SMALL_DISK = 4 * SEGMENT + SEGMENT // 2


def reject_all(running: RunningVhost, name: str) -> None:
    """By a consumer that then leaves."""
    queue = running.vhost.registry.queue(name)
    settle_ready(queue, REJECT, running.clock.now_us())
    running.wake(queue)


def paused() -> Consumer:
    """One that is there and gets nothing."""
    consumer = Consumer("p", prefetch=0, prefetch_bytes=0)
    consumer.paused = True
    return consumer


def control(running: RunningVhost) -> Control:
    peer = Peer("shop", running.vhost.registry.permissions, b"s" * 16)
    return Control(running, peer, cast("Any", None), cast("Any", None))


async def becomes(running: RunningVhost, wanted: dict[str, int]) -> None:
    await until(lambda: ready(running) == wanted, 100 * CONFIG.idle_s)


async def go(running: RunningVhost, why: str) -> None:
    """What makes `jobs` go, right after what was in it was rejected."""
    queue = running.vhost.registry.queue("jobs")
    if why == "auto_delete":
        await running.consumer_left(queue)
    elif why == "exclusive":
        await running.delete_exclusive([queue.lanes[0].id])


@pytest.mark.parametrize(
    ("why", "settings"),
    [
        ("auto_delete", {"auto_delete": True}),
        ("auto_delete", {"auto_delete": True, "durability": "memory"}),
        ("exclusive", {"exclusive": True}),
        ("expires_s", {"expires_s": CONFIG.idle_s / 2}),
    ],
)
def test_what_was_rejected_is_dead_lettered_before_its_queue_goes(
    why: str, settings: dict[str, Any]
) -> None:
    """Found: of 1000 that a client rejected and synced before it left, 94 were in the other queue."""

    async def life(running: RunningVhost) -> None:
        await declare(running, "graves")
        await declare(running, "jobs", **settings, **TO_GRAVES)
        for number in range(0, 100, 5):
            await publish(running, make_batch(number, [b"x"] * 5, key="jobs"))
        reject_all(running, "jobs")
        await go(running, why)
        await becomes(running, {"graves": 100})

    volume = Volume()
    run(volume, life)
    run(volume, partial(becomes, wanted={"graves": 100}))


@pytest.mark.parametrize("used", [True, False])
def test_a_queue_that_somebody_uses_stays_although_the_loop_was_late(used: bool) -> None:
    """Found by reading: a broker that was stopped for longer than `expires_s` deleted it, with the call that used it
    there to be read."""
    expires_s = 3 * CONFIG.idle_s

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs", expires_s=expires_s)
        await publish(running, make_batch(0, [b"x"], key="jobs"))
        queue, clock = running.vhost.registry.queue("jobs"), trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(2 * expires_s)
        await virtual_sleep(CONFIG.idle_s / 2)
        if used:
            queue.note_use(running.clock.now_us())
        await virtual_sleep(CONFIG.idle_s)
        assert ready(running) == ({"jobs": 1} if used else {})
        await virtual_sleep(expires_s + 2 * CONFIG.idle_s)
        assert ready(running) == {}, "nobody uses it any more"

    run(Volume(), life)


@pytest.mark.parametrize("why", ["auto_delete", "expires_s"])
def test_on_a_full_disk_a_queue_stays_until_its_dead_are_forwarded(why: str) -> None:
    """And goes then, although nobody does anything with it any more."""
    settings: dict[str, dict[str, Any]] = {
        "auto_delete": {"auto_delete": True}, "expires_s": {"expires_s": CONFIG.idle_s / 2},
    }  # fmt: skip
    volume = Volume(capacity_bytes=SMALL_DISK)

    async def life(running: RunningVhost) -> None:
        await declare(running, "graves")
        await declare(running, "jobs", **settings[why], **TO_GRAVES)
        queue, consumer = running.vhost.registry.queue("jobs"), paused()
        queue.subscribe(consumer)  # Or it would expire.
        published = await fill(running, 300)
        volume.capacity_bytes = volume.used_bytes
        queue.unsubscribe(consumer, running.clock.now_us())
        reject_all(running, "jobs")
        await go(running, why)
        await virtual_sleep(10 * CONFIG.idle_s)
        copied = ready(running)["graves"]
        assert copied < published, "what is kept for copies does not take all"
        assert ready(running)["jobs"] == 0, "it is still there"
        volume.capacity_bytes *= 4
        await becomes(running, {"graves": published})

    run(volume, life)


def test_a_queue_goes_later_where_there_was_no_room_to_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: its last consumer's session raised StoreFull, and nobody tried again."""

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs", auto_delete=True)
        with monkeypatch.context() as patch:
            patch.setattr(running.vhost, "change", full)
            reject_all(running, "jobs")
            await go(running, "auto_delete")
            await virtual_sleep(3 * CONFIG.idle_s)
            assert ready(running) == {"jobs": 0}
        await becomes(running, {})

    def full(*_: object) -> int:
        raise StoreFull(1, 2, 0)

    run(Volume(), life)


def test_a_queue_whose_dead_wait_is_not_empty() -> None:
    """Found: on a full disk it was deleted, 23 dead letters with it, and the answer was 0."""
    volume = Volume(capacity_bytes=SMALL_DISK)

    async def life(running: RunningVhost) -> None:
        await declare(running, "graves")
        await declare(running, "jobs", **TO_GRAVES)
        published = await fill(running, 300)
        volume.capacity_bytes = volume.used_bytes
        reject_all(running, "jobs")
        await flushed(running)
        why = f"{published} messages, {published} of them to be dead-lettered; .* without if_empty$"
        with pytest.raises(InUse, match=why):
            await control(running).delete_queue("jobs", if_empty=True)
        (queue,) = [
            some["queues"]["jobs"]
            for some in read_listing(await control(running).statistics())
            if some.get("queues")
        ]
        assert (queue["ready"], queue["unacked"], queue["dead"]) == (0, 0, published)
        volume.capacity_bytes *= 4
        await becomes(running, {"graves": published, "jobs": 0})
        assert await control(running).delete_queue("jobs", if_empty=True) == 0

    run(volume, life)


def test_a_queue_that_is_used_again_stays() -> None:
    async def life(running: RunningVhost) -> None:
        await declare(running, "graves")
        await declare(running, "jobs", auto_delete=True, **TO_GRAVES)
        await publish(running, make_batch(0, [b"x"] * 2, key="jobs"))
        queue, consumer = running.vhost.registry.queue("jobs"), paused()
        reject_all(running, "jobs")
        await running.consumer_left(queue)
        queue.subscribe(consumer)
        await becomes(running, {"graves": 2, "jobs": 0})
        await virtual_sleep(3 * CONFIG.idle_s)
        assert queue not in running.auto_deletions
        queue.unsubscribe(consumer, 0)
        await running.consumer_left(queue)
        assert ready(running) == {"graves": 2}

    run(Volume(), life)


def test_a_queue_that_is_declared_again_stays() -> None:
    """Else it would go right after its next user was told that it is there."""
    volume = Volume(capacity_bytes=SMALL_DISK)

    async def life(running: RunningVhost) -> None:
        await declare(running, "graves")
        await declare(running, "jobs", auto_delete=True, **TO_GRAVES)
        published = await fill(running, 300)
        volume.capacity_bytes = volume.used_bytes
        reject_all(running, "jobs")
        await go(running, "auto_delete")
        definition = running.vhost.registry.queue("jobs").definition
        await control(running).declare_queue(to_plain(definition))
        volume.capacity_bytes *= 4
        await becomes(running, {"graves": published, "jobs": 0})
        await virtual_sleep(3 * CONFIG.idle_s)
        assert "jobs" in ready(running)

    run(volume, life)


def test_queues_that_go_at_once_share_the_syncs_of_the_disk() -> None:
    """Found: each waited for its own, and time did nothing else meanwhile."""

    async def life(running: RunningVhost) -> None:
        for number in range(250):
            await declare(running, f"idle {number}", expires_s=CONFIG.idle_s / 2)
        before = running.log.statistics().commits
        await becomes(running, {})
        assert running.log.statistics().commits - before < 25

    run(Volume(), life)


def test_what_was_in_a_queue_that_is_deleted_while_it_is_dead_lettered_is_not_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found: 271 lost, and an error for each, of segments that had been freed with the queue."""

    async def life(running: RunningVhost) -> None:
        for name in ("jobs", "fast"):
            await declare(running, name, dead_letter_exchange="nowhere" if name == "jobs" else None)
        for number in range(330):
            name, size = ("jobs", 100) if number < 300 else ("fast", 400)
            await publish(running, make_batch(number, [bytes(size)], key=name))
        reject_all(running, "fast")
        await virtual_sleep(3 * CONFIG.idle_s)
        queue, died = running.vhost.registry.queue("jobs"), running.vhost.intake.counts
        reject_all(running, "jobs")
        while not died.dropped:
            await trio.lowlevel.checkpoint()
        await running.delete_queue(queue, "a test")
        await running.log.free()
        assert 0 < died.dropped < 300
        await virtual_sleep(3 * CONFIG.idle_s)
        assert not running.batch_reader.lost

    run(Volume(), life, config=replace(CONFIG, recent_bytes=1))
    assert "cannot be read" not in caplog.text


def test_no_power_cut_finds_a_queue_gone_and_its_dead_nowhere() -> None:
    volume, ledger = Volume(), Ledger()
    cuts = Cuts(volume, ledger, seeds=3)

    async def life(running: RunningVhost) -> None:
        await declare(running, "graves")
        await declare(running, "jobs", auto_delete=True, **TO_GRAVES)
        for number in range(5):
            await publish(running, make_batch(number, [b"x"], key="jobs"))
            ledger.confirmed += 1
        reject_all(running, "jobs")
        await go(running, "auto_delete")
        await becomes(running, {"graves": 5})

    async def all_there(running: RunningVhost, ledger: Ledger) -> None:
        assert sum(ready(running).values()) >= ledger.confirmed

    run(volume, life, cuts)
    assert len(cuts.left) > 30
    for left, known in cuts.left:
        run(left, partial(all_there, ledger=known))
