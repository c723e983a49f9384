"""The connection to a broker: one tunnel for calls, kept open. Other tunnels belong to its session.

When it breaks it is opened again, for as long as the node lives. Calls are idempotent, so unanswered
ones are sent again; whatever belonged to the session, such as exclusive queues, is gone.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import trio

from mesh.errors import MeshError, NodeClosed, NoMembers, TooLarge, WrongThread
from mesh.node import Node
from mesh.tunnel import Tunnel
from mesh.waker import Bell, Waker

from ..control_sender import ControlSender
from ..errors import BrokerLost, DurableError, Malformed, Unknown, copy_error
from ..protocol.calls import (
    ANSWER_BYTES_MAX,
    CONTROL,
    Answer,
    Call,
    decode_answer,
    encode_call,
    encode_hello,
    greeting_field,
)  # fmt: skip
from ..protocol.error_codec import rebuild_error
from ..protocol.parts import ENDED, PART_OVERHEAD_BYTES, decode_ended
from ..protocol.pieces import Pieces
from ..protocol.properties import DEATHS_BYTES

logger = logging.getLogger("durable")
ENDPOINT = "durable"
CONTROL_WINDOW_BYTES = 32 << 20
"""Large, because a listing of many thousands of queues is a long answer."""
RETRY_S, RETRY_S_MAX = 0.1, 2.0
MESSAGE_BYTES_MAX = 1 << 20


class _PendingCall(Waker):
    """An unanswered call: woken by its answer, by a new connection, and when there will be none."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        super().__init__()
        self.answer: Answer | None = None


