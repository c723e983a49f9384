from __future__ import annotations

from itertools import product

import pytest

from mesh.protocol.membership import TRANSITIONS, Change, Member, Membership, State

NODE, OTHER = b"n" * 16, b"o" * 16
STALLED_S, GRACE_S, DEAD_S, FORGET_S = 3.0, 0.5, 6.0, 100.0


class Bench:
    """A membership with one member, and what it told of it."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.table = Membership(
            stalled_s=STALLED_S, suspect_grace_s=GRACE_S, dead_after_s=DEAD_S,
            forget_s=FORGET_S, changed=self.changes.append,
        )  # fmt: skip
        self.member = self.link(0.0)

    def link(self, now_s: float, *clusters: str) -> Member:
        return self.table.linked(NODE, clusters or ("shop",), ("tcp://a:1",), now_s)

    def told(self) -> list[str]:
        told = [change.kind for change in self.changes]
        self.changes.clear()
        return told

    def at(self, now_s: float) -> State:
        self.table.tick(now_s)
        return self.member.state


def test_joins_with_its_first_link() -> None:
    bench = Bench()
    assert bench.changes == [Change("joined", bench.member)]
    assert bench.member.state is State.ALIVE
    assert (bench.member.cluster, bench.member.endpoints) == ("shop", ("tcp://a:1",))
    assert repr(bench.member) == "<Member 6e6e6e6e of shop alive>"


def test_another_link_of_an_alive_one_is_no_news() -> None:
    bench = Bench()
    bench.told()
    assert bench.link(1.0, "shop", "depot") is bench.member
    assert (bench.told(), bench.member.clusters) == ([], ("shop", "depot"))


def test_a_silent_loop_makes_stalled_and_a_word_makes_alive() -> None:
    bench = Bench()
    bench.table.heard(bench.member, 1.0)
    assert bench.at(1.0 + STALLED_S - 0.01) is State.ALIVE
    assert bench.at(1.0 + STALLED_S) is State.STALLED
    assert bench.at(60.0) is State.STALLED, "its path lives: never dead"
    bench.table.heard(bench.member, 61.0)
    assert bench.at(61.0) is State.ALIVE
    assert bench.told() == ["joined", "stalled", "alive"]


def test_a_lost_path_makes_suspect_then_dead() -> None:
    bench = Bench()
    bench.table.path_lost(NODE, 1.0)
    bench.table.path_lost(NODE, 1.4)
    assert bench.at(1.0 + GRACE_S - 0.01) is State.ALIVE
    assert bench.at(1.0 + GRACE_S) is State.SUSPECT
    bench.table.heard(bench.member, 2.0)
    assert bench.at(1.0 + DEAD_S - 0.01) is State.SUSPECT, "words of one lane do not help"
    assert bench.at(1.0 + DEAD_S) is State.DEAD
    assert bench.told() == ["joined", "suspect", "dead"]
    assert "no path for 6.0 s" in bench.member.reason


def test_a_path_that_comes_back_in_time_is_no_news() -> None:
    bench = Bench()
    bench.table.path_lost(NODE, 1.0)
    bench.table.path_back(NODE, 1.3)
    assert bench.at(1.0 + GRACE_S) is State.ALIVE
    assert bench.told() == ["joined"]
    assert bench.at(1.3 + STALLED_S - 0.01) is State.ALIVE, "counts as heard"


@pytest.mark.parametrize("after_s", [GRACE_S, DEAD_S])
def test_back_from_suspect_or_dead(after_s: float) -> None:
    bench = Bench()
    bench.table.path_lost(NODE, 0.0)
    bench.at(after_s)
    bench.table.path_back(NODE, after_s)
    assert bench.at(after_s) is State.ALIVE
    assert bench.told()[-1] == "alive"


def test_proof_makes_dead_at_once_and_a_link_alive() -> None:
    bench = Bench()
    bench.table.gone(NODE, State.DEAD, "refused")
    assert (bench.at(0.0), bench.member.reason) == (State.DEAD, "refused")
    bench.table.gone(NODE, State.DEAD, "again")
    assert bench.link(1.0) is bench.member
    assert bench.at(1.0) is State.ALIVE
    assert bench.told() == ["joined", "dead", "alive"]


def test_left_is_for_ever_and_who_joins_again_is_somebody_new() -> None:
    bench = Bench()
    bench.table.gone(NODE, State.LEFT, "left")
    bench.table.path_back(NODE, 1.0)
    bench.table.heard(bench.member, 1.0)
    bench.table.gone(NODE, State.DEAD, "refused")
    assert bench.at(50.0) is State.LEFT
    assert bench.link(51.0) is not bench.member
    assert bench.told() == ["joined", "left", "joined"]


def test_strangers_change_nothing() -> None:
    bench = Bench()
    bench.table.path_lost(OTHER, 0.0)
    bench.table.path_back(OTHER, 0.0)
    bench.table.gone(OTHER, State.DEAD, "")
    bench.table.forget(OTHER)
    assert bench.told() == ["joined"]
    bench.table.forget(NODE)
    assert list(bench.table.members_of(None)) == []


def test_our_own_lag_is_no_evidence() -> None:
    bench = Bench()
    bench.table.shift(10.0, 10.0)
    assert bench.at(10.0 + STALLED_S - 0.01) is State.ALIVE
    bench.table.path_lost(NODE, 11.0)
    bench.table.shift(50.0, 61.0)
    assert bench.at(61.0 + DEAD_S - 0.01) is State.SUSPECT
    assert bench.at(61.0 + DEAD_S) is State.DEAD


def test_who_was_heard_after_our_lag_is_not_credited_with_it() -> None:
    """Found: what had waited was read before the clocks were moved, which put them in the future."""
    bench = Bench()
    bench.table.heard(bench.member, 60.0)
    bench.table.shift(59.75, 60.0)
    assert bench.at(60.0 + STALLED_S) is State.STALLED
    bench.table.heard(bench.member, 64.0)
    bench.table.path_lost(NODE, 124.0)
    bench.table.shift(59.75, 124.0)
    assert bench.at(124.0 + DEAD_S) is State.DEAD


@pytest.mark.parametrize(
    ("state", "there"),
    [(State.ALIVE, True), (State.STALLED, True), (State.SUSPECT, True), (State.DEAD, False),
     (State.LEFT, False)],
)  # fmt: skip
def test_of_cluster(state: State, there: bool) -> None:
    bench = Bench()
    other = bench.table.linked(OTHER, ("depot", "shop"), (), 0.0)
    bench.member.state = state
    assert list(bench.table.members_of("shop")) == [bench.member] * there + [other]
    assert list(bench.table.members_of("depot")) == [other]
    assert list(bench.table.members_of(None)) == [bench.member] * there + [other]
    assert list(bench.table.members_of("nobody")) == []


@pytest.mark.parametrize("state", [State.DEAD, State.LEFT])
def test_nodes_that_are_gone_are_forgotten_some_time(state: State) -> None:
    """Found: every process that ever was in the network stayed in the table for good."""
    bench = Bench()
    bench.table.gone(NODE, state, "")
    bench.at(1.0)
    bench.at(1.0 + FORGET_S - 0.01)
    assert NODE in bench.table.members
    bench.at(1.0 + FORGET_S)
    assert NODE not in bench.table.members
    assert bench.link(300.0) is not bench.member
    assert bench.told()[-1] == "joined"


def test_who_came_back_is_not_forgotten() -> None:
    bench = Bench()
    bench.table.gone(NODE, State.DEAD, "")
    bench.at(1.0)
    bench.link(50.0)
    bench.table.gone(NODE, State.DEAD, "")
    bench.at(1.0 + FORGET_S)
    assert NODE in bench.table.members


def test_the_table_has_just_the_changes_there_are() -> None:
    """Nothing returns to SUSPECT from death, nothing from LEFT, and no change is none."""
    missing = {pair for pair in product(State, State) if pair not in TRANSITIONS}
    assert missing == {
        *((state, state) for state in State), *((State.LEFT, state) for state in State),
        (State.SUSPECT, State.STALLED), (State.DEAD, State.STALLED), (State.DEAD, State.SUSPECT),
    }  # fmt: skip


def test_of_those_who_went_so_many_are_remembered_and_the_first_are_forgotten() -> None:
    """Found: each command that came and left was kept for ten minutes, and looked at several times a second."""
    table = Membership(
        stalled_s=STALLED_S, suspect_grace_s=GRACE_S, dead_after_s=DEAD_S,
        gone_max=3, changed=lambda _: None,
    )  # fmt: skip
    names = [bytes([number]) * 16 for number in range(8)]
    for name in names:
        table.linked(name, ("shop",), (), 0.0)
    for name in names[:3]:
        table.gone(name, State.DEAD, "refused")
    table.linked(names[0], ("shop",), (), 1.0)
    table.gone(names[1], State.LEFT, "left")
    for name in names[3:5]:
        table.gone(name, State.LEFT, "left")
    assert [*table.members] == [names[0], names[1], *names[3:]], (
        "it died first of those who are gone"
    )
    table.linked(names[1], ("shop",), (), 1.0)
    table.gone(names[5], State.LEFT, "left")
    table.gone(names[6], State.LEFT, "left")
    assert [*table.members] == [names[0], names[1], *names[4:]]
    assert [one.node for one in table.members_of("shop")] == [names[0], names[1], names[7]]
