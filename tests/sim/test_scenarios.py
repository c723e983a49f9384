"""Faults one at a time on a world with load on every pattern: the invariants are World.finish's."""

from __future__ import annotations

from mesh.protocol.interest import POLICIES
from mesh.protocol.membership import State

from .sim_node import Setup, SimNode
from .wire import OPEN
from .world import SMALL, World


def busy(seed: int, count: int) -> tuple[World, list[SimNode]]:
    """A linked world whose nodes subscribe with every policy."""
    world = World(seed)
    nodes = world.start_all(count)
    for place, node in enumerate(nodes):
        world.topics.subscribe(node, "a.>", POLICIES[place % 3], 8 << 10)
    world.network.run(0.2)
    return world, nodes


def load(world: World, rounds: int) -> None:
    for _ in range(rounds):
        for node in world.running():
            world.requests.random_request(node)
            world.topics.random_publish(node, ["a.b", "a.c"])
            world.tunnels.open(node, plain=True)
        world.network.run(0.05)


def test_24_nodes_from_one_seed_at_once_and_it_stays_so() -> None:
    world = World(1)
    nodes = world.start_all(24)
    assert world.network.now_s < 1.0
    world.finish()
    assert all(len(node.core.peering.links) == 23 for node in nodes)


def test_crossing_dials_end_with_one_link() -> None:
    for seed in range(30):
        world = World(seed, latency_s=(0.0001, 0.03))
        one, other = world.start(), world.start()
        one.find(other)
        other.find(one)
        world.network.run_until(world.converged, 3.0, f"seed {seed}")
        world.finish()


def test_what_is_asked_while_a_link_comes_up_is_answered() -> None:
    """The acceptor is up one crossing before the dialler: no reply may fall into that gap."""
    for seed in range(10):
        world = World(seed, latency_s=(0.001, 0.03))
        one, other = world.start(), world.start()
        other.find(one)
        for _ in range(40):
            for node in (one, other):
                world.requests.ask(node, "x", delay_s=0.0)
            world.network.run(0.005)
        world.network.run(3)
        assert not world.requests.failures(), f"seed {seed}: {world.requests.failures()[:3]}"


def test_20_resets_under_load_lose_nothing() -> None:
    world, _ = busy(2, 4)
    for _ in range(20):
        load(world, 1)
        for connection in list(world.network.connections):
            world.network.reset(connection)
    world.finish()
    assert not any(pair.link_broke for pair in world.tunnels.pairs)
    assert not any(reader.broken for reader in world.topics.readers)


def test_killed_is_out_at_once_and_comes_back() -> None:
    world, nodes = busy(3, 5)
    load(world, 5)
    victim = nodes[2]
    world.kill(victim)
    world.network.run_until(lambda: not seen(world, victim), 0.3, "out of rotation")
    load(world, 5)
    world.restart(victim).find(nodes[0])
    world.finish()


def test_frozen_is_out_within_4_s_and_comes_back() -> None:
    for pause_s in (5.0, 20.0):
        world, nodes = busy(4, 4)
        nodes[1].freeze()
        world.network.run_until(lambda: not seen(world, nodes[1]), 4.0, "out of rotation")  # noqa: B023
        load(world, 3)
        world.network.run(pause_s)
        nodes[1].resume()
        world.finish()


def test_stalled_is_out_within_4_s_keeps_its_links_and_comes_back() -> None:
    world, nodes = busy(5, 4)
    before = [one for one in world.network.connections if one.state == OPEN]
    nodes[1].block()
    world.network.run_until(lambda: not seen(world, nodes[1]), 4.0, "out of rotation")
    members = [node.core.membership.members[nodes[1].id] for node in world.running()]
    assert all(member.state is State.STALLED for member in members)
    load(world, 3)
    nodes[1].resume()
    world.finish()
    assert before == [one for one in world.network.connections if one.state == OPEN]


def test_one_way_and_two_way_partitions_heal() -> None:
    for both in (False, True):
        world, nodes = busy(6, 4)
        for other in nodes[1:]:
            world.network.cut_path(nodes[0].host, other.host)
            if both:
                world.network.cut_path(other.host, nodes[0].host)
        load(world, 5)
        world.network.run(9)
        world.finish()


def test_garbage_costs_its_sender_its_own_links() -> None:
    world, nodes = busy(7, 4)
    liar = nodes[0]
    world.liars.add(liar.id)
    for link in list(liar.core.peering.links.values()):
        assert link.data.conn is not None
        liar.core.out.append((link.data.conn, world.rng.randbytes(100)))
    liar.settle()
    load(world, 3)
    honest = nodes[1:]
    theirs = [reader for reader in world.topics.readers if reader.node in honest]
    assert not any(reader.broken.keys() & ids(honest) for reader in theirs)
    for node in honest:
        assert ids(honest) - {node.id} <= node.rotation()


def test_leaving_is_known_at_once_and_everything_ended() -> None:
    world, nodes = busy(8, 4)
    load(world, 5)
    world.leave(nodes[1])
    world.network.run_until(lambda: not seen(world, nodes[1]), 6.0, "gone")
    world.finish()


def test_a_goodbye_by_hearsay_asks_nobody_again() -> None:
    """The member ran it, its answer and goodbye cannot reach the caller, a third node tells it."""
    world = World(10)
    caller, member, _ = world.start_all(3)
    world.network.cut_path(member.host, caller.host)
    asked = [world.requests.ask(caller, "x", timeout_s=30.0, delay_s=0.01) for _ in range(20)]
    world.network.run(0.5)
    held = [one for one in asked if member in one.ran_at]
    assert held
    world.leave(member)
    world.network.run_until(lambda: all(one.wakes for one in held), 8.0, "told")
    assert all(one.ran_at == [member] for one in held)
    assert all(getattr(one.outcome, "maybe_executed", False) for one in held)
    world.finish()


def test_clusters_that_differ_share_one_network() -> None:
    world = World(9)
    shop = [world.start(Setup(("shop",), dict(SMALL))) for _ in range(2)]
    db = [world.start(Setup(("db", "x"), dict(SMALL))) for _ in range(2)]
    for node in [*shop, *db]:
        node.find(db[0])
    world.network.run_until(world.converged, 5.0, "linked")
    asked = [world.requests.ask(shop[0], "db") for _ in range(20)]
    world.network.run(1)
    assert all(isinstance(one.outcome, bytes) for one in asked)
    assert {node for one in asked for node in one.ran_at} <= set(db)
    world.finish()


def ids(nodes: list[SimNode]) -> set[bytes]:
    return {node.id for node in nodes}


def seen(world: World, node: SimNode) -> bool:
    """Whether anybody who runs would still route to it."""
    return any(node.id in one.rotation() for one in world.running() if one is not node)
