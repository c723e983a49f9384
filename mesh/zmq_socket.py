"""One zmq socket on trio. The only file that knows the file descriptor is edge-triggered.

The descriptor turns readable when libzmq's state is stale, for either direction, and ANY call on the
socket may use that signal up. So: one task waits per socket, nothing is believed but EVENTS and a
receive that finds nothing, and whoever used the socket otherwise asks `readable` afterwards and sees
to it that the socket is drained.

Sockets here never block on sending: their limits are off, links keep windows of their own.
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
MONITORED = struct.Struct("=HI")
"""zmq_socket_monitor(3): the event and its value; what follows is the endpoint."""


class Monitored(NamedTuple):
    kind: int
    value: int
    endpoint: str


def monitored(parts: list[bytes]) -> Monitored:
    """What a monitor has told. `zmq.utils.monitor` says the same, and imports asyncio, a twentieth of a start."""
    kind, value = MONITORED.unpack(parts[0])
    return Monitored(kind, value, parts[1].decode())


def content(frame: zmq.Frame) -> bytes | memoryview:
    """Small frames as bytes, which are faster to cut; large ones without a copy."""
    return frame.bytes if len(frame) < VIEW_BYTES_MIN else frame.buffer


class ZmqSocket:
    """Owns `raw`. Close it before its context is terminated."""

    __slots__ = ("_getsockopt", "_spinner", "closed", "fd", "raw")

    def __init__(self, raw: zmq.Socket[bytes]) -> None:
        self.raw = raw
        self.fd: int = int(raw.getsockopt(zmq.FD))
        self.closed = False
        self._getsockopt = raw.getsockopt
        self._spinner = spinner_of_this_run()
        self._spinner.watch(self.fd)

    def monitor(self, events: int) -> ZmqSocket:
        """Where these events of it are told, until `raw.disable_monitor`.

        Without a limit: at one, libzmq waits for whoever hears them, in the thread that serves all
        connections, and `disable_monitor` waits for that thread.
        """
        address = f"inproc://monitor.{self.fd}"
        self.raw.monitor(address, events)
        heard = self.raw.context.socket(zmq.PAIR)
        heard.setsockopt(zmq.RCVHWM, 0)
        heard.connect(address)
        return ZmqSocket(heard)

    def readable(self) -> bool:
        return bool(int(self._getsockopt(zmq.EVENTS)) & POLLIN)

    def skip_rest(self) -> bytes:
        """A message of several parts is nothing of ours: an empty frame, which costs the link."""
        while self._getsockopt(zmq.RCVMORE):
            self.raw.recv(NOBLOCK, copy=False)
        return b""

    async def wait_readable(self) -> None:
        """Return when there may be something to receive; the only waiter of this socket calls it."""
        if self.readable():
            await trio.lowlevel.checkpoint()
            return
        await trio.lowlevel.wait_readable(self.fd)

    @enable_ki_protection
    async def each(
        self, handle: Callable[[list[bytes]], None], caught_up: Callable[[], object] = lambda: None
    ) -> None:
        """Hand every multipart message to `handle`, for ever: for sockets with little traffic.

        `caught_up` is told whenever there are none left.
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
