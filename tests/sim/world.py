"""A simulated network with its workload: nodes, load on every messaging pattern, and invariants.

`World` checks twenty times a second what must hold at any moment; `World.finish` heals every fault, waits for
quiet, and checks what must hold in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from mesh.protocol.membership import State
from mesh.protocol.seeds import Seed
from mesh.protocol.tunnel import TunnelEnd

from .publishing import TopicBook
from .requesting import RequestBook
from .sim_node import Hooks, Setup, SimNode
from .tunnelling import TunnelBook
from .wire import OPEN, Connection, Network

WATCH_S = 0.05
CONVERGE_S = 3.0
ROUTED_DEAD_S = 6.0
SMALL: dict[str, float | int] = {
    "frame_bytes_max": 16 << 10, "chunk_bytes": 4 << 10, "window_bytes": 64 << 10,
    "outbox_bytes": 256 << 10, "tunnel_window_bytes": 8 << 10, "payload_bytes_max": 256 << 10,
    "subscription_bytes": 32 << 10, "zeroconf": False,
}  # fmt: skip
"""Limits so small that each of them is reached."""


class World:
    """One network, made from a seed: `network`, its nodes, and the records of requests, topics and tunnels."""

    def __init__(self, seed: int, *, latency_s: tuple[float, float] = (0.0001, 0.002)) -> None:
        self.network = network = Network(seed, latency_s=latency_s)
        self.rng = Random(seed ^ 0x5EED)
        self.requests = RequestBook(network, self.rng)
        self.topics = TopicBook(network, self.rng)
        self.tunnels = TunnelBook(network, self.rng)
        self.nodes: list[SimNode] = []
        """Nodes that are neither killed nor leaving."""
        self.hooks = Hooks(self.requests.serve, self._opened, self.topics.freed, self._link_down)
        self._dead_s: dict[bytes, float] = {}
        self._names = 0
        self._started_s = 0.0
        """When the last node was started."""
        self.liars: set[bytes] = set()
        network.after(WATCH_S, self._watch)

    # Nodes

    def start(self, setup: Setup | None = None, name: str = "") -> SimNode:
        self._names += 1
        self._started_s = self.network.now_s
        setup = setup or Setup(settings=SMALL)
        node = SimNode(self.network, name or f"n{self._names}", setup, self.hooks)
        self.nodes.append(node)
        return node

    def start_all(self, count: int, setup: Setup | None = None) -> list[SimNode]:
        """Start nodes at once that know one seed's address; return when all are linked."""
        nodes = [self.start(setup) for _ in range(count)]
        for node in nodes[1:]:
            node.find(nodes[0])
        self.network.run_until(self.converged, 5.0, "linked from one seed")
        return nodes

    def restart(self, node: SimNode) -> SimNode:
        """Start a new process at a dead one's addresses."""
        assert node.dead
        setup = replace(node.setup, addresses=node.addresses)
        return self.start(setup, f"{node.host}'{self._names}")

    def kill(self, node: SimNode) -> None:
        self.nodes.remove(node)
        node.kill(graceful=self.rng.random() < 0.5)
        self._dead_s[node.id] = self.network.now_s

    def leave(self, node: SimNode) -> None:
        self.nodes.remove(node)
        node.leave()

    def running(self) -> list[SimNode]:
        return [node for node in self.nodes if node.loop_runs]

    # Hooks

    def _opened(self, node: SimNode, end: TunnelEnd, endpoint: str) -> None:
        self.tunnels.opened(node, end, endpoint)

    def _link_down(self, node: SimNode, peer: bytes) -> None:
        self.requests.link_broke(node.id, peer)
        self.topics.link_broke(node.id, peer)
        self.tunnels.link_broke(node.id, peer)

    # Invariants

    def _watch(self) -> None:
        self.check_now()
        self.network.after(WATCH_S, self._watch)

    def check_now(self) -> None:
        self.requests.check_now()
        self.tunnels.check_now()
        self.topics.check_now()
        now_s = self.network.now_s
        for node in self.network.nodes:
            if node.dead:
                continue
            assert not node.core.out, f"{node.name} left instructions behind"
            if not node.loop_runs:
                continue
            check_lost(node)
            for link in node.core.peering.links.values():
                for lane in (link.control, link.data):
                    over = lane.unacked_bytes - lane.window_bytes
                    assert over <= 0, f"{node.name}: {over} bytes over the window"
            for cluster in node.setup.clusters:
                for peer in sorted(node.rotation(cluster)):
                    dead_s = self._dead_s.get(peer)
                    if dead_s is not None and not node.was_paused(dead_s, now_s):
                        assert now_s - dead_s <= ROUTED_DEAD_S, f"{node.name} routes to a dead node"

    def check_manners(self) -> None:
        """Check that no node that keeps to the protocol was ever accused of breaking it."""
        liars = self.liars
        for node in self.network.nodes:
            if node.id in liars:
                continue
            for reason in node.core.refusals.counts:
                of_node = reason.startswith("protocol violation by a node of ")
                assert not of_node or liars, f"{node.name}: {reason}"
            for _, change in node.changes:
                violator = change.reason.startswith("protocol violation")
                assert not violator or change.member.node in liars, f"{node.name}: {change}"

    def honest(self) -> list[SimNode]:
        return [node for node in self.nodes if node.id not in self.liars and not node.leaving]

    def converged(self) -> bool:
        """Return whether every honest node is linked to all other honest nodes and considers them alive."""
        nodes = self.honest()
        ids = {node.id for node in nodes}
        for node in nodes:
            links = {peer for peer, link in node.core.peering.links.items() if link.connected}
            if links - self.liars != ids - {node.id}:
                return False
            members = node.core.membership.members
            if any(members[peer].state is not State.ALIVE for peer in links):
                return False
        return True

    def apart(self) -> str:
        """Return in words why it has not converged."""
        lines: list[str] = []
        for node in self.honest():
            for other in self.honest():
                if other is node:
                    continue
                member = node.core.membership.members.get(other.id)
                link = node.core.peering.links.get(other.id)
                state = member.state.value if member is not None else "unknown"
                if link is None or not link.connected or state != "alive":
                    peer = node.core.roster.peers.get(other.id)
                    lines.append(
                        f"{node.name}->{other.name} {state} {link} attempt="
                        f"{peer and peer.attempt} failures={peer and peer.failures}"
                    )
        return "\n".join(lines)

    # The end

    def finish(self) -> None:
        """Heal, converge, wait for quiet, and check everything."""
        network = self.network
        network.heal()
        for node in list(self.nodes):
            node.resume()
        gone = [node for node in network.nodes if node.leaving]
        network.run_until(lambda: all(node.dead for node in gone), 8.0, "leavers drain")
        started_s = network.now_s
        while not self.converged():
            waited_s = network.now_s - max(started_s, self._started_s)
            assert waited_s < CONVERGE_S, f"not converged:\n{self.apart()}"
            network.run(0.01)
        network.note("world", "converged")
        network.run_until(lambda: not self.topics.waits(self.honest()), 90.0, "a publisher waits")
        network.run(8)  # The longest deadline, and the slowest reader of what had waited.
        self.topics.finish(self.honest())
        network.run(20)
        assert self.converged(), f"did not stay converged:\n{self.apart()}"
        self.check_now()
        self.check_manners()
        self.requests.check_end()
        self.topics.check_end(self.honest())
        self.tunnels.check_end(self.honest())
        network.run_until(self._acknowledged, 1.0, "announcements renewed are acknowledged")
        self.check_quiet()

    def check_quiet(self) -> None:
        """Check that no node has anything left of the load, and that there are just the connections of all links."""
        nodes = self.honest()
        for node in nodes:
            check_no_leak(node)
        for node in nodes:
            for other in nodes:
                if other is not node:
                    mine = node.core.peering.links[other.id]
                    theirs = other.core.peering.links[node.id]
                    assert mine.link_id == theirs.link_id
                    assert mine.dialled is not theirs.dialled
        everybody = [node for node in self.nodes if not node.dead]
        # Introductions to former nodes go on: one just hung up still has an open end on the wire.
        self.network.run_until(self._ended, 1.0, "what one end has closed is closed")
        open_now = [one for one in self.network.connections if one.state == OPEN]
        linked = [one for one in open_now if not is_call(one)]
        among = [one for one in linked if all(end in nodes for end in one.ends)]
        assert len(among) == len(nodes) * (len(nodes) - 1), f"{len(among)} connections"
        assert all(end in everybody for one in linked for end in one.ends)

    def _acknowledged(self) -> bool:
        links = (link for node in self.honest() for link in node.core.peering.links.values())
        return not any(link.control.unacked for link in links)

    def _ended(self) -> bool:
        """Return whether no connection is closed at one end only."""
        return all(all(one.known) for one in self.network.connections if one.state == OPEN)


