"""What a node needs of a transport, and what it is told by one: `zmq_transport`, or that of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from security.announcement import Endpoint

from .protocol.instructions import Dial, Probed
from .protocol.lane import Conn


class Receiver(Protocol):
    """Who is told what the transport met; all calls come from the trio thread."""

    def received(self, conn: Conn, user: str | None, data: bytes | memoryview) -> None: ...
    def lost(self, conn: Conn, *, denied: bool = False) -> None: ...
    def inbound_lost(self, conns: Sequence[Conn]) -> None:
        """An accepted connection ended: one of these, as far as can be told, or none of them."""

    def cut_off(self, conns: Sequence[Conn], what: str, who: str) -> None:
        """The same, but it was us who hung up, on `who`, for `what` it sent. Told before it is lost."""

    def probed(self, node: bytes, endpoint: str, found: Probed) -> None: ...
    def refused(self, what: str, who: str = "", *, quiet: bool = False) -> None:
        """Somebody was turned away. `what` is counted; the first is logged with `who` it was."""

    def settle(self) -> None: ...


class Transport(Protocol):
    """Connections are named by the core (ints, dialled) or by the transport (bytes, accepted)."""

    async def run(
        self, receiver: Receiver, *, task_status: trio.TaskStatus[Sequence[Endpoint]] = ...
    ) -> None:
        """Bind, report `endpoints` by task_status.started, then receive until cancelled."""

    def dial(self, dial: Dial) -> None: ...
    def hang_up(self, conn: Conn) -> None: ...
    def send(self, conn: Conn, frame: bytes) -> bool:
        """Queue a frame; never blocks. False: the connection is not there any more."""

    def probe(self, endpoint: str, node: bytes) -> None: ...
    def poke(self) -> bool:
        """After sending: whether frames arrived meanwhile and `receive` should be called."""

    def receive(self) -> bool:
        """Take in what is there, within a budget. True: there is more."""
