"""Whether the patterns of new streams may and can be captured: some in a turn, and as of the turn they are declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from durable.broker.stream_check import StreamCheck
from durable.definitions import PermissionDefinition, StreamDefinition
from durable.errors import AccessRefused, TooManyPatterns
from durable.routing.permissions import Need, Permissions
from durable.turns import ENTRIES_AT_ONCE

MANY = [f"t.{number}" for number in range(3 * ENTRIES_AT_ONCE)]


class Counted(Permissions):
    """Permissions that tell how many patterns have been compared with them."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = 0
        self.capture(".*")

    def capture(self, expression: str) -> None:
        self.declare(PermissionDefinition(cluster="shop", configure=".*", capture=expression))

    def check(self, cluster: str, needs: Iterable[Need], vhost: str = "") -> None:
        found = [*needs]
        self.compared += len(found)
        super().check(cluster, found, vhost)


class Case:
    """A check of streams in a vhost, whose cluster needs the permission in `/` as well."""

    def __init__(
        self, *streams: list[str], existing: Iterable[str] = (), room: int = 10**6
    ) -> None:
        self.own, self.default, self.patterns = Counted(), Counted(), Counter(existing)
        self.room = room
        vhosts: Any = [
            SimpleNamespace(
                name=name, registry=SimpleNamespace(permissions=one, patterns=self.patterns)
            )
            for name, one in (("own", self.own), ("/", self.default))
        ]
        self.check = StreamCheck(
            vhosts, "shop",
            [StreamDefinition(name=f"s{n}", patterns=tuple(one)) for n, one in enumerate(streams)],
            self._check_room,
        )  # fmt: skip

    def _check_room(self, new: int) -> None:
        if new > self.room:
            raise TooManyPatterns(new, self.room)

    @property
    def compared(self) -> tuple[int, int]:
        return self.own.compared, self.default.compared

    def finish(self) -> None:
        for _ in self.check.steps():
            pass


def test_steps_compare_no_more_than_some_at_a_time_and_nothing_is_left_for_the_turn() -> None:
    """Found: an import compared all of its patterns in one turn."""
    case, most, before = Case(MANY, MANY[:5]), 0, 0
    for _ in case.check.steps():
        most, before = max(most, case.own.compared - before), case.own.compared
    assert most <= ENTRIES_AT_ONCE
    assert case.compared == (len(MANY), len(MANY))
    case.check.now()
    assert case.compared == (len(MANY), len(MANY))


def test_without_steps_everything_is_compared_in_the_turn() -> None:
    case = Case(MANY)
    case.check.now()
    assert case.compared == (len(MANY), len(MANY))
    case.own.capture("")
    with pytest.raises(AccessRefused, match="in vhost 'own'"):
        case.check.now()


@pytest.mark.parametrize("when", ["between steps", "after them"])
def test_what_is_forbidden_meanwhile_is_refused_in_the_turn(when: str) -> None:
    case = Case(MANY)
    for number, _ in enumerate(case.check.steps()):
        if when == "between steps" and number == 0:
            case.default.capture("t.0|t.[2-9].*")  # Those that come later are allowed, too.
    if when == "after them":
        case.default.capture("")
    own = case.own.compared
    with pytest.raises(AccessRefused, match="in vhost '/'"):
        case.check.now()
    assert case.own.compared == own, "there nothing has changed"


def test_only_new_patterns_need_room_before_and_in_the_turn() -> None:
    case = Case(["a", "b"], ["b", "c"], existing=["c"], room=2)
    case.finish()
    case.check.now()
    case.patterns["a"] += 1
    case.room = 1
    case.check.now()
    case.room = 0
    with pytest.raises(TooManyPatterns):
        case.check.now()
    early = Case(["a", "b"], room=1)
    with pytest.raises(TooManyPatterns):
        early.finish()


def test_what_may_not_be_captured_is_refused_before_there_is_no_room() -> None:
    for by_steps in (False, True):
        case = Case([*MANY, "x"], room=1)
        case.default.capture("t.*")
        with pytest.raises(AccessRefused, match="'x'"):
            case.finish() if by_steps else case.check.now()