class Channel:
    """The connection of one `connect`: makes calls, and opens tunnels that belong to its session."""

    def __init__(self, node: Node, cluster: str, vhost: str, timeout_s: float) -> None:
        self._node, self.cluster, self.vhost = node, cluster, vhost
        self.timeout_s = timeout_s
        self.after, self.within, self.run_beside = node.after, node.within, node.run_beside
        self.check_thread, self.end_if_forked = node.check_thread, node.end_if_forked
        """The node's methods, for the classes built on this one."""
        self._call_numbers = count(1)
        self._control: ControlSender | None = None
        self.session = b""
        """Empty while there is no connection."""
        self._pending_calls: dict[int, _PendingCall] = {}
        self._session_changed = Bell()
        self._disconnect_reason = "not connected yet"
        self.message_bytes_max = MESSAGE_BYTES_MAX
        """The largest message that the broker takes, known once it is connected."""
        self._failure: DurableError | None = None
        """Why there is no connection. If the broker refused it, the next use tries again: it may succeed by then."""
        self._running = False

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload that our node takes from another one."""
        return self._node.config.payload_bytes_max

    def timeout_reason(self, timeout_s: float) -> str:
        """Return text for an error: no answer within that time and, without a connection, why there is none."""
        why = "" if self.session else f": {self._disconnect_reason}"
        return f"no answer within {timeout_s:g} s{why}"

    async def call(self, operation: str, **arguments: Any) -> Any:
        """Return the result of an operation; it is asked again if the connection ends before the answer.

        Raises:
            BrokerLost: no answer came within `timeout_s`.
            TooLarge: the arguments are longer than the broker takes.
            DurableError: the error that the broker answered.
        """
        self._ensure_running()
        number, session = next(self._call_numbers), b""
        pending = self._pending_calls[number] = _PendingCall()
        try:
            with self.within(self.timeout_s):
                while pending.answer is None:
                    self._check_failure()
                    if self._control is not None and session != self.session:
                        session = self.session
                        await self._send_call(self._control, Call(number, operation, arguments))
                    else:
                        await pending.wait()
        finally:
            del self._pending_calls[number]
        answer = pending.answer
        if answer is None:
            raise BrokerLost(self.cluster, self.timeout_reason(self.timeout_s))
        if answer.error:
            raise rebuild_error(answer.error, answer.details)
        return answer.result

    async def _send_call(self, control: ControlSender, call: Call) -> None:
        try:
            await control.send(call.number, encode_call(call))
        except TooLarge:
            raise
        except MeshError as error:
            self._disconnect_reason = str(error)

    @asynccontextmanager
    async def open(
        self, kind: str, window_bytes: int | None = None, **fields: Any
    ) -> AsyncGenerator[tuple[Tunnel, Mapping[str, Any]]]:
        """Open another tunnel of this session. Yields it and the broker's answer to its hello.

        Args:
            window_bytes: of a tunnel that brings messages; raised so that the largest message fits.
        Raises:
            BrokerLost: there was no connection within `timeout_s`.
            DurableError: the error that the broker answered.
        """
        session = await self.wait_connected()
        if window_bytes is not None:
            window_bytes = max(window_bytes, self.message_bytes_max + DEATHS_BYTES)
        async with self._node.open_tunnel(
            f"{self.cluster}/{ENDPOINT}", window_bytes=window_bytes, timeout=self.timeout_s
        ) as tunnel:
            await tunnel.send(encode_hello(kind, self.vhost, session=session, **fields))
            try:
                greeting = await self._greeting(tunnel)
            except trio.Cancelled as cancelled:
                # Leave the block in order: an aborted consumer's messages on their way would count as returned.
                given_up = cancelled
            else:
                yield tunnel, greeting
                return
        raise given_up

    async def retry_open(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Call `attempt`, which opens something, until it succeeds; again if the connection breaks meanwhile.

        Raises:
            BrokerLost: it did not succeed within `timeout_s`, or this node has left the mesh.
            DurableError: the error that the broker answered.
        """
        with self.within(self.timeout_s):
            while True:
                try:
                    return await attempt()
                except MeshError as error:
                    mendable = isinstance(error, BrokerLost) or not isinstance(error, DurableError)
                    final = isinstance(error, NodeClosed | WrongThread)
                    if not mendable or final or self._failure is not None:
                        raise
                    self._disconnect_reason = str(error)
                await trio.sleep(RETRY_S)
        raise self._timeout_error()

    async def wait_connected(self) -> bytes:
        """Return the session once there is one. Raises BrokerLost if there is none within `timeout_s`."""
        self._ensure_running()
        with self.within(self.timeout_s):
            while not self.session:
                self._check_failure()
                await self._session_changed.wait()
        if not self.session:
            raise self._timeout_error()
        return self.session

    def _timeout_error(self) -> BrokerLost:
        return BrokerLost(
            self.cluster, f"none within {self.timeout_s:g} s: {self._disconnect_reason}"
        )

    def _ensure_running(self) -> None:
        self.check_thread()
        if not self._running:
            self.run_beside(self._run)
            self._running, self._failure = True, None

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise copy_error(self._failure)

    async def _run(self) -> None:
        try:
            await self._keep_connected()
        finally:
            if self._failure is None:
                self._failure = BrokerLost(self.cluster, "this node has left the mesh")
            self._notify_waiters()

    def _notify_waiters(self) -> None:
        """Wake all waiting tasks to look again: there is a new connection, or there is none any more."""
        self._session_changed.wake()
        for pending in self._pending_calls.values():
            pending.wake()

    async def _keep_connected(self) -> None:
        pause_s = RETRY_S
        while True:
            try:
                async with self._node.open_tunnel(
                    f"{self.cluster}/{ENDPOINT}",
                    window_bytes=CONTROL_WINDOW_BYTES,
                    timeout=self.timeout_s,
                ) as tunnel:
                    pause_s = RETRY_S
                    await self._serve(tunnel)
                self._disconnect_reason = "the broker ended it"
            except NodeClosed:
                return
            except MeshError as error:
                self._disconnect_reason = str(error)
                if isinstance(error, Unknown | Malformed):
                    self._failure, self._running = error, False
                    return
                if isinstance(error, NoMembers):  # It waited, and asked nobody: no backoff.
                    pause_s = RETRY_S
            finally:
                self._control, self.session = None, b""
                self._notify_waiters()
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    async def _serve(self, tunnel: Tunnel) -> None:
        await tunnel.send(encode_hello(CONTROL, self.vhost))
        greeting = await self._greeting(tunnel)
        self._control, self.session = (
            ControlSender(tunnel),
            greeting_field(greeting, "session", bytes),
        )
        self.message_bytes_max = tunnel.part_bytes_max - PART_OVERHEAD_BYTES
        self._notify_waiters()
        await tunnel.each(partial(self._handle_part, Pieces(ANSWER_BYTES_MAX)))

    def _handle_part(self, pieces: Pieces, part: bytes) -> bool:
        """Take a part: an answer, a piece of one, or the reason why there will be none."""
        if part[:1] == ENDED:
            raise decode_ended(part)
        whole = pieces.join(part)
        if whole is None:
            return True
        answer = decode_answer(whole)
        pending = self._pending_calls.get(answer.number)
        if pending is not None:
            pending.answer = answer
            pending.wake()
        return True

    async def _greeting(self, tunnel: Tunnel) -> Mapping[str, Any]:
        """Return the broker's answer to a hello. Raises what the broker answered instead."""
        try:
            part = await anext(tunnel)
        except StopAsyncIteration:
            raise BrokerLost(self.cluster, "it ended the tunnel at once") from None
        if part[:1] == ENDED:
            raise decode_ended(part)
        answer = decode_answer(part)
        if answer.error:
            raise rebuild_error(answer.error, answer.details)
        if not isinstance(answer.result, dict):
            raise Malformed("an invalid answer to a hello")
        return answer.result
