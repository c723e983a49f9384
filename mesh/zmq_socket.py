"""One zmq socket on trio. Only this file knows that the file descriptor is edge-triggered.

The descriptor becomes readable when libzmq's state has changed, for either direction, and ANY call on the socket
may consume that signal. So one task waits per socket, only EVENTS and a receive that finds nothing are trusted, and
code that has used the socket otherwise must call `readable` afterwards and see that the socket is drained.

Sockets here never block on sending: their limits are off, since links have windows of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import trio
import zmq
from trio.lowlevel import enable_ki_protection

from .spinning import spinner_of_this_run

NOBLOCK, SNDMORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)
POLLIN = int(zmq.POLLIN)
VIEW_BYTES_MIN = 16 * 1024
MESSAGES_PER_TURN = 64
MONITOR_EVENT = struct.Struct("=HI")
"""zmq_socket_monitor(3): event and value; the endpoint comes in the second part."""


class MonitorEvent(NamedTuple):
    kind: int
    value: int
    endpoint: str


def parse_monitor_event(parts: list[bytes]) -> MonitorEvent:
    """Parse a monitor's message. `zmq.utils.monitor` could, but imports asyncio, a twentieth of the start-up time."""
    kind, value = MONITOR_EVENT.unpack(parts[0])
    return MonitorEvent(kind, value, parts[1].decode())


def content(frame: zmq.Frame) -> bytes | memoryview:
    """Return small frames as bytes, which are faster to slice, and large ones as views, without a copy."""
    return frame.bytes if len(frame) < VIEW_BYTES_MIN else frame.buffer


class ZmqSocket:
    """Owns the socket `raw`. Close it before its context is terminated."""

    __slots__ = ("_getsockopt", "_spinner", "closed", "fd", "raw")

    def __init__(self, raw: zmq.Socket[bytes]) -> None:
        self.raw = raw
        self.fd: int = int(raw.getsockopt(zmq.FD))
        self.closed = False
        self._getsockopt = raw.getsockopt
        self._spinner = spinner_of_this_run()
        self._spinner.watch(self.fd)

    def monitor(self, events: int) -> ZmqSocket:
        """Return a socket that receives these events of this one, until `raw.disable_monitor`.

        It has no high-water mark: at one, libzmq would wait for the reader in the thread that serves all
        connections, and `disable_monitor` would wait for that thread.
        """
        address = f"inproc://monitor.{self.fd}"
        self.raw.monitor(address, events)
        events_socket = self.raw.context.socket(zmq.PAIR)
        events_socket.setsockopt(zmq.RCVHWM, 0)
        events_socket.connect(address)
        return ZmqSocket(events_socket)

    def readable(self) -> bool:
        return bool(int(self._getsockopt(zmq.EVENTS)) & POLLIN)

    def skip_rest(self) -> bytes:
        """Drop the rest of a message with too many parts. Return an empty frame: being invalid, it costs the link."""
        while self._getsockopt(zmq.RCVMORE):
            self.raw.recv(NOBLOCK, copy=False)
        return b""

    async def wait_readable(self) -> None:
        """Wait until there may be something to receive. Only the socket's one waiting task may call it."""
        if self.readable():
            await trio.lowlevel.checkpoint()
            return
        await trio.lowlevel.wait_readable(self.fd)

    @enable_ki_protection
    async def each(
        self, handle: Callable[[list[bytes]], None], caught_up: Callable[[], object] = lambda: None
    ) -> None:
        """Call `handle` with every multipart message until the socket is closed; for sockets with little traffic.

        `caught_up` is called whenever no message is left.
        """
        while not self.closed:
            await self.wait_readable()
            for _ in range(MESSAGES_PER_TURN):
                try:
                    parts = self.raw.recv_multipart(NOBLOCK)
                except zmq.Again:
                    caught_up()
                    break
                handle(parts)

    def close(self, linger_ms: int = 0) -> None:
        if not self.closed:
            self.closed = True
            self._spinner.unwatch(self.fd)
            trio.lowlevel.notify_closing(self.fd)
            self.raw.close(linger_ms)
