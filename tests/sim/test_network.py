"""Scenarios on whole simulated networks."""

from __future__ import annotations

from functools import partial

from mesh.errors import MeshError, PeerLost
from mesh.protocol.frame import Kind
from mesh.protocol.requests import DONE, Pending

from .network import Network, SimNode


def start(seed: int, count: int, cluster: str = "x") -> tuple[Network, list[SimNode]]:
    """Nodes that start at once and know nothing but the first one's address."""
    network = Network(seed)
    nodes = [SimNode(network, f"n{number}", cluster) for number in range(count)]
    for node in nodes[1:]:
        node.seed(nodes[0].places[0].uri)
    return network, nodes


def everybody_linked(nodes: list[SimNode]) -> bool:
    ids = {node.core.identity.node for node in nodes}
    return all(node.knows("x") == ids - {node.core.identity.node} for node in nodes)


def ask(node: SimNode, payload: bytes, target: str = "x", timeout_s: float = 5.0) -> Pending:
    now_s = node.network.now_s
    pending = node.core.request(
        target, payload, now_s=now_s, deadline_s=now_s + timeout_s, expires_s=now_s + timeout_s,
        wake=lambda: None,
    )  # fmt: skip
    node.settle()
    return pending


def test_one_seed_is_enough_to_learn_a_network_of_24() -> None:
    network, nodes = start(1, 24)
    network.run_until(lambda: everybody_linked(nodes), within_s=4)
    network.run(3)
    assert everybody_linked(nodes), "and it stays so"
    assert all(len(node.core.peering.links) == 23 for node in nodes), "one link per pair"
    assert len(network.connections) == 2 * 24 * 23 // 2, "two lanes each, and nothing left over"


def test_crossing_dials_end_with_one_link() -> None:
    for seed in range(40):
        network, (one, other) = start(seed, 2)
        one.core.found("", other.core.peering.announcement, network.now_s)
        other.core.found("", one.core.peering.announcement, network.now_s)
        one.settle()
        other.settle()
        pair = [one, other]
        took_s = network.run_until(partial(everybody_linked, pair), within_s=3)
        network.run(3)
        assert len(network.connections) == 2, f"seed {seed}"
        assert took_s < 0.1, f"seed {seed}: {took_s} s"


def test_killed_is_out_at_once_and_a_restart_comes_back() -> None:
    network, nodes = start(2, 5)
    network.run_until(lambda: everybody_linked(nodes), within_s=3)
    victim, rest = nodes[1], nodes[:1] + nodes[2:]
    victim.kill()
    assert network.run_until(lambda: everybody_linked(rest), within_s=2) < 0.5
    new = SimNode(network, "new", "x")
    new.seed(nodes[0].places[0].uri)
    network.run_until(lambda: everybody_linked([*rest, new]), within_s=3)


def test_frozen_is_out_within_4_s_and_comes_back() -> None:
    for pause_s in (5, 20, 60):
        network, nodes = start(3, 4)
        network.run_until(partial(everybody_linked, nodes), within_s=3)
        nodes[2].freeze()
        rest = [node for node in nodes if node is not nodes[2]]
        network.run_until(partial(everybody_linked, rest), within_s=4)
        network.run(pause_s)
        nodes[2].thaw()
        network.run_until(partial(everybody_linked, nodes), within_s=8)


def test_blocked_loop_is_stalled_and_keeps_its_links() -> None:
    network, nodes = start(4, 4)
    network.run_until(lambda: everybody_linked(nodes), within_s=3)
    links = set(network.connections)
    nodes[2].blocked = True
    rest = [node for node in nodes if node is not nodes[2]]
    network.run_until(lambda: everybody_linked(rest), within_s=4)
    network.run(6)
    nodes[2].thaw()
    network.run_until(lambda: everybody_linked(nodes), within_s=2)
    assert set(network.connections) == links
    kinds = [
        kind for _, kind, node in nodes[0].changes if node == nodes[2].core.identity.node.hex()
    ]
    assert kinds == ["joined", "stalled", "alive"]


