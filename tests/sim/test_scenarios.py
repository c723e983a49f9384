"""Faults one at a time on a world with load on every pattern: the invariants are World.finish's."""

from __future__ import annotations

import pytest

from mesh.errors import PeerLost, RequestTimeout
from mesh.protocol.frame import Kind
from mesh.protocol.hello import ANNOUNCEMENTS_MAX
from mesh.protocol.interest import POLICIES
from mesh.protocol.membership import State

from .publishing import NUMBER
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


def test_who_comes_with_one_seed_is_found_by_all_within_100_ms() -> None:
    """At a millisecond or two a crossing; on real sockets the bench measures it."""
    world = World(23, latency_s=(0.001, 0.002))
    first, *_ = world.start_all(10)
    world.network.run(5)
    for _ in range(5):
        world.start().find(first)
        world.network.run_until(world.converged, 0.1, "found")
    world.finish()


def test_more_nodes_than_one_record_tells_of_find_each_other_all_the_same() -> None:
    count = ANNOUNCEMENTS_MAX + 10
    world = World(2)
    nodes = world.start_all(count)
    world.finish()
    assert all(len(node.core.peering.links) == count - 1 for node in nodes)


@pytest.mark.parametrize("told", ["an address", "an announcement"])
def test_crossing_dials_end_with_one_link_and_soon(told: str) -> None:
    for seed in range(30):
        world = World(seed, latency_s=(0.0001, 0.03))
        one, other = world.start(), world.start()
        for node, seen in ((one, other), (other, one)):
            if told == "an address":
                node.find(seen)
            else:
                node.core.found("", seen.core.peering.announcement, node.now_s)
                node.flush()
        world.network.run_until(world.converged, 0.5, f"seed {seed}")
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


def test_20_resets_lose_no_request_and_run_none_twice() -> None:
    world = World(11)
    nodes = world.start_all(3)
    for _ in range(20):
        for node in nodes * 25:
            world.requests.ask(node, "x", timeout_s=5.0)
        world.network.run(0.0005)
        for connection in list(world.network.connections):
            world.network.reset(connection)
        world.network.run(0.05)
    world.finish()
    assert len(world.requests.asked) == 20 * 75
    assert not world.requests.failures()
    assert all(len(one.ran_at) == 1 for one in world.requests.asked)


def test_what_a_killed_member_held_is_told_or_asked_elsewhere() -> None:
    """Not idempotent: it may have run, so its caller hears so. Idempotent: another one answers."""
    world = World(12)
    caller, victim, *_ = world.start_all(4)
    asked = [
        world.requests.ask(caller, target, timeout_s=5.0, delay_s=0.05)
        for target in ["x", "x/twice"] * 30
    ]
    world.network.run(0.01)
    world.kill(victim)
    world.finish()
    failed = world.requests.failures()
    assert any(victim in one.ran_at for one in asked if one.idempotent)
    assert failed
    assert not any(one.idempotent for one in failed)
    for one in failed:
        assert isinstance(one.outcome, PeerLost)
        assert one.outcome.maybe_executed


def test_block_loses_nothing_though_a_message_is_larger_than_an_outbox() -> None:
    """Found: one that began while such a message was on its way to another lost what was sent after it."""
    largest = int(SMALL["payload_bytes_max"]) - NUMBER.size
    for following in ([0] * 5, [largest]):
        world = World(24)
        setup = Setup(settings={**SMALL, "outbox_bytes": 64 << 10})
        publisher, node = world.start_all(2, setup)
        first = world.topics.subscribe(node, "a.>", "block", 8 << 10)
        world.network.run(0.2)
        world.topics.publish(publisher, "a.b", [largest])
        late = world.topics.subscribe(node, "a.*", "block", 8 << 10, pause_s=2.0)
        world.network.run(0.5)
        world.topics.unsubscribe(first)
        world.topics.publish(publisher, "a.b", following)
        world.network.run(0.5)
        assert late.inbox.statistics().waiting_bytes > largest, "it has come, and without credit"
        world.finish()
        assert (late.delivered, late.lost) == (1 + len(following) + 1, 0)


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
    for pause_s in (5.0, 20.0, 60.0):
        world, nodes = busy(4, 4)
        nodes[1].freeze()
        world.network.run_until(lambda: not seen(world, nodes[1]), 4.0, "out of rotation")
        load(world, 3)
        world.network.run(pause_s)
        nodes[1].resume()
        world.finish()


