"""Keys are rotated node by node, in every order, while everything is used: as docs/guide.md says."""

from __future__ import annotations

from itertools import permutations

import pytest

from security.keyring import FileKeyring, Keyring, NetworkKeyring
from security.keys import derive

from .sim_node import SECRET, Setup, SimNode
from .world import SMALL, World

NEW = SECRET[::-1]
STEPS = [[SECRET], [NEW, SECRET], [NEW]]


def keyring(kind: str, secrets: list[bytes]) -> Keyring:
    if kind == "network":
        return NetworkKeyring(secrets)
    return FileKeyring([derive(secret, "x") for secret in secrets])


@pytest.mark.parametrize("kind", ["network", "cluster"])
@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
def test_keys_are_replaced_in_any_order_and_callers_that_stay_lose_nothing(
    order: tuple[int, int, int], kind: str
) -> None:
    """Both generations everywhere, then the new one alone; whoever is restarted knows one other."""
    world = World(sum(place * 3**at for at, place in enumerate(order)))
    setups = [Setup(settings=SMALL, keyring=keyring(kind, secrets)) for secrets in STEPS]
    nodes = world.start_all(3, setups[0])
    for node in nodes:
        world.topics.subscribe(node, "a.>", "block", 8 << 10)
    for setup, places in ((setups[1], order), (setups[2], order[1:] + order[:1])):
        for place in places:
            load(world, nodes)
            world.leave(nodes[place])
            load(world, world.nodes)
            seed, _ = world.nodes
            nodes[place] = world.start(setup)
            nodes[place].find(seed)
            world.topics.subscribe(nodes[place], "a.>", "block", 8 << 10)
            world.network.run_until(world.converged, 15.0, "found again")
    world.finish()
    failed = [one for one in world.requests.failures() if one.outcome is not None]
    # Who leaves while a member that it asked leaves too may lose what that one has not answered.
    assert all(one.caller.leaving for one in failed), "of callers that left themselves"


def load(world: World, nodes: list[SimNode]) -> None:
    """Requests that outlast the callers' and the members' leaving, tunnels, messages."""
    for node in nodes:
        world.requests.ask(node, "x", delay_s=0.2, timeout_s=5.0)
        world.topics.random_publish(node, ["a.b", "a.c"])
        world.tunnels.open(node, plain=True)
    world.network.run(0.05)
