from __future__ import annotations

from mesh.protocol.frame import CONTROL, DATA
from mesh.protocol.link import Link
from mesh.protocol.membership import Membership, State
from mesh.protocol.rotation import LISTS_MAX, Rotation
from tests.machines import make_link

ONE, TWO = b"1" * 16, b"2" * 16


class Bench:
    """A rotation over two members of `shop`, the second of `depot` too."""

    def __init__(self) -> None:
        self.links: dict[bytes, Link] = {ONE: make_link(ONE), TWO: make_link(TWO)}
        self.membership = Membership(
            stalled_s=3.0, suspect_grace_s=0.5, dead_after_s=3.0,
            changed=lambda change: self.rotation.invalidate(),
        )  # fmt: skip
        self.rotation = Rotation(self.membership, self.links)
        self.membership.linked(ONE, ("shop",), (), 0.0)
        self.membership.linked(TWO, ("shop", "depot"), (), 0.0)

    def nodes(self, cluster: str = "shop") -> list[bytes]:
        return [one.node for one in self.rotation.candidates(cluster)]

    def told(self, cluster: str = "shop") -> list[bytes]:
        return [member.node for member, _ in self.rotation.linked(cluster)]


def test_members_of_a_cluster() -> None:
    bench = Bench()
    assert bench.nodes("shop") == bench.told("shop") == [ONE, TWO]
    assert bench.nodes("depot") == bench.told("depot") == [TWO]
    assert bench.nodes("nobody") == []


def test_clusters_are_present_while_members_are_there() -> None:
    bench = Bench()
    assert bench.rotation.present() == ("depot", "shop")
    bench.membership.gone(TWO, State.LEFT, "")
    assert bench.rotation.present() == ("shop",)


def test_a_stalled_one_gets_no_requests_but_is_told() -> None:
    bench = Bench()
    bench.membership.members[ONE].heard_s = 9.0
    bench.membership.tick(10.0)
    assert bench.membership.members[TWO].state is State.STALLED
    assert bench.nodes() == [ONE]
    assert bench.told() == [ONE, TWO]


def test_a_dead_one_gets_nothing() -> None:
    bench = Bench()
    bench.membership.gone(ONE, State.DEAD, "")
    assert bench.nodes() == bench.told() == [TWO]


def test_without_a_lane_it_gets_no_requests_and_without_a_link_nothing() -> None:
    bench = Bench()
    for lane in (CONTROL, DATA):
        bench.links[ONE].detach((lane, 0))
        bench.rotation.invalidate()
        assert bench.nodes() == [TWO]
        assert bench.told() == [ONE, TWO]
        bench.links[ONE].attach(lane, (lane, 0), 1)
    del bench.links[ONE]
    bench.links[TWO] = make_link(TWO, up=False)
    bench.rotation.invalidate()
    assert bench.nodes() == bench.told() == []


def test_lists_are_kept_until_something_changes() -> None:
    bench = Bench()
    kept = bench.rotation.candidates("shop")
    assert bench.rotation.candidates("shop") is kept
    bench.rotation.invalidate()
    assert bench.rotation.candidates("shop") is not kept


def test_what_the_balancer_knows_stays_with_a_link_and_a_cluster() -> None:
    bench = Bench()
    shop = bench.rotation.candidate(bench.links[TWO], "shop")
    bench.rotation.invalidate()
    assert bench.rotation.candidates("shop")[1] is shop
    assert bench.rotation.candidate(bench.links[TWO], "depot") is not shop
    bench.links[TWO] = make_link(TWO)
    bench.rotation.invalidate()
    assert bench.rotation.candidates("shop")[1] is not shop, "a new link starts at zero"


def test_reported_load_reaches_those_who_were_asked() -> None:
    bench = Bench()
    (one, two) = bench.rotation.candidates("shop")
    bench.rotation.update_loads(TWO, {"shop": 7, "depot": 9, "other": 1})
    assert (one.queue, two.queue) == (0, 7)
    assert bench.rotation.candidates("depot")[0].queue == 0


def test_nothing_is_kept_of_a_node_that_is_gone() -> None:
    bench = Bench()
    shop = bench.rotation.candidates("shop")[1]
    bench.rotation.candidates("depot")
    bench.rotation.forget(TWO)
    assert bench.rotation.candidates("shop")[1] is not shop
    bench.rotation.forget(ONE)
    bench.rotation.forget(TWO)
    assert bench.rotation._candidates == {}


def test_lists_of_ever_new_clusters_are_as_many_as_may_be() -> None:
    bench = Bench()
    for number in range(3 * LISTS_MAX):
        assert bench.nodes(f"nobody-{number}") == []
    assert len(bench.rotation._lists) <= LISTS_MAX
    assert bench.nodes("shop") == [ONE, TWO]