def test_a_frozen_member_takes_no_more_callers_than_those_it_had_when_the_first_gave_up() -> None:
    """Found: whoever gave up no longer counted there, so it looked idle and took others in their place."""
    world = World(21)
    frozen, caller, *_ = world.start_all(4)
    for _ in range(20):
        world.requests.ask(caller, "x", delay_s=0.002)
        world.network.run(0.01)
    frozen.freeze()
    frozen_s, timeout_s = world.network.now_s, 0.2
    while world.network.now_s < frozen_s + 2.5:
        world.requests.ask(caller, "x", timeout_s=timeout_s, delay_s=0.002)
        world.network.run(0.01)
    assert seen(world, frozen), "nobody knows yet"
    failed = world.requests.failures()
    assert all(isinstance(one.outcome, RequestTimeout) for one in failed)
    assert 0 < len(failed) <= 3, "as many as make it look worse than the others"
    assert all(one.asked_s < frozen_s + timeout_s for one in failed)
    frozen.resume()
    world.network.run(1)
    first = len(world.requests.asked)
    for _ in range(50):
        world.requests.ask(caller, "x", delay_s=0.002)
        world.network.run(0.01)
    assert any(frozen in one.ran_at for one in world.requests.asked[first:]), "it has said: idle"
    world.finish()


def test_a_member_that_was_frozen_at_work_is_asked_again_though_others_are_idle() -> None:
    """Found: one request took seconds there, by its clock, and with nobody else busy it got no other."""
    world = World(22)
    frozen, caller, *_ = world.start_all(4)
    at_work = [world.requests.ask(caller, "x", timeout_s=30, delay_s=0.1) for _ in range(30)]
    world.network.run(0.05)
    frozen.freeze()
    world.network.run(2)
    frozen.resume()
    world.network.run(1)
    assert any(frozen in one.ran_at and one.ended_s for one in at_work)
    first = len(world.requests.asked)
    for _ in range(200):
        world.requests.ask(caller, "x", delay_s=0.002)
        world.network.run(0.1)
    asked = [frozen in one.ran_at for one in world.requests.asked[first:]]
    assert sum(asked[-100:]) > 10, "as any other"
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
    kinds = [change.kind for _, change in nodes[0].changes if change.member.node == nodes[1].id]
    assert kinds == ["joined", "stalled", "alive"]


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


def test_both_halves_of_a_network_go_on_and_grow_together_again() -> None:
    world = World(13)
    nodes = world.start_all(6)
    left, right = nodes[:3], nodes[3:]
    for one in left:
        for other in right:
            world.network.cut_path(one.host, other.host)
            world.network.cut_path(other.host, one.host)
    world.network.run_until(lambda: among(left) and among(right), 5.0, "two halves")
    world.network.run(30)
    assert among(left)
    assert among(right)
    world.finish()


@pytest.mark.parametrize("frozen", [False, True])
def test_who_was_away_for_longer_than_its_announcement_lives_is_back_at_once(frozen: bool) -> None:
    world = World(16)
    away, *others = world.start_all(3)
    if frozen:
        away.freeze()
    for other in others:
        world.network.cut_path(away.host, other.host)
        world.network.cut_path(other.host, away.host)
    world.network.run(away.core.config.lifetime_s + 30)
    assert not any(node.core.roster.peers.get(away.id) for node in others)
    world.network.heal()
    away.resume()
    away.find(others[0])  # Each finder repeats itself.
    world.finish()


def test_garbage_costs_its_sender_its_own_links() -> None:
    world, nodes = busy(7, 4)
    liar = nodes[0]
    world.liars.add(liar.id)
    for link in list(liar.core.peering.links.values()):
        assert link.data.conn is not None
        liar.core.out.append((link.data.conn, world.rng.randbytes(100)))
    liar.flush()
    load(world, 3)
    honest = nodes[1:]
    theirs = [reader for reader in world.topics.readers if reader.node in honest]
    assert not any(reader.broken.keys() & ids(honest) for reader in theirs)
    for node in honest:
        assert ids(honest) - {node.id} <= node.rotation()
    assert sum("was disconnected" in line for line in world.network.log) == len(honest), (
        "each said once"
    )
    world.network.run_until(lambda: among(nodes), 8.0, "a new link for who behaves again")


