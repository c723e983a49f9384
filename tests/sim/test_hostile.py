"""A peer that breaks the protocol on connection after connection: what that costs, in events, not in time."""

from __future__ import annotations

from collections import Counter

import pytest

from mesh.protocol.frame import CONTROL, Buffer
from mesh.protocol.instructions import Dial
from mesh.protocol.lane import Conn
from security.keys import DOOR
from tests.integration.test_security import GARBAGE

from .requesting import Asked
from .sim_node import SimNode
from .world import World

CONNECTIONS, FRAMES, REQUESTS = 5, 20, 10


class Count:
    """What one node had to do, and for whom."""

    def __init__(self, node: SimNode) -> None:
        self.frames: Counter[Conn] = Counter()
        self.sent: Counter[Conn] = Counter()
        received, send = node.core.received, node.transport.send

        def count_received(conn: Conn, cluster: str | None, data: Buffer, now_s: float) -> None:
            self.frames[conn] += 1
            received(conn, cluster, data, now_s)

        def count_sent(conn: Conn, frame: bytes) -> bool:
            self.sent[conn] += 1
            return send(conn, frame)

        node.core.received = count_received  # type: ignore[method-assign]
        node.transport.send = count_sent  # type: ignore[method-assign]


class Insider:
    """Holds a key, and says nothing that makes sense. It has no link of its own."""

    def __init__(self, world: World) -> None:
        self._node = world.start()
        self._connections = 0

    def pour(self, victim: SimNode, frame: bytes) -> None:
        """All at once: that many connections with that many frames each."""
        (door, *_) = self._node.keyring.door()
        assert door.cluster == DOOR
        transport = self._node.transport
        for _ in range(CONNECTIONS):
            self._connections += 1
            conn = 1_000_000 + self._connections
            # Two dials of one transport to one address are one: another lane each.
            transport.dial(Dial(conn, CONTROL + conn, victim.addresses[0], door, door))
            for _ in range(FRAMES):
                transport.send(conn, frame)


def story(frame: bytes, *, attacked: bool) -> tuple[Count, SimNode, list[Asked], set[Conn]]:
    world = World(3)
    victim, good = world.start_all(2)
    links = set(victim.core.peering.connections.link_by_conn)
    count, insider = Count(victim), Insider(world)
    for _ in range(REQUESTS):
        if attacked:
            insider.pour(victim, frame)
        world.requests.ask(good, "x", delay_s=0.0)
        world.network.run(0.01)
    world.network.run(1)
    return count, victim, world.requests.asked, links


@pytest.mark.parametrize("frame", GARBAGE.values(), ids=GARBAGE)
def test_garbage_costs_one_event_for_each_connection_and_others_nothing(frame: bytes) -> None:
    quiet, _, _, links = story(frame, attacked=False)
    count, victim, asked, attacked_links = story(frame, attacked=True)
    assert attacked_links == links, "the same network in both"
    assert [type(one.outcome) for one in asked] == [bytes] * REQUESTS
    theirs = set(count.frames) - links
    assert len(theirs) == REQUESTS * CONNECTIONS
    assert {count.frames[conn] for conn in theirs} == {1}, "after the first frame nothing is heard"
    assert not set(count.sent) - links, "and nothing is answered"
    assert victim.core.refusals.counts == {"protocol violation by a connection": len(theirs)}
    assert (
        sum(victim.name in line and "was disconnected" in line for line in victim.network.log) == 1
    )
    for ours, alone in ((count.frames, quiet.frames), (count.sent, quiet.sent)):
        assert sum(ours[conn] for conn in links) <= sum(alone[conn] for conn in links) + REQUESTS
