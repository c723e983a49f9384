"""What a broker does by itself once its disk has failed: it stays, as `--keep-going` says.

On a memory disk, in virtual time.
"""

from __future__ import annotations

import errno

import pytest
import trio

from durable.broker.capture import Capture
from durable.broker.hosted import Hosted
from durable.definition_forms import to_plain
from durable.definitions import StreamDefinition
from durable.errors import StoreFailed
from durable.log.faulty_disk import Faults
from durable.log.memory_disk import Volume
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
from tests.vhosts import make_batch
from tests.waiting import virtual_sleep


def reject_one(hosted: Hosted) -> None:
    queue, consumer = (
        hosted.vhost.registry.queue("jobs"),
        Consumer("c", prefetch=1, prefetch_bytes=0),
    )
    queue.subscribe(consumer)
    (delivery,) = queue.take(0)
    queue.settle(consumer, delivery.tag, delivery.tag + 1, REJECT)
    queue.unsubscribe(consumer, 0)
    hosted.wake(queue)


@pytest.mark.parametrize("what", ["sync", "write"])
def test_what_dies_is_captured_or_expires_after_a_failure_ends_nothing(what: str) -> None:
    """Found by reading: each of the tasks that append by themselves ended the broker."""
    faults = Faults()

    async def life(hosted: Hosted) -> None:
        await graves(hosted)
        await declare(hosted, "idle", expires_s=5 * CONFIG.idle_s)
        stream = StreamDefinition(name="all", patterns=("live.>",))
        await make(
            hosted, changes.STREAM, *hosted.vhost.registry.new_lanes(stream), to_plain(stream)
        )
        await publish(hosted, make_batch(0, [b"a", b"b"], key="jobs"))
        if what == "sync":
            faults.sync_error_at = faults.syncs + 1
        else:
            faults.write_error = errno.EIO
        with pytest.raises(StoreFailed):
            await declare(hosted, "never")
        reject_one(hosted)
        async with trio.open_nursery() as nursery:
            capture = Capture(hosted, Publisher(published(0, [5])), 1)  # type: ignore[arg-type]
            nursery.start_soon(capture.run)
            await virtual_sleep(10 * CONFIG.idle_s)
            nursery.cancel_scope.cancel()
        assert (await first_of(hosted, "jobs")).payloads == [b"a", b"b"]

    run(Volume(), life, faults)


def test_a_disk_that_cannot_be_read_has_failed_and_nothing_is_settled() -> None:
    """Found: it ended the broker with a stack trace. What cannot be read today is not lost."""
    faults, volume = Faults(), Volume()

    async def life(hosted: Hosted) -> None:
        await graves(hosted)
        await publish(hosted, make_batch(0, [b"a", b"b"], key="jobs"))
        hosted.vhost.bodies.recent_bytes_max = 0
        await publish(hosted, make_batch(2, [b"c"], key="jobs"))
        faults.read_error = errno.EIO
        reject_one(hosted)
        await virtual_sleep(1)
        with pytest.raises(StoreFailed, match="reading failed"):
            await declare(hosted, "never")

    async def next_life(hosted: Hosted) -> None:
        assert (await first_of(hosted, "jobs")).payloads == [b"a", b"b"]

    run(volume, life, faults)
    run(volume, next_life)