def test_leaving_is_known_at_once() -> None:
    network, nodes = start(5, 5)
    network.run_until(lambda: everybody_linked(nodes), within_s=3)
    nodes[3].leave()
    rest = [node for node in nodes if node is not nodes[3]]
    assert network.run_until(lambda: everybody_linked(rest), within_s=1) < 0.1
    network.run(30)
    assert everybody_linked(rest)
    assert all("left" in {kind for _, kind, _ in node.changes} for node in rest)


def test_20_resets_under_load_lose_no_request() -> None:
    network, nodes = start(6, 3)
    network.run_until(lambda: everybody_linked(nodes), within_s=3)
    asked: list[Pending] = []
    for number in range(20):
        asked += [ask(nodes[place % 3], b"%d/%d" % (number, place)) for place in range(25)]
        network.run(0.0005)
        for connection in list(network.connections):
            network.reset(connection)
        network.run(0.05)
    network.run(2)
    assert [one.outcome for one in asked] == [b"re:" + one.payload for one in asked]
    executed = [payload for node in nodes for payload in node.executed]
    assert sorted(executed) == sorted(set(executed)), "none twice"
    assert all(len(node.core.peering.links) == 2 for node in nodes)


def test_requests_end_once_when_their_member_is_killed() -> None:
    network, nodes = start(7, 4)
    network.run_until(lambda: everybody_linked(nodes), within_s=3)
    for node in nodes:
        node.handler_s = 0.05
    plain = [ask(nodes[0], b"p%d" % n) for n in range(30)]
    twice = [ask(nodes[0], b"t%d" % n, "x/twice") for n in range(30)]
    network.run(0.01)
    nodes[1].kill()
    network.run(3)
    assert all(one.state == DONE for one in plain + twice)
    for one in plain:
        assert isinstance(one.outcome, bytes | PeerLost)
        assert isinstance(one.outcome, bytes) or one.outcome.maybe_executed
    assert any(isinstance(one.outcome, MeshError) for one in plain)
    assert all(isinstance(one.outcome, bytes) for one in twice), "asked again elsewhere"
    assert len(nodes[0].core.patterns.requests) == 0


def test_a_partition_heals() -> None:
    network, nodes = start(8, 6)
    network.run_until(lambda: everybody_linked(nodes), within_s=3)
    left, right = nodes[:3], nodes[3:]
    network.cut = {(one.name, other.name) for one in left for other in right}

    def silent() -> None:
        for connection in list(network.connections):
            if network.parted(*connection.ends):
                network.reset(connection)

    network.after(3.0, silent)
    network.run_until(lambda: everybody_linked(left) and everybody_linked(right), within_s=5)
    network.run(30)
    network.cut = set()
    network.run_until(lambda: everybody_linked(nodes), within_s=10)


def test_garbage_costs_its_sender_its_own_link() -> None:
    network, nodes = start(9, 4)
    network.run_until(lambda: everybody_linked(nodes), within_s=3)
    liar, victim = nodes[1], nodes[2]
    link = liar.core.peering.links[victim.core.identity.node]
    assert link.data.conn is not None
    liar.core.out.append((link.data.conn, b"garbage"))
    liar.settle()
    network.run(0.01)
    others = [node for node in nodes if node is not liar]
    assert everybody_linked(others) or all(len(node.knows("x")) >= 2 for node in others)
    assert sum("was cut off" in line for line in network.log) == 1
    network.run_until(lambda: everybody_linked(nodes), within_s=8)


def test_a_peer_that_takes_no_control_for_too_long_loses_its_link_and_nobody_crashes() -> None:
    network, nodes = start(10, 3)
    network.run_until(lambda: everybody_linked(nodes), within_s=3)
    talker, frozen = nodes[0], nodes[2]
    frozen.freeze()
    network.run(3.5)
    link = talker.core.peering.links[frozen.core.identity.node]
    for _ in range(80):
        link.send_control(Kind.GOSSIP, 0, bytes(60_000))
    talker.core.touch(link)
    talker.settle()
    assert frozen.core.identity.node not in talker.core.peering.links
    frozen.thaw()
    network.run_until(lambda: everybody_linked(nodes), within_s=10)
