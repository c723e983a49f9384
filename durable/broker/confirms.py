"""What a publisher is told of its batches: refusals, and cumulative confirms."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from mesh.errors import TunnelBroken
from mesh.spinning import Spinner
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..errors import DurableError, PublisherFenced
from ..protocol.parts import Refusal, count_fitting, encode_confirm
from ..tunnels import ends_with_tunnel
from ..vhost.publishers import Publisher
from .running_vhost import RunningVhost

REFUSALS_MAX = 10_000
"""Refusals that may wait to be sent to one publisher. A part that exceeds this keeps all of its refusals."""


class Confirms:
    """The confirms of one session of a publisher."""

    def __init__(
        self, tunnel: Tunnel, running: RunningVhost, publisher: Publisher, spinner: Spinner
    ) -> None:
        self._tunnel, self._running = tunnel, running
        self._publisher, self._spinner = publisher, spinner
        self._waker = Waker()
        self._refusals: list[Refusal] = []
        self._caught_up = Waker()
        self._unsent: list[bytes] = []
        self._failure: DurableError | None = None
        self.received_end = 0
        """Every sequence before this one came through this tunnel, or was confirmed before."""
        self._confirmed_end = 0
        """Every sequence before this one has been confirmed through this tunnel."""

    def note_received(self, end: int, refusals: Iterable[Refusal]) -> None:
        """Everything before sequence `end` has come, and is refused or going to be stored."""
        self._refusals += refusals
        self.received_end = max(self.received_end, end)

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
        decided = min(self._publisher.confirmed, self.received_end)
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

    @ends_with_tunnel
    async def run(self) -> None:
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