def test_who_takes_no_control_for_too_long_loses_its_link_and_nobody_crashes() -> None:
    world = World(14)
    talker, _, frozen = world.start_all(3)
    frozen.freeze()
    world.network.run(3.9)
    link = talker.core.peering.links[frozen.id]
    for _ in range(80):
        link.send_control(Kind.GOSSIP, 0, bytes(60_000))
    talker.core.request_flush(link)
    talker.flush()
    assert frozen.id not in talker.core.peering.links
    world.finish()


def test_leaving_an_idle_network_is_known_at_once_and_for_good() -> None:
    world = World(15)
    nodes = world.start_all(5)
    world.leave(nodes[3])
    rest = world.running()
    assert world.network.run_until(lambda: among(rest), 1.0, "gone") < 0.1
    world.network.run(30)
    assert among(rest)
    for node in rest:
        kinds = [change.kind for _, change in node.changes if change.member.node == nodes[3].id]
        assert kinds == ["joined", "left"]


@pytest.mark.parametrize("dials", ["the leaver", "the other"])
def test_who_leaves_while_links_are_made_has_left(dials: str) -> None:
    """Found: one that dialled was dead to the other, which had the link before it did."""
    seen_kinds = set()
    for moment in range(150):
        world = World(moment)
        first, leaver = world.start_all(2)  # It waits for an answer to its goodbye.
        other = world.start()
        (leaver if dials == "the leaver" else other).find(leaver if dials == "the other" else other)
        world.network.run(0.0001 * moment)
        world.leave(leaver)
        world.network.run(2.0)
        kinds = tuple(one.kind for _, one in other.changes if one.member.node == leaver.id)
        assert kinds in ((), ("joined", "left")), f"at moment {moment}"
        refused = other.core.refusals.counts | leaver.core.refusals.counts
        assert not [reason for reason in refused if "violation" in reason], f"at moment {moment}"
        seen_kinds.add(kinds)
        other.find(first)
        world.finish()
    assert len(seen_kinds) == 2


@pytest.mark.parametrize("jump_s", [-100.0, -3600.0, 3600.0, 1e7])
def test_leaving_is_known_whatever_has_become_of_the_clock(jump_s: float) -> None:
    world = World(17)
    leaver, *rest = world.start_all(3)
    world.network.run(70)
    leaver.setup.wall_skew_s = jump_s
    world.leave(leaver)
    world.network.run_until(lambda: among(rest), 1.0, "gone")
    world.finish()
    for node in rest:
        kinds = [change.kind for _, change in node.changes if change.member.node == leaver.id]
        assert kinds == ["joined", "left"]


def test_leaving_under_load_is_known_and_everything_ended() -> None:
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


def test_hearsay_of_a_goodbye_that_is_on_its_way_fails_nothing() -> None:
    """What was on the way to the member is asked elsewhere, whoever tells first that it has left."""
    world = World(10)
    caller, member, _ = world.start_all(3)
    world.network.cut_path(member.host, caller.host)
    asked = [world.requests.ask(caller, "x", timeout_s=5.0) for _ in range(20)]
    world.leave(member)
    world.network.run_until(lambda: not seen(world, member), 3.0, "left by hearsay")
    asked += [world.requests.ask(caller, "x", timeout_s=5.0) for _ in range(20)]
    world.network.heal()
    world.finish()
    assert len(world.requests.asked) == len(asked)
    assert not world.requests.failures()
    assert all(len(one.ran_at) == 1 for one in asked)


def test_members_that_leave_one_after_the_other_fail_nothing() -> None:
    """Nor what is so large that a member has only some of it when it leaves."""
    world = World(18)
    caller, *members = world.start_all(6)
    for member in members[:-1]:
        for size in (0, 6_000, 60_000):
            for _ in range(10):
                world.requests.ask(caller, "x", timeout_s=5.0, size=size)
                world.network.run(0.002)
        world.leave(member)
        world.network.run_until(lambda one=member: not seen(world, one), 3.0, "gone")  # type: ignore[misc]
    world.finish()
    assert not world.requests.failures()


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


def among(nodes: list[SimNode]) -> bool:
    """Each of them would route to all the others, and to nobody else."""
    return all(node.rotation() == ids(nodes) - {node.id} for node in nodes)


def seen(world: World, node: SimNode) -> bool:
    """Whether anybody who runs would still route to it."""
    return any(node.id in one.rotation() for one in world.running() if one is not node)
