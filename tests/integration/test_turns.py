"""How much of a flood one turn takes in: counted, on a socket in memory, where nothing takes time."""

from __future__ import annotations

from collections import Counter

import trio

from mesh.protocol.lane import Conn
from mesh.zmq_transport import BYTES_PER_TURN, FRAMES_PER_TURN
from security.keyring import NetworkKeyring
from tests.transports import InMemory

EVIL, GOOD = b"\0evil", b"\0good"  # As libzmq gives them out: others are refused.
FLOOD, FLOODED = 5000, "inproc://flooded"
KEYRING = NetworkKeyring([b"tests of the mesh, 32 bytes long"])


class Count(InMemory):
    """Counts what a transport takes in, and may hang up on whoever is evil."""

    def __init__(self, *, cuts_off: bool = False) -> None:
        super().__init__(KEYRING)
        self.inbound = self.transport._inbound = self.router(FLOODED)
        self._cuts_off = cuts_off
        self.heard: Counter[Conn] = Counter()
        self.heard_bytes = self.settled = 0

    def flood(self, name: bytes, frames: int, frame: bytes = b"x") -> None:
        """Somebody who was admitted sends so many frames, and they have all arrived."""
        self.transport._accepted.cluster_of[name] = "databases"
        self.send(FLOODED, name, frames, frame)

    def received(self, conn: Conn, _user: str | None, data: bytes | memoryview) -> None:
        self.heard[conn] += 1
        self.heard_bytes += len(data)
        if conn == EVIL and self._cuts_off:
            self.transport.hang_up(conn)

    def flush(self) -> None:
        self.settled += 1


async def test_a_flood_that_waits_holds_nobody_up() -> None:
    """libzmq takes turns between connections, and we hear no more of one that was cut off."""
    with Count(cuts_off=True) as count:
        count.flood(EVIL, FLOOD)
        count.flood(GOOD, 3)
        assert count.transport._receive_some(count.inbound), "there is more"
        assert count.heard == {GOOD: 3, EVIL: 1}
        turns = 1
        while count.transport._receive_some(count.inbound):
            turns += 1
        assert turns == (FLOOD + 3) // FRAMES_PER_TURN
        assert count.heard == {GOOD: 3, EVIL: 1}


async def test_large_frames_make_turns_short() -> None:
    size_bytes = BYTES_PER_TURN // 5
    with Count() as count:
        count.flood(EVIL, 30, bytes(size_bytes))
        more, turns = True, 0
        while more:
            before = count.heard_bytes
            more = count.transport._receive_some(count.inbound)
            assert count.heard_bytes - before <= BYTES_PER_TURN + size_bytes
            turns += 1
        assert (count.heard[EVIL], turns) == (30, 5)


async def test_others_run_between_two_turns() -> None:
    with Count() as count:
        count.flood(EVIL, FLOOD)
        most, before = 0, 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count.transport._read, count.inbound)
            while count.heard[EVIL] < FLOOD:
                await trio.lowlevel.checkpoint()
                most, before = max(most, count.heard[EVIL] - before), count.heard[EVIL]
            nursery.cancel_scope.cancel()
        assert most <= 2 * FRAMES_PER_TURN, (
            "trio has them go in any order: one twice before the other"
        )
        assert count.settled >= FLOOD // FRAMES_PER_TURN, "and what was heard is answered"