def is_call(connection: Connection) -> bool:
    """Return whether this is a dial that still waits for its answer, at a dead node's address for example."""
    dialler = connection.ends[0].core.peering.dialler
    return connection.dial.conn in dialler._pending_dials


def check_lost(node: SimNode) -> None:
    """Check that `roster.unreachable`, which is kept without a walk over all peers, holds just the peers that a walk finds."""
    roster = node.core.roster
    lost = [peer for peer in roster.peers.values() if peer.failures > 1 and peer.link is None]
    drawn = roster.unreachable.draw(len(roster.peers) + 1, Random(0))
    assert len(drawn) == len(lost), node.name
    assert {peer.node: peer for peer in drawn} == {peer.node: peer for peer in lost}, node.name


def check_no_leak(node: SimNode) -> None:
    core, who = node.core, node.name
    patterns, peering = core.patterns, core.peering
    links = set(peering.links.values())
    assert len(patterns.requests) == 0, who
    assert not patterns.requests.waiting or not any(patterns.requests.waiting.values()), who
    assert len(patterns.tunnels) == 0, f"{who}: {len(patterns.tunnels)} tunnels"
    assert set(peering.connections.link_by_conn.values()) == links, who
    assert len(peering.connections.link_by_conn) == 2 * len(links), who
    owners = [dial.owner for dial in peering.dialler._pending_dials.values()]
    assert all(isinstance(one, Seed) or one.link is None for one in owners), who
    assert set(patterns.subscribers._remote) <= links, who
    assert {link for link, _ in patterns._cancelled} <= links, who
    for link in links:
        assert link.outstanding == 0, f"{who}: {link} outstanding {link.outstanding}"
        assert not link.outbox, f"{who}: {link} unsent or unacked"
        assert not link.data.unacked, f"{who}: {link} unsent or unacked"
        assert not link.control.unacked, f"{who}: {link} control unacked"
        assert not link._control, f"{who}: {link} control unacked"
        assert not link._pieces, f"{who}: {link} pieces"
        assert link._pieces_bytes == 0, f"{who}: {link} pieces"
        assert link.outbox.size_bytes == 0, f"{who}: {link.outbox.size_bytes} in an empty outbox"
    for candidate in core.rotation._candidates.values():
        assert candidate.link in links, who
        assert candidate.outstanding == 0, who
    for inbox in patterns.subscriptions.inboxes.values():
        assert set(inbox.owed_bytes) <= links, who
    publisher = patterns.publisher
    assert not publisher.waiting, who
    assert not publisher.losses.by_link, who
    for dispatcher in patterns.dispatchers.values():
        assert dispatcher.load == 0, f"{who}: {dispatcher}"
        assert not dispatcher._jobs, f"{who}: {dispatcher}"
        assert dispatcher._queue_bytes == 0, who
    assert set(core.membership.members) >= set(peering.links), who
    live = sum(1 for _, _, timer in core.timers._heap if timer.callback is not None)
    unlinked = len(core.roster.peers) - len(links)
    assert live <= 2 + 4 * unlinked, f"{who}: {live} timers for {unlinked} peers without a link"


def every(network: Network, pause_s: Callable[[], float], what: Callable[[], None]) -> None:
    """Call `what` again and again, at random times."""

    def again() -> None:
        what()
        network.after(pause_s(), again)

    network.after(pause_s(), again)
