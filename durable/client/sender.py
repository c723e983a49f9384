"""Sending with confirms: parts go through a tunnel and are kept until the broker says that they are on disk.

    gathered messages ──(the sender's turn)──> part ──> tunnel
                                                └──> unconfirmed ──confirm──> waiting callers

When the connection breaks, all unconfirmed parts are sent again unchanged; the broker knows what it has
stored. So a message is stored once, however often it had to be sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from hashlib import blake2b
from secrets import token_bytes
from types import TracebackType
from typing import Any, Self

import trio

from mesh.entering import AsyncBlock
from mesh.errors import MeshError, NodeClosed, TooLarge
from mesh.nursery import open_nursery
from mesh.protocol.batch import NUMBERS_END
from mesh.spinning import Spinner, spinner_of_this_run
from mesh.tunnel import Tunnel
from mesh.waker import Bell, Waker
from mesh.yielding import QUICK_BYTES_MAX

from ..definition_checks import COUNT_MAX, check_level
from ..errors import (
    BrokerLost,
    DurableError,
    InvalidDefinition,
    PublisherFenced,
    Unconfirmed,
    copy_error,
)
from ..protocol.calls import PUBLISH, greeting_field
from ..protocol.parts import ENDED, decode_confirm, decode_ended
from ..tunnels import ends_with_tunnel
from .channel import RETRY_S, Channel
from .message_checks import PropertiesEncoder
from .outbox import Outbox, Part, Waiter
from .pending_confirms import PendingConfirms, note_refused, refused_text

PART_BYTES = 1024 * 1024
PARTS_UNCONFIRMED_MAX = 4
"""With so many parts unconfirmed, less than FULL_BYTES waits until one of them is confirmed: a part costs both
ends as much as twenty small messages within one, and one sync of the disk covers all parts that came before it."""
FULL_BYTES = 64 * 1024


class Sender(AsyncBlock, ABC):
    """Keeps one publisher's tunnel open and its unconfirmed parts; a subclass decides how messages are batched."""

    def __init__(
        self, channel: Channel, name: str | None, epoch: int | None, window_bytes: int
    ) -> None:
        if epoch is not None:
            check_level("publisher", "epoch", epoch, NUMBERS_END - 1)
        check_level("publisher", "window_bytes", window_bytes, COUNT_MAX)
        self._channel, self._window_bytes = channel, window_bytes
        self._name, self._token = name, token_bytes(16) if name is None else _name_token(name)
        self.id = b""
        """Derived by the broker from the token and our cluster; known from its greeting before anything is packed."""
        self._epoch = epoch
        """None until the broker assigns one, if none was given; never changed after that."""
        self._outbox = Outbox()
        self._work, self._room = Waker(), Bell()
        self._failure: DurableError | None = None
        self._part_bytes_max = PART_BYTES
        self._scope = trio.CancelScope()
        self._entered = False
        self._spinner: Spinner
        self._idle_tunnel: Tunnel | None = None
        """The tunnel while `_send` has nothing to send, so that `_send_at_once` may use it."""
        self._resend = False
        self._properties = PropertiesEncoder()

    @property
    def epoch(self) -> int:
        """0 until the broker has assigned one."""
        return self._epoch or 0

    @abstractmethod
    def _gathered_bytes(self) -> int:
        """Bytes handed over and not packed."""

    @abstractmethod
    def _barrier(self) -> int:
        """Return the sequence behind all messages handed over so far; later messages come behind it, too."""

    @abstractmethod
    def _pack(self) -> Part:
        """Pack what has gathered, or as much as one part takes; called only if something has."""

    @abstractmethod
    def _close(self) -> None:
        """Called when nothing will be packed any more."""

    def _is_id_in_use(self) -> bool:
        """Return whether anything still to be sent was packed under the present id."""
        return bool(self._outbox)

    def _hello_fields(self) -> dict[str, Any]:
        """Return further fields of the hello. `oldest`: the first sequence that may be sent again."""
        return {"oldest": self._outbox.confirmed}

    def _handle_greeting(self, greeting: Mapping[str, Any]) -> None:
        """Take from the broker's greeting what it knows of this publisher; called for each new tunnel."""

    async def __aenter__(self) -> Self:
        await self._channel.wait_connected()
        self.start()
        return self

    def start(self) -> None:
        """Start sending, in a task beside the node, until `stop`."""
        if not self._entered:
            self._entered, self._spinner = True, spinner_of_this_run()
            self._spinner.attach()
            self._channel.run_beside(self._run)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._channel.end_if_forked()
        try:
            if error is None:
                await self.flush()
        finally:
            self.stop()

    def stop(self) -> None:
        """Take nothing more from now on, because nothing would send it; whoever waits gets an error."""
        self._scope.cancel()
        self._end(None)

    async def flush(self) -> None:
        """Return when everything handed over so far is on disk.

        Raises:
            As `publish` does, also for messages refused earlier, unless `publish` has raised that.
        """
        self._check_entered()
        try:
            pending = PendingConfirms()
            with self._forget_on_exit(pending):
                self._add_waiter(pending, self._outbox.confirmed)
                await self.confirmed(pending)
        except DurableError as error:
            self._note_unreported(error)
            raise
        self._raise_refused()

    def _raise_refused(self) -> None:
        """Raise what was refused and has not been raised to anybody."""
        unreported = self._outbox.take_unreported()
        if unreported is not None:
            note_refused(*unreported)
            raise unreported[0]

    def _add_waiter(self, pending: PendingConfirms, first: int) -> None:
        """Note that all messages from sequence `first` on belong to this caller."""
        end = self._barrier()
        if end > self._outbox.confirmed and end > first:
            self._check_usable()
            run = Waiter(first, end, pending.waker.wake)
            self._outbox.wait_for(run)
            pending.runs.append(run)

    async def confirmed(self, pending: PendingConfirms) -> None:
        """Return when all of it is on disk. Raises what `publish` raises for it, and Unconfirmed if the
        broker is silent for as long as one answer may take."""
        if not await self.wait_confirmed(pending, self._channel.timeout_s, anew=True):
            raise Unconfirmed(self.unknown(pending), self._timeout_reason())

    async def wait_confirmed(
        self, pending: PendingConfirms, patience_s: float, *, anew: bool = False
    ) -> bool:
        """Return True once all of it is on disk, False if that takes longer. Raises what `publish` raises for it.

        Args:
            patience_s: seconds to wait, from now on.
            anew: wait as long again whenever the broker has confirmed anything meanwhile.
        """
        self._channel.check_thread()
        if not pending.runs:
            await trio.lowlevel.checkpoint()
        wake, latest_confirm = pending.waker.wake, self._outbox.latest_confirm
        # A timer, not a cancel scope: whatever has to be undone after the confirm adds to its latency (history.md).
        timer = self._channel.after(patience_s, wake)
        # More takes the broker too long to spin.
        little = self._outbox.size_bytes <= QUICK_BYTES_MAX
        try:
            with self._spinner if little else nullcontext():
                for run in pending.runs:
                    while not run.done:
                        if timer.is_over:
                            if not anew or self._outbox.latest_confirm == latest_confirm:
                                return False
                            latest_confirm = self._outbox.latest_confirm
                            timer = self._channel.after(patience_s, wake)
                        await pending.waker.wait()
        finally:
            timer.cancel()
        error = pending.error
        if error is not None:
            pending.note_refused(error)
        pending.runs.clear()  # All has been reported: nothing is left to be forgotten.
        if error is not None:
            raise error
        return True

    @contextmanager
    def _forget_on_exit(self, pending: PendingConfirms) -> Iterator[None]:
        """When the block is left, for whatever reason, let the outbox forget this caller's waiters."""
        try:
            yield
        finally:
            self._outbox.forget(pending.runs)

    def _timeout_reason(self) -> str:
        return self._channel.timeout_reason(self._channel.timeout_s)

    def unknown(self, pending: PendingConfirms) -> int:
        """Return how many of its messages are neither confirmed nor refused so far."""
        return sum(map(self._outbox.unknown, pending.runs))

    def _is_full(self) -> bool:
        return self._room_bytes() < 0

    def _room_bytes(self) -> int:
        return self._window_bytes - self._gathered_bytes() - self._outbox.size_bytes

    async def _wait_room(self, patience_s: float) -> None:
        """Wait until the window is not full. Raises BrokerLost if the broker is silent for that long."""
        self._check_usable()
        while self._is_full():
            self._work.wake()
            latest_confirm = self._outbox.latest_confirm
            with self._channel.within(patience_s) as scope:
                await self._room.wait()
            silent = scope.cancelled_caught and self._outbox.latest_confirm == latest_confirm
            if silent and self._is_full():
                raise BrokerLost(self._channel.cluster, self._timeout_reason())
            self._check_usable()

    def _note_unreported(self, error: DurableError) -> None:
        unreported = self._outbox.take_unreported()
        if unreported is not None:
            error.add_note(f"before that, {refused_text(unreported[1])}: {unreported[0]}")

    @property
    def ended(self) -> bool:
        """Whether this publisher takes nothing more."""
        return self._failure is not None

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError("publisher used outside of its `async with` block")
        self._channel.check_thread()

    def _check_usable(self) -> None:
        self._check_entered()
        if self._failure is not None:
            raise copy_error(self._failure)

    async def _run(self) -> None:
        with self._scope:
            try:
                while True:
                    try:
                        await self._use_tunnel()
                    except BrokerLost:
                        pass
                    except PublisherFenced as error:
                        # The broker knows the hash from `_name_token` only; the user knows the name.
                        named = error.publisher if self._name is None else self._name
                        self._end(PublisherFenced(named, error.epoch, error.latest))
                        return
                    except DurableError as error:
                        self._end(error)
                        return
                    except NodeClosed:
                        return
                    except TooLarge as error:  # A part sent again, to a broker that takes less.
                        self._end(Unconfirmed(self._unconfirmed, str(error)))
                        return
                    except MeshError:
                        pass  # The tunnel broke: open another.
                    await trio.sleep(RETRY_S)
            finally:
                self._end(None)

    async def _use_tunnel(self) -> None:
        """Use one tunnel until it ends: send all unconfirmed parts again, then new ones."""
        async with self._channel.open(
            PUBLISH, publisher=self._token, epoch=self._epoch, **self._hello_fields()
        ) as (tunnel, greeting):
            self._identify(greeting_field(greeting, "publisher", bytes))
            self._epoch = greeting_field(greeting, "epoch", int)
            self._handle_greeting(greeting)
            self._outbox.prepare_resend()
            self._part_bytes_max = min(PART_BYTES, tunnel.part_bytes_max)
            async with open_nursery() as nursery:
                nursery.start_soon(self._send, tunnel)
                await tunnel.each(self._handle_part)
                nursery.cancel_scope.cancel()

    def _identify(self, publisher: bytes) -> None:
        """Use the id in the broker's greeting. Raises Unconfirmed if anything still to be sent was packed under
        another id: it would count as another cluster's."""
        if publisher != self.id and self._is_id_in_use():
            why = "the broker now knows this program as a member of another cluster"
            raise Unconfirmed(self._unconfirmed, why)
        self.id = publisher

    def _handle_part(self, part: bytes) -> bool:
        """Take a confirm, or the reason why there will be none."""
        if part[:1] == ENDED:
            raise decode_ended(part)
        self._outbox.handle_confirm(*decode_confirm(part))
        self._room.wake()
        if self._is_part_due():
            self._work.wake()
        return True

    def _send_at_once(self) -> None:
        """Send what has gathered at once if no part is unconfirmed: there is no confirm to wait for."""
        if self._idle_tunnel is not None and not self._outbox:
            try:
                self._idle_tunnel.send_nowait(self._next_part().data)
            except trio.WouldBlock:
                self._resend = True
            except MeshError:
                pass  # Broken: the next tunnel starts with all unconfirmed parts.
        if self._resend or self._is_part_due():  # Otherwise `_send` would be woken for nothing.
            self._work.wake()

    def _is_part_due(self) -> bool:
        """Return whether a part should be packed now."""
        size = self._gathered_bytes()
        return size >= FULL_BYTES or (size > 0 and self._outbox.count < PARTS_UNCONFIRMED_MAX)

    def _next_part(self) -> Part:
        """Pack the next part; it is kept until it is confirmed."""
        part = self._pack()
        self._outbox.add(part)
        return part

    @ends_with_tunnel
    async def _send(self, tunnel: Tunnel) -> None:
        self._resend = True
        try:
            while True:
                if self._resend:
                    self._idle_tunnel, self._resend = None, False
                    for part in self._outbox.parts:
                        await tunnel.send(part.data)
                while self._is_part_due():
                    self._idle_tunnel = None
                    await tunnel.send(self._next_part().data)
                self._idle_tunnel = tunnel
                await self._work.wait()
        finally:
            self._idle_tunnel = None

    @property
    def _unconfirmed(self) -> int:
        """Number of messages not confirmed, whether sent or not."""
        return self._outbox.undecided(0, self._barrier())

    def _end(self, error: DurableError | None) -> None:
        """End this publisher: whoever waits, or uses it later, gets `error`; None: it was closed."""
        if self._failure is not None:
            return
        self._failure = error or Unconfirmed(self._unconfirmed, "the publisher was closed")
        self._close()

        def reason(count: int) -> DurableError:
            return copy_error(error) if error else Unconfirmed(count, "the publisher was closed")

        self._outbox.fail(reason)
        self._room.wake()


def _name_token(name: str) -> bytes:
    """Return the token for a name, its hash. Raises InvalidDefinition if it cannot be encoded as UTF-8."""
    try:
        return blake2b(name.encode(), digest_size=16).digest()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidDefinition("publisher", "name", name, "text, UTF-8") from None
