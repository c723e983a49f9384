"""Which queues a connection calls its own."""

from __future__ import annotations

from durable.broker.peer import Peer
from durable.routing.permissions import Permissions


def test_queues_that_go_by_themselves_are_forgotten_and_the_others_are_not() -> None:
    """Found by reading: a connection with a queue for each reply kept a number of each for ever."""
    peer = Peer("shop", Permissions(), b"s" * 16)
    there = set(range(0, 10_000, 1000))
    most = 0
    for lane in range(10_000):
        peer.add_exclusive(lane, there | {lane})
        most = max(most, len(peer.exclusive_lanes))
    assert there <= peer.exclusive_lanes
    assert 9_999 in peer.exclusive_lanes
    assert most < 200


def test_however_many_there_are_all_are_its_own() -> None:
    peer = Peer("shop", Permissions(), b"s" * 16)
    for lane in range(1000):
        peer.add_exclusive(lane, range(1000))
    assert peer.exclusive_lanes == set(range(1000))
