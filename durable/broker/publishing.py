"""A publisher's session: receives parts of batches, and stores or refuses them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from secrets import randbelow
from typing import Any

import trio

from mesh.errors import TooLarge
from mesh.nursery import open_nursery
from mesh.protocol.batch import NUMBERS_END, Batch
from mesh.spinning import spinner_of_this_run
from mesh.tunnel import Tunnel

from ..errors import (
    Malformed,
    RecordTooLarge,
    StoreBusy,
    StoreFailed,
    StoreFull,
)
from ..log.bodies import PUBLISHER_BYTES
from ..log.record import ALIGNMENT, HEADER_BYTES, TARGET_BYTES
from ..protocol.calls import Answer, Hello, encode_answer
from ..protocol.parts import decode_batches
from ..vhost.publishers import Publisher
from .confirms import Confirms
from .peer import Peer
from .running_vhost import RunningVhost

RECORD_BYTES = HEADER_BYTES + TARGET_BYTES + ALIGNMENT
"""Maximum number of bytes that the record of a batch to one queue takes besides the batch."""

BATCHES_MAX = 1000
"""Batches stored in one turn: 20 ms, when they are small."""

PIECES = 8
"""Number of pieces into which a part is divided that is more than a segment can take. Each piece is planned
again, and waits for the next segment by itself."""

EPOCH_STEP = 1 << 20
"""Upper bound of the random step of epochs. They are times in ns where nothing else is known, so the bound is
about a millisecond."""


async def serve_publisher(tunnel: Tunnel, hello: Hello, running: RunningVhost, peer: Peer) -> None:
    """Serve one publisher until the client ends the session.

    Raises:
        DurableError: why it was refused, or ended.
    """
    publisher = _open(hello, running, peer)
    spinner = spinner_of_this_run()
    spinner.attach()
    confirms = Confirms(tunnel, running, publisher, spinner)
    session = _Session(running, peer, publisher, confirms)
    running.attach_publisher(publisher, confirms)
    try:
        await tunnel.send(encode_answer(Answer(0, _publisher_state(publisher))))
        async with open_nursery() as nursery:
            nursery.start_soon(confirms.run)
            commit = running.log.commit_nowait
            while (part := await tunnel.each(session.take, commit)) is not None:
                await confirms.catch_up()
                await session.take_with_room(part)
            nursery.cancel_scope.cancel()
    finally:
        running.detach_publisher(publisher, confirms)


def _open(hello: Hello, running: RunningVhost, peer: Peer) -> Publisher:
    token, oldest = hello.field("publisher", bytes), hello.field("oldest", int)
    publisher_id, publishers = _publisher_id(token, peer.cluster), running.vhost.publishers
    epoch = hello.field("epoch", int, None)
    if epoch is None:
        epoch = publishers.next_epoch(publisher_id, running.clock.now_us(), randbelow(EPOCH_STEP))
    numbers = range(NUMBERS_END)
    if len(token) != PUBLISHER_BYTES or epoch not in numbers or oldest not in numbers:
        raise Malformed("a hello with invalid fields of a publisher")
    stops = hello.field("stops", bool, False)
    return publishers.open(publisher_id, epoch, oldest, stops=stops, cluster=peer.cluster)


def _publisher_id(token: bytes, cluster: str) -> bytes:
    """Return the id of a publisher that `cluster` names by `token`. The cluster is part of it: names can be
    guessed, and consumers see ids, so another cluster could otherwise fence this publisher off, and make
    messages that it has yet to send pass for stored."""
    return blake2b(token, digest_size=PUBLISHER_BYTES, key=cluster.encode()).digest()


def _publisher_state(publisher: Publisher) -> dict[str, Any]:
    """Return what a client need not send again: everything before `decided`, except the holes. Holes before
    `floor` are not known any more."""
    decided = publisher.confirmed
    holes = [(low, min(high, decided)) for low, high in publisher.holes if low < decided]
    return {
        "publisher": publisher.id, "epoch": publisher.epoch, "next": publisher.next,
        "decided": decided, "holes": holes, "floor": publisher.floor,
    }  # fmt: skip


class _Session:
    def __init__(
        self, running: RunningVhost, peer: Peer, publisher: Publisher, confirms: Confirms
    ) -> None:
        self._running, self._peer, self._publisher = running, peer, publisher
        self._confirms = confirms
        self._decoded: Sequence[Batch] = ()
        """Batches of the last part, if `take` did not publish them."""

    def take(self, part: bytes) -> bool:
        """Publish a part at once and return True; False if it has to wait for something.

        Raises:
            DurableError: this publisher has ended.
        """
        if self._confirms.is_behind:
            return False
        batches = decode_batches(part)
        if self._is_large(batches):
            self._decoded = batches
            return False
        self._running.log.hold()
        try:
            self.publish(batches)
        except (StoreBusy, TooLarge):
            self._decoded = batches
            return False
        return True

    async def take_with_room(self, part: bytes) -> None:
        """Publish a part that `take` did not, when there is room, and in as many pieces as necessary. Raises
        what `take` raises."""
        batches, self._decoded = self._decoded or decode_batches(part), ()
        await self._take_pieces(batches)

    async def _take_pieces(self, batches: Sequence[Batch]) -> None:
        if not self._is_large(batches):
            try:
                await self._running.log.with_room(partial(self.publish, batches))
                return
            # Some go to more than one queue, which `_is_large` does not know. All together are too large, but
            # each by itself may not be.
            except TooLarge:
                pass
        for fewer in _divided(batches):
            await self._take_pieces(fewer)
            await trio.lowlevel.checkpoint()

    def _is_large(self, batches: Sequence[Batch]) -> bool:
        """Whether these batches are too many for one turn, or more than a segment can take even if each goes
        to one queue: then planning them would be useless."""
        if len(batches) == 1:
            return False
        if len(batches) > BATCHES_MAX:
            return True
        size = sum(batch.size_bytes + RECORD_BYTES for batch in batches)
        return size > self._running.log.append_bytes_max

    def publish(self, batches: Sequence[Batch]) -> None:
        """Store the batches, or refuse them.

        Raises:
            StoreBusy: nothing was taken.
            TooLarge: several messages are too large together, and nothing was taken; a single one is
                refused instead.
            DurableError: this publisher has ended.
        """
        running, publisher, confirms = self._running, self._publisher, self._confirms
        intake = running.vhost.intake
        running.vhost.publishers.check_current(publisher)
        try:
            refusals = intake.publish(
                publisher, batches, self._peer.check_publish, running.clock.now_us()
            )
        except StoreFull as error:
            refusals = intake.refuse(publisher, batches, error)
        except TooLarge as error:
            if len(batches) > 1 or batches[0].count > 1:
                raise
            too_large = RecordTooLarge(error.size_bytes, error.limit_bytes)
            refusals = intake.refuse(publisher, batches, too_large)
        end = batches[-1].next_sequence if batches else 0
        confirms.note_received(end, map(self._peer.redacted, refusals))
        failure = running.log.failure
        if refusals or not publisher.waiting or failure is not None:
            confirms.confirm()
        if failure is not None and publisher.confirmed < confirms.received_end:
            # Nothing was raised because everything had been appended before the failure and came again. It
            # will never be durable.
            confirms.fail(StoreFailed(failure))
        if intake.has_arrived:  # In memory queues only; what is logged arrives with its commit.
            running.wake()


def _divided(batches: Sequence[Batch]) -> Sequence[Sequence[Batch]]:
    if len(batches) == 1:
        return [[half] for half in batches[0].halves()]
    count = BATCHES_MAX if len(batches) > BATCHES_MAX else -(-len(batches) // PIECES)
    return [batches[at : at + count] for at in range(0, len(batches), count)]
