"""What a broker does by itself once its disk has failed: it stays, as `--keep-going` says.

On a memory disk, in virtual time.
"""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from durable.broker.capture import Capture
from durable.broker.confirms import Confirms
from durable.broker.peer import Peer
from durable.broker.publishing import _Session as Session
from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.definitions import StreamDefinition
from durable.errors import StoreFailed
from durable.log.faulty_disk import Faults
from durable.log.memory_disk import Volume
from durable.protocol.parts import encode_confirm
from durable.queues.consumers import Consumer
from durable.queues.queue import REJECT
from durable.vhost import changes
from tests.integration.durable.test_too_large import (
    Publisher,
    declare,
    first_of,
    graves,
    make,
    publish,
    published,
)
from tests.power_cuts import CONFIG, run
from tests.vhosts import PUBLISHER, make_batch
from tests.waiting import virtual_sleep


def reject_one(running: RunningVhost) -> None:
    queue, consumer = (
        running.vhost.registry.queue("jobs"),
        Consumer("c", prefetch=1, prefetch_bytes=0),
    )
    queue.subscribe(consumer)
    (delivery,) = queue.take(0)
    queue.settle(consumer, delivery.tag, delivery.tag + 1, REJECT)
    queue.unsubscribe(consumer, 0)
    running.wake(queue)


@pytest.mark.parametrize("what", ["sync", "write"])
def test_what_dies_is_captured_or_expires_after_a_failure_ends_nothing(what: str) -> None:
    """Found by reading: each of the tasks that append by themselves ended the broker."""
    faults = Faults()

    async def life(running: RunningVhost) -> None:
        await graves(running)
        await declare(running, "idle", expires_s=5 * CONFIG.idle_s)
        stream = StreamDefinition(name="all", patterns=("live.>",))
        await make(
            running, changes.STREAM, *running.vhost.registry.new_lanes(stream), to_plain(stream)
        )
        await publish(running, make_batch(0, [b"a", b"b"], key="jobs"))
        if what == "sync":
            faults.sync_error_at = faults.syncs + 1
        else:
            faults.write_error = errno.EIO
        with pytest.raises(StoreFailed):
            await declare(running, "never")
        reject_one(running)
        async with trio.open_nursery() as nursery:
            capture = Capture(running, Publisher(published(0, [5])), 1)  # type: ignore[arg-type]
            nursery.start_soon(capture.run)
            await virtual_sleep(10 * CONFIG.idle_s)
            nursery.cancel_scope.cancel()
        assert (await first_of(running, "jobs")).payloads == [b"a", b"b"]

    run(Volume(), life, faults)


def test_a_disk_that_cannot_be_read_has_failed_and_nothing_is_settled() -> None:
    """Found: it ended the broker with a stack trace. What cannot be read today is not lost."""
    faults, volume = Faults(), Volume()

    async def life(running: RunningVhost) -> None:
        await graves(running)
        await publish(running, make_batch(0, [b"a", b"b"], key="jobs"))
        running.vhost.bodies.recent_bytes_max = 0
        await publish(running, make_batch(2, [b"c"], key="jobs"))
        faults.read_error = errno.EIO
        reject_one(running)
        await virtual_sleep(1)
        with pytest.raises(StoreFailed, match="reading failed"):
            await declare(running, "never")

    async def next_life(running: RunningVhost) -> None:
        assert (await first_of(running, "jobs")).payloads == [b"a", b"b"]

    run(volume, life, faults)
    run(volume, next_life)


class Told:
    """The tunnel of a publisher's session: what that was told."""

    part_bytes_max = 1 << 16

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def send_nowait(self, part: bytes) -> None:
        self.parts.append(part)


def session_of(running: RunningVhost, publisher: bytes, tunnel: Told) -> Session:
    peer = Peer("shop", running.vhost.registry.permissions, b"")
    spinner: Any = SimpleNamespace(answered=lambda: None)
    there = running.vhost.publishers.open(publisher, 1, 0)
    confirms = Confirms(cast("Any", tunnel), running, there, spinner)
    running.attach_publisher(there, confirms)
    return Session(running, peer, there, confirms)


def test_what_comes_again_after_a_failure_is_answered_although_nothing_of_it_is_appended() -> None:
    """Found: all of it was known already, and no turn came that would have told; its publisher waited for ever."""
    faults = Faults()

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        await declare(running, "held", durability="memory")
        await running.log._wait_ready()
        batch, lost = (make_batch(first, [b"a", b"b"], key="jobs") for first in (0, 2))
        await publish(running, batch)
        faults.sync_error_at = faults.syncs + 1
        with pytest.raises(StoreFailed):
            session = session_of(running, PUBLISHER, Told())
            session.publish([lost])
            await session._confirms.run()
        again = session_of(running, PUBLISHER, stored := Told())
        again.publish([batch])
        assert stored.parts == [encode_confirm(2, [])], "that was on disk before"
        again.publish([lost])
        with trio.fail_after(1), pytest.raises(StoreFailed, match="a commit failed"):
            await again._confirms.run()
        held = session_of(running, b"q" * 16, kept := Told())
        held.publish([make_batch(0, [b"c"], publisher=b"q" * 16, key="held")])
        assert kept.parts == [encode_confirm(1, [])], "it goes on without a disk"

    run(Volume(), life, faults)
