"""Sending with confirms: parts leave by a tunnel and are kept until the broker says that they are on disk.

    what has gathered ──(the sender's turn)──> part ──> tunnel
                                                └──> unconfirmed ──confirm──> whoever waits

When the connection breaks, everything unconfirmed is sent again, word for word; the broker knows
what it has stored. So a message is stored once, however often it had to be sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
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
from mesh.yielding import SOON_BYTES

from ..definition_checks import COUNT_MAX, check_key, check_level
from ..errors import (
    BrokerLost,
    DurableError,
    InvalidDefinition,
    Malformed,
    PublisherFenced,
    Unconfirmed,
    afresh,
)
from ..protocol.calls import PUBLISH, greeted
from ..protocol.parts import ENDED, decode_confirm, decode_ended
from ..protocol.properties import (
    Properties,
    check_properties,
    decode_properties,
    encode_properties,
)
from ..tunnels import ends_with_tunnel
from .channel import RETRY_S, Channel
from .outbox import Outbox, Part, Waiter

PART_BYTES = 1024 * 1024
HEADERS_BYTES_MAX = 64 * 1024
UNDER_WAY_MAX = 4
"""Parts not yet confirmed, while which less than FULL_BYTES waits for one of them: each costs both ends
as much as twenty small messages in one, and a sync of the disk takes in what came before it."""
FULL_BYTES = 64 * 1024


class Handed:
    """What one caller has handed over: in several runs of sequences when others came between."""

    def __init__(self) -> None:
        self.runs: list[Waiter] = []
        self.waker = Waker()

    @property
    def count(self) -> int:
        return sum(run.end - run.first for run in self.runs)

    @property
    def refusal(self) -> DurableError | None:
        """The first one."""
        return next((run.refusal for run in self.runs if run.refusal is not None), None)

    @property
    def error(self) -> DurableError | None:
        """What is unknown comes before what is refused, which is told with it."""
        for run in self.runs:
            if run.error is not None:
                return run.error
        return self.refusal

    def note_refused(self, error: DurableError) -> None:
        refusal = self.refusal
        if refusal is not None:
            counts = sum((run.refused for run in self.runs), Counter[str]())
            _note_refused(error, counts, "" if refusal is error else f": {refusal}")


class Sender(AsyncBlock, ABC):
    """Of one publisher: its tunnel, kept up, and what is unconfirmed. What gathers is the subclass's."""

    def __init__(
        self, channel: Channel, name: str | None, epoch: int | None, window_bytes: int
    ) -> None:
        if epoch is not None:
            check_level("publisher", "epoch", epoch, NUMBERS_END - 1)
        check_level("publisher", "window_bytes", window_bytes, COUNT_MAX)
        self._channel, self._window_bytes = channel, window_bytes
        self._name, self._token = name, token_bytes(16) if name is None else _named(name)
        self.id = b""
        """What the broker makes of that for our cluster: it says so before anything is packed."""
        self._epoch = epoch
        """None: none was given, and the broker is still to say which. What it says is ours for good."""
        self._outbox = Outbox()
        self._work, self._room = Waker(), Bell()
        self._failure: DurableError | None = None
        self._part_bytes_max = PART_BYTES
        self._scope = trio.CancelScope()
        self._entered = False
        self._spinner: Spinner
        self._idle: Tunnel | None = None
        """The tunnel, while its sender has nothing to send."""
        self._resend = False
        self._properties: dict[Properties, bytes] = {}
        self._key = ""
        """The last one that was checked. This one is right."""

    @property
    def epoch(self) -> int:
        """0: none was given, and the broker has not told one yet."""
        return self._epoch or 0

    @abstractmethod
    def _gathered(self) -> int:
        """Bytes that have been given and not packed."""

    @abstractmethod
    def _barrier(self) -> int:
        """The sequence behind all messages that were handed over before."""

    @abstractmethod
    def _pack(self) -> Part:
        """What has gathered, or as much of it as a part takes; there is something."""

    @abstractmethod
    def _close(self) -> None:
        """Nobody packs any more."""

    def _bears_id(self) -> bool:
        """Whether anything that is to be sent was packed under the present id."""
        return bool(self._outbox)

    def _hello(self) -> dict[str, Any]:
        """`oldest`: the first sequence that this publisher may send again."""
        return {"oldest": self._outbox.confirmed}

    def _greeted(self, greeting: Mapping[str, Any]) -> None:
        """What the broker knows of this publisher, each time a tunnel has been opened."""

    async def __aenter__(self) -> Self:
        await self._channel.connected()
        self.start()
        return self

    def start(self) -> None:
        """Begin to send, beside the node, until it is closed."""
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
        """From this moment on take nothing more: nobody would send it."""
        self._scope.cancel()
        self._end(None)

    async def flush(self) -> None:
        """Return when everything handed over so far is on disk.

        Raises:
            As `publish` does, also for what was refused before, unless `publish` has told it.
        """
        self._check_entered()
        try:
            handed = Handed()
            with self._forgotten(handed):
                self._handed_over(handed, self._outbox.confirmed)
                await self.confirmed(handed)
        except DurableError as error:
            self._add_untold(error)
            raise
        self._raise_refused()

    def _raise_refused(self) -> None:
        """What was refused and has been told to nobody."""
        untold = self._outbox.take_untold()
        if untold is not None:
            _note_refused(*untold)
            raise untold[0]

    def _handed_over(self, handed: Handed, first: int) -> None:
        """All from sequence `first` on is this caller's."""
        end = self._barrier()
        if end > self._outbox.confirmed and end > first:
            self._check()
            run = Waiter(first, end, handed.waker.wake)
            self._outbox.wait_for(run)
            handed.runs.append(run)

    async def confirmed(self, handed: Handed) -> None:
        """Return when all of it is on disk. Raises what `publish` raises of it, and Unconfirmed when the
        broker says nothing for as long as one answer may take."""
        if not await self.wait_confirmed(handed, self._channel.timeout_s, anew=True):
            raise Unconfirmed(self.unknown(handed), self._silence())

    async def wait_confirmed(
        self, handed: Handed, patience_s: float, *, anew: bool = False
    ) -> bool:
        """Return when all of it is on disk; False: that takes longer. Raises what `publish` raises of it.

        Args:
            patience_s: seconds, from now on.
            anew: and again whenever the broker has decided something in them.
        """
        self._channel.check_thread()
        if not handed.runs:
            await trio.lowlevel.checkpoint()
        wake, heard = handed.waker.wake, self._outbox.heard
        # No scope: what is left to be done when a confirm has come is part of its time (history.md).
        timer = self._channel.after(patience_s, wake)
        little = self._outbox.size_bytes <= SOON_BYTES  # What is more takes the broker longer.
        try:
            with self._spinner if little else nullcontext():
                for run in handed.runs:
                    while not run.done:
                        if timer.over:
                            if not anew or self._outbox.heard == heard:
                                return False
                            heard = self._outbox.heard
                            timer = self._channel.after(patience_s, wake)
                        await handed.waker.wait()
        finally:
            timer.cancel()
        error = handed.error
        if error is not None:
            handed.note_refused(error)
            raise error
        return True

    @contextmanager
    def _forgotten(self, handed: Handed) -> Iterator[None]:
        """Whoever gives up in the block, or is cancelled, waits for none of it any more."""
        try:
            yield
        finally:
            self._outbox.forget(handed.runs)

    def _silence(self) -> str:
        return self._channel.silence(self._channel.timeout_s)

    def unknown(self, handed: Handed) -> int:
        """How many of them nobody has said anything of, so far."""
        return sum(map(self._outbox.unknown, handed.runs))

    def _check_sizes(
        self, payloads: Sequence[bytes], properties: bytes, headers_bytes: int
    ) -> None:
        """Raises TooLarge: one is larger than the broker takes. None has been taken."""
        around, limit = len(properties) + headers_bytes, self._channel.message_bytes_max
        size = max(map(len, payloads), default=0) + around
        if size > limit:
            raise TooLarge("message", size, limit)

    def _encoded(self, exchange: str, key: str, properties: Properties | None) -> bytes:
        """Raises InvalidDefinition: the broker would refuse it, or end this publisher for it."""
        if key != self._key:
            check_key("message", "key", key)
            self._key = key
        wanted = Properties(exchange) if properties is None else properties
        try:
            encoded = self._properties.get(wanted)
        except TypeError:  # A list somewhere: the check says where.
            encoded = None
        if encoded is None:
            check_properties(wanted)
            if len(self._properties) > 1000:
                self._properties.clear()
            try:
                encoded = encode_properties(wanted)
                decode_properties(encoded)
                self._properties[wanted] = encoded
            except (Malformed, TypeError, ValueError, OverflowError):
                allowed = "deaths as a delivery tells them"
                raise InvalidDefinition("message", "deaths", wanted.deaths, allowed) from None
        return encoded

    def _full(self) -> bool:
        return self._room_bytes() < 0

    def _room_bytes(self) -> int:
        return self._window_bytes - self._gathered() - self._outbox.size_bytes

    async def _wait_room(self, patience_s: float) -> None:
        """Raises BrokerLost: the broker says nothing for that long."""
        self._check()
        while self._full():
            self._work.wake()
            heard = self._outbox.heard
            with self._channel.within(patience_s) as scope:
                await self._room.wait()
            silent = scope.cancelled_caught and self._outbox.heard == heard
            if silent and self._full():
                raise BrokerLost(self._channel.cluster, self._silence())
            self._check()

    def _add_untold(self, error: DurableError) -> None:
        untold = self._outbox.take_untold()
        if untold is not None:
            error.add_note(f"before, {_told(untold[1])}: {untold[0]}")

    @property
    def ended(self) -> bool:
        """Whether it takes nothing any more."""
        return self._failure is not None

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError("publisher used outside of its `async with` block")
        self._channel.check_thread()

    def _check(self) -> None:
        self._check_entered()
        if self._failure is not None:
            raise afresh(self._failure)

    async def _run(self) -> None:
        with self._scope:
            try:
                while True:
                    try:
                        await self._connected()
                    except BrokerLost:
                        pass
                    except PublisherFenced as error:
                        # The broker knows only what `_named` makes of it.
                        named = error.publisher if self._name is None else self._name
                        self._end(PublisherFenced(named, error.epoch, error.latest))
                        return
                    except DurableError as error:
                        self._end(error)
                        return
                    except NodeClosed:
                        return
                    except TooLarge as error:  # Sent again, word for word, to one that takes less.
                        self._end(Unconfirmed(self._unconfirmed, str(error)))
                        return
                    except MeshError:
                        pass  # The tunnel broke: again, with a new one.
                    await trio.sleep(RETRY_S)
            finally:
                self._end(None)

    async def _connected(self) -> None:
        """One tunnel: first what is unconfirmed again, then what comes."""
        async with self._channel.open(
            PUBLISH, publisher=self._token, epoch=self._epoch, **self._hello()
        ) as (tunnel, greeting):
            self._identify(greeted(greeting, "publisher", bytes))
            self._epoch = greeted(greeting, "epoch", int)
            self._greeted(greeting)
            self._outbox.again()
            self._part_bytes_max = min(PART_BYTES, tunnel.part_bytes_max)
            async with open_nursery() as nursery:
                nursery.start_soon(self._send, tunnel)
                await tunnel.each(self._heard)
                nursery.cancel_scope.cancel()

    def _identify(self, publisher: bytes) -> None:
        """Go on under the id that the broker tells. Raises Unconfirmed: what is to be sent has another
        one, and would be another cluster's."""
        if publisher != self.id and self._bears_id():
            why = "the broker knows this program as a member of another cluster now"
            raise Unconfirmed(self._unconfirmed, why)
        self.id = publisher

    def _heard(self, part: bytes) -> bool:
        """A confirm, or why there will be none."""
        if part[:1] == ENDED:
            raise decode_ended(part)
        self._outbox.decided(*decode_confirm(part))
        self._room.wake()
        if self._may_leave():
            self._work.wake()
        return True

    def _leave(self) -> None:
        """What has gathered leaves at once when nothing is on its way that it could wait for."""
        if self._idle is not None and not self._outbox:
            with suppress(MeshError):  # Broken: the next tunnel begins with what is unconfirmed.
                try:
                    self._idle.send_nowait(self._next_part().data)
                except trio.WouldBlock:
                    self._resend = True
        if self._resend or self._may_leave():  # Else there is nothing to wake its task for.
            self._work.wake()

    def _may_leave(self) -> bool:
        """Whether a part should be made of what has gathered, now."""
        size = self._gathered()
        return size >= FULL_BYTES or (size > 0 and self._outbox.count < UNDER_WAY_MAX)

    def _next_part(self) -> Part:
        """From now on it is kept until it is confirmed."""
        part = self._pack()
        self._outbox.sent(part)
        return part

    @ends_with_tunnel
    async def _send(self, tunnel: Tunnel) -> None:
        self._resend = True
        try:
            while True:
                if self._resend:
                    self._idle, self._resend = None, False
                    for part in self._outbox.parts:
                        await tunnel.send(part.data)
                while self._may_leave():
                    self._idle = None
                    await tunnel.send(self._next_part().data)
                self._idle = tunnel
                await self._work.wait()
        finally:
            self._idle = None

    @property
    def _unconfirmed(self) -> int:
        """Messages, sent or not."""
        return self._outbox.undecided(0, self._barrier())

    def _end(self, error: DurableError | None) -> None:
        """Nothing more will be answered."""
        if self._failure is not None:
            return
        self._failure = error or Unconfirmed(self._unconfirmed, "the publisher was closed")
        self._close()

        def reason(count: int) -> DurableError:
            return afresh(error) if error else Unconfirmed(count, "the publisher was closed")

        self._outbox.fail(reason)
        self._room.wake()


def as_given(payloads: Sequence[bytes]) -> tuple[bytes, ...]:
    """As they are now: who changes the list while its messages wait for room changes none of them.

    Raises TypeError: it is no list of bytes. What has no order is none, nor what comes but once.
    """
    if not isinstance(payloads, Sequence) or isinstance(payloads, bytes | str):
        raise TypeError(f"payloads: want a list of bytes, got {type(payloads).__name__}")
    given = tuple(payloads)
    for kind in set(map(type, given)):
        if not issubclass(kind, bytes):
            raise TypeError(f"payload: want bytes, got {kind.__name__}")
    return given


def _note_refused(error: DurableError, counts: Counter[str], why: str = "") -> None:
    if counts.total() > 1 or why:
        error.add_note(f"{_told(counts)}{why}")


def _told(counts: Counter[str]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    return f"{counts.total()} messages were refused" + (f" ({kinds})" if len(counts) > 1 else "")


def _named(name: str) -> bytes:
    """Raises InvalidDefinition: of it there is no hash."""
    try:
        return blake2b(name.encode(), digest_size=16).digest()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidDefinition("publisher", "name", name, "text, UTF-8") from None
