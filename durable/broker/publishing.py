"""A publisher's session: receives parts of batches, sends cumulative confirms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from secrets import randbelow
from typing import Any

import trio

from mesh.errors import TooLarge, TunnelBroken
from mesh.nursery import open_nursery
from mesh.protocol.batch import NUMBERS_END, Batch
from mesh.spinning import Spinner, spinner_of_this_run
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..errors import (
    DurableError,
    Malformed,
    PublisherFenced,
    RecordTooLarge,
    StoreBusy,
    StoreFailed,
    StoreFull,
)
from ..log.bodies import PUBLISHER_BYTES
from ..log.record import ALIGNMENT, HEADER_BYTES, TARGET_BYTES
from ..protocol.calls import Answer, Hello, encode_answer
from ..protocol.parts import Refusal, count_fitting, decode_batches, encode_confirm
from ..tunnels import ends_with_tunnel
from ..vhost.publishers import Publisher
from .peer import Peer
from .running_vhost import RunningVhost

REFUSALS_MAX = 10_000
"""Refusals that may wait to be sent to one publisher. A part that exceeds this keeps all of its refusals."""

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
    session = _Session(tunnel, running, peer, publisher, spinner)
    running.attach_publisher(publisher, session)
    try:
        await tunnel.send(encode_answer(Answer(0, _publisher_state(publisher))))
        async with open_nursery() as nursery:
            nursery.start_soon(session.send_confirms)
            commit = running.log.commit_nowait
            while (part := await tunnel.each(session.take, commit)) is not None:
                await session.catch_up()
                await session.take_with_room(part)
            nursery.cancel_scope.cancel()
    finally:
        running.detach_publisher(publisher, session)


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
        self,
        tunnel: Tunnel,
        running: RunningVhost,
        peer: Peer,
        publisher: Publisher,
        spinner: Spinner,
    ) -> None:
        self._tunnel, self._running, self._peer = tunnel, running, peer
        self._publisher, self._spinner = publisher, spinner
        self._waker = Waker()
        self._refusals: list[Refusal] = []
        self._caught_up = Waker()
        self._unsent: list[bytes] = []
        self._failure: DurableError | None = None
        self._received_end = 0
        """Every sequence before this one came through this tunnel, or was confirmed before."""
        self._confirmed_end = 0
        """Every sequence before this one has been confirmed through this tunnel."""
        self._decoded: Sequence[Batch] = ()
        """Batches of the last part, if `take` did not publish them."""

    def confirm(self) -> None:
        """Send a confirm if more has been decided; at once if the tunnel has room."""
        while (part := self._next_confirm()) is not None:
            try:
                self._tunnel.send_nowait(part)
                # The publisher may have waited for this confirm, and then sends its next message soon.
                if self._running.is_quiet:
                    self._spinner.answered()
            except trio.WouldBlock:
                self._unsent.append(part)
                self._waker.wake()
            except TunnelBroken:
                return  # The task that reads the tunnel reports it.
            if not self._refusals:
                return

    @property
    def is_behind(self) -> bool:
        """Whether so many refusals wait to be sent that no more parts should be taken."""
        return len(self._refusals) > REFUSALS_MAX

    async def catch_up(self) -> None:
        """Wait until `is_behind` is false: a client that reads no confirms must not fill our memory."""
        while self.is_behind:
            await self._caught_up.wait()

    def replaced(self) -> None:
        """Another connection of this publisher has taken over; of two connections, the later one counts."""
        epoch = self._publisher.epoch
        self.fail(PublisherFenced(self._publisher.id.hex(), epoch, epoch))

    def fail(self, error: DurableError) -> None:
        """Nothing more will be decided: tell the client why, and end this session."""
        self._failure = error
        self._waker.wake()

    def _next_confirm(self) -> bytes | None:
        """Return the next confirm, if there is one. It covers only what came through this tunnel: a refusal
        through an earlier tunnel, which broke, may not have arrived, and the message would pass for stored
        along with those behind it."""
        decided = min(self._publisher.confirmed, self._received_end)
        if self._unsent or (decided <= self._confirmed_end and not self._refusals):
            return None
        refusals, self._refusals = self._refusals, []
        if refusals:
            fitting = count_fitting(refusals, self._tunnel.part_bytes_max)
            refusals, self._refusals = refusals[:fitting], refusals[fitting:]
        # Otherwise messages whose refusals are yet to be sent would pass for stored until then.
        if not self._refusals:
            self._confirmed_end = max(self._confirmed_end, decided)
        return encode_confirm(self._confirmed_end, refusals)

    def take(self, part: bytes) -> bool:
        """Publish a part at once and return True; False if it has to wait for something.

        Raises:
            DurableError: this publisher has ended.
        """
        if self.is_behind:
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
        running, publisher = self._running, self._publisher
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
        self._refusals += map(self._peer.redacted, refusals)
        if batches:
            self._received_end = max(self._received_end, batches[-1].next_sequence)
        failure = running.log.failure
        if refusals or not publisher.waiting or failure is not None:
            self.confirm()
        if failure is not None and publisher.confirmed < self._received_end:
            # Nothing was raised because everything had been appended before the failure and came again. It
            # will never be durable.
            self.fail(StoreFailed(failure))
        if intake.has_arrived:  # In memory queues only; what is logged arrives with its commit.
            running.wake()

    @ends_with_tunnel
    async def send_confirms(self) -> None:
        """Send confirms that had to wait for room in the tunnel, until the session fails or is cancelled."""
        try:
            while True:
                while self._unsent:
                    await self._tunnel.send(self._unsent[0])
                    del self._unsent[0]
                self.confirm()
                self._caught_up.wake()
                if self._failure is not None:
                    raise self._failure
                await self._waker.wait()
        finally:  # Nothing can be sent any more, so `catch_up` must not wait for it.
            self._refusals.clear()
            self._caught_up.wake()


def _divided(batches: Sequence[Batch]) -> Sequence[Sequence[Batch]]:
    if len(batches) == 1:
        return [[half] for half in batches[0].halves()]
    count = BATCHES_MAX if len(batches) > BATCHES_MAX else -(-len(batches) // PIECES)
    return [batches[at : at + count] for at in range(0, len(batches), count)]
