"""The simulation is itself tested: one seed tells one story, and broken links do not pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mesh.protocol.lane import Lane

from .story import Story
from .wire import CONNECTING, HANDSHAKE_S, OPEN
from .world import World


def test_one_seed_tells_the_same_story_in_every_process() -> None:
    """Also where strings hash otherwise."""
    code = "from tests.sim.story import Story; print(Story(11).tell().network.digest())"
    elsewhere = [
        subprocess.run(
            [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONHASHSEED": salt},
        ).stdout.strip()
        for salt in ("1", "2")
    ]  # fmt: skip
    assert elsewhere == [Story(11).tell().network.digest()] * 2


def forgetful(self: Lane, _expects: int) -> list[bytes]:
    """Nothing is sent again."""
    self.unacked.clear()
    self.unacked_bytes = 0
    return []


def miserly(_self: Lane, _through: int) -> bool:
    """No acknowledgement is ever taken: credit does not come back."""
    return False


@pytest.mark.parametrize(("name", "mutant"), [("resume", forgetful), ("acknowledge", miserly)])
def test_a_broken_lane_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, name: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(Lane, name, mutant)
    with pytest.raises(AssertionError):
        for seed in range(12, 18):
            Story(seed).tell()


def test_an_introduction_that_has_just_been_hung_up_is_no_connection_too_many() -> None:
    """Found: of a restarted node, to its own addresses, which it had heard of as another's."""
    world = World(1)
    node, _ = world.start_all(2)
    world.network.run(5)
    node.core.found(node.addresses[0], b"", node.now_s)
    node.flush()
    while all(all(one.known) for one in world.network.connections if one.state == OPEN):
        world.network.run(1e-4)
    world.check_quiet()


def test_a_dial_that_ends_while_its_node_is_frozen_has_ended_once_it_runs_again() -> None:
    """Found: nobody told it, so it waited for all of its patience, and of 300 stories one did not converge in time."""
    world = World(3)
    node, other = world.start_all(2)
    network = world.network
    network.cut_path(node.host, other.host)
    for connection in list(network.connections):
        network.reset(connection)

    def patient() -> set[int]:
        """Dials that it waits for longer than the wire does."""
        calls = node.core.peering.dialler._pending_dials
        begun = (one.dial.conn for one in network.connections if one.state == CONNECTING)
        return {conn for conn in begun if conn in calls and calls[conn].failures}

    network.run_until(lambda: bool(patient()), 10.0, "it has dialled in vain before")
    begun = patient()
    node.freeze()
    network.run(1.5 * HANDSHAKE_S)
    assert not patient(), "they have ended"
    node.resume()
    assert begun.isdisjoint(node.core.peering.dialler._pending_dials)


def test_what_publishers_had_waiting_is_read_before_the_last_messages_are_published() -> None:
    """Found: a small subscription that drops dropped the last one with all that came at once."""
    world = World(2)
    publisher, burst, reader = world.start_all(3)
    small = world.topics.subscribe(reader, "a.>", "drop_oldest", 1 << 10, 0.02)
    stuck = world.topics.subscribe(reader, "a.c", "block", 1 << 10, 60.0)
    world.network.run(0.5)
    world.topics.publish(publisher, "a.b", [8])
    world.topics.publish(burst, "a.c", [7000] * 40)
    world.network.after(9.0, lambda: world.topics.unsubscribe(stuck))
    world.finish()
    assert small.lost
