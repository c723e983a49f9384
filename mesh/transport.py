"""The Protocols between a node and its transport, which is `zmq_transport` or that of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from security.announcement import Endpoint

from .protocol.instructions import Dial, ProbeResult
from .protocol.lane import Conn


class Receiver(Protocol):
    """Receives the transport's events. All calls come from the trio thread."""

    def received(self, conn: Conn, user: str | None, data: bytes | memoryview) -> None: ...
    def lost(self, conn: Conn, *, denied: bool = False) -> None: ...
    def inbound_lost(self, conns: Sequence[Conn]) -> None:
        """An accepted connection ended: probably one of `conns`, maybe none of them."""

    def cut_off(self, conns: Sequence[Conn], what: str, address: str) -> None:
        """Like `inbound_lost`, but our side hung up, on `address`, because of `what` it sent. Called before the loss."""

    def probed(self, node: bytes, endpoint: str, found: ProbeResult) -> None: ...
    def refused(self, what: str, address: str = "", *, quiet: bool = False) -> None:
        """A connection was refused. Counted by `what`; the first is logged with `address`, unless `quiet`."""

    def flush(self) -> None: ...


class Transport(Protocol):
    """Sends and receives frames. The core names dialled connections (ints), the transport accepted ones (bytes)."""

    async def run(
        self, receiver: Receiver, *, task_status: trio.TaskStatus[Sequence[Endpoint]] = ...
    ) -> None:
        """Bind, report the endpoints by `task_status.started`, then receive until cancelled."""

    def dial(self, dial: Dial) -> None: ...
    def hang_up(self, conn: Conn) -> None: ...
    def send(self, conn: Conn, frame: bytes) -> bool:
        """Queue a frame without blocking. Return False if the connection does not exist any more."""

    def probe(self, endpoint: str, node: bytes) -> None: ...
    def check_arrivals(self) -> bool:
        """Return, after sending, whether frames have arrived meanwhile, so that `receive` should be called."""

    def receive(self) -> bool:
        """Receive frames that have arrived, within a budget. Return True if there are more."""
