"""The calls of one connection: begun in the order in which they come, answered when they are done.

A long call takes memory before it is known what it asks for. So it is accepted only from clients that may
configure something in the vhost, one at a time per connection, and only up to a limit for all connections
together. A refused client gets an answer, and its connection goes on. Of short calls a thousand may be under way:
those that make no sense are refused before they wait for anything, because decoded they may take 70 times their
length, and a call whose answer waits to be taken is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

import trio

from mesh.errors import TooLarge
from mesh.nursery import open_nursery
from mesh.tunnel import Tunnel

from ..control_sender import ControlSender
from ..errors import DurableError
from ..protocol.calls import CALL_BYTES_MAX, Answer, Call, decode_call, encode_answer
from ..protocol.error_codec import describe_error
from ..protocol.pieces import PIECE, Pieces
from ..tunnels import ends_with_tunnel
from .control import Control, check_call
from .peer import Peer

CALLS_MAX = 1000
"""Calls of one connection that may be under way; more wait in its tunnel."""
SHORT_CALL_BYTES_MAX = 64 * 1024
"""A longer call is a long one, as is each that comes in pieces."""
LONG_CALLS_BYTES_MAX = 4 * CALL_BYTES_MAX
"""Bytes of all long calls, received or under way, of all connections together."""


class ControlSession:
    """The calls of one connection.

    Args:
        all_sessions: of all connections of the broker, including this one.
    """

    def __init__(
        self, tunnel: Tunnel, control: Control, peer: Peer, all_sessions: Iterable[ControlSession]
    ) -> None:
        self._tunnel, self._control, self._peer = tunnel, control, peer
        self._all_sessions = all_sessions
        self._answers, self._pieces = ControlSender(tunnel), Pieces(CALL_BYTES_MAX)
        self._long_bytes = 0
        """Bytes of the long call that is under way."""
        self._long_ended = trio.Event()
        self._room = trio.Semaphore(CALLS_MAX)
        listing = trio.Lock()
        self._locks = {
            "statistics": listing, "bindings": listing, "export_definitions": listing,
            "import_definitions": trio.Lock(),
        }  # fmt: skip
        """Each of these takes memory for everything in the vhost, so the next one begins when the one before
        is answered."""
        self._nursery: trio.Nursery

    @property
    def long_bytes(self) -> int:
        """Bytes of its long call, whether it is still coming or under way."""
        return self._pieces.kept_bytes or self._long_bytes

    async def serve(self) -> None:
        """Serve until the client sends no more. Raises Malformed if it sends something that is not a call."""
        async with open_nursery() as self._nursery:
            while (part := await self._tunnel.each(self._begin)) is not None:
                if self._must_wait(part):
                    await self._long_ended.wait()
                await self._room.acquire()
                self._take(part)

    def _begin(self, part: bytes) -> bool:
        """Begin a call in the turn in which it comes, so calls of one client run one after the other only if
        the client itself waits between them."""
        if self._must_wait(part):
            return False
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            return False
        self._take(part)
        return True

    def _must_wait(self, part: bytes) -> bool:
        is_long = part[:1] == PIECE or len(part) > SHORT_CALL_BYTES_MAX
        return is_long and self._long_bytes > 0

    def _take(self, part: bytes) -> None:
        """Take a part, for which the caller has acquired room."""
        pieces = self._pieces
        whole = pieces.join(part)
        if whole is not None:
            self._start(decode_call(whole), len(whole), in_pieces=whole is not part)
            return
        try:
            if pieces.kept_bytes:  # Otherwise the rest of a refused call, which is skipped.
                self._check_long()
            self._room.release()
        except (DurableError, TooLarge) as error:
            pieces.discard()
            self._nursery.start_soon(self._refuse, pieces.number, error)

    def _start(self, call: Call, size_bytes: int, *, in_pieces: bool) -> None:
        is_long = in_pieces or size_bytes > SHORT_CALL_BYTES_MAX
        if is_long:  # No other one is under way: this one would have waited.
            self._long_bytes, self._long_ended = size_bytes, trio.Event()
        try:
            check_call(call)
            if is_long and not in_pieces:  # A call in pieces was checked with each of them.
                self._check_long()
        except (DurableError, TooLarge) as error:
            if is_long:
                self._long_bytes = 0
            self._nursery.start_soon(self._refuse, call.number, error)
        else:
            self._nursery.start_soon(self._run, call, is_long)

    def _check_long(self) -> None:
        """Raises AccessRefused, TooLarge if a long call may not be kept, or not go on coming."""
        self._peer.check_configures()
        total_bytes = sum(one.long_bytes for one in self._all_sessions)
        if total_bytes > LONG_CALLS_BYTES_MAX:
            raise TooLarge("calls of all clients together", total_bytes, LONG_CALLS_BYTES_MAX)

    async def _run(self, call: Call, is_long: bool) -> None:
        number = call.number
        try:
            async with self._locks.get(call.operation) or nullcontext():
                answer = await self._result(call)
                del call  # The answer may have to wait for its client for long.
                await self._answer(number, answer)
        finally:
            if is_long:
                self._long_bytes = 0
                self._long_ended.set()
            self._room.release()

    async def _refuse(self, number: int, error: DurableError | TooLarge) -> None:
        try:
            await self._answer(number, _refusal(number, error))
        finally:
            self._room.release()

    async def _result(self, call: Call) -> bytes:
        try:
            return encode_answer(Answer(call.number, await self._control.call(call)))
        except (DurableError, TooLarge) as error:
            return _refusal(call.number, error)

    @ends_with_tunnel
    async def _answer(self, number: int, answer: bytes) -> None:
        await self._answers.send(number, answer)


def _refusal(number: int, error: DurableError | TooLarge) -> bytes:
    return encode_answer(Answer(number, None, *describe_error(error)))
