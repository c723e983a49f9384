"""What clusters may do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from durable.definitions import (
    BindingDefinition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import AccessRefused, NoAdministrator
from durable.expressions import compiled
from durable.routing import permissions as rules
from durable.routing.permissions import Need, Permissions


def said(*definitions: PermissionDefinition) -> Permissions:
    permissions = Permissions()
    for one in definitions:
        permissions.declare(one)
    return permissions


def test_as_long_as_nothing_is_said_everybody_may_do_everything() -> None:
    permissions = Permissions()
    assert permissions.may("anyone", "configure", "jobs")
    permissions.declare(PermissionDefinition(cluster="web", write="jobs"))
    assert permissions.may("web", "write", "jobs")
    assert not permissions.may("web", "read", "jobs")
    assert not permissions.may("anyone", "configure", "jobs")
    permissions.remove("web")
    permissions.remove("web")
    assert permissions.definitions() == ()
    assert permissions.may("anyone", "configure", "jobs")


@pytest.mark.parametrize(
    ("pattern", "name", "may"),
    [
        ("jobs", "jobs", True), ("jobs", "jobs2", False), ("jobs", "my jobs", False),
        ("a|b", "b", True), ("a|b", "bc", False), (".*", "", True), ("", "", False), ("", "x", False),
        ("amq\\.default", "", True), ("jobs$", "jobs\n", False), ("o-.*", "o-eu", True),
    ],
)  # fmt: skip
def test_the_whole_name_must_match(pattern: str, name: str, may: bool) -> None:
    permissions = said(PermissionDefinition(cluster="web", read=pattern))
    for _ in range(2):  # The second answer comes from the cache.
        assert permissions.may("web", "read", name) is may
        assert not permissions.may("web", "write", name)
        assert not permissions.may("db", "read", name)


@pytest.mark.parametrize(
    ("expression", "allowed", "refused"),
    [
        (
            r"orders\..*", ["orders.new", "orders.*", "orders.>", "orders.*.eu"],
            ["orders", "*.new", ">", "*.>", "ordersx.a", "my.orders.new"],
        ),
        (r"orders\.new", ["orders.new"], ["orders.*", "orders.>", "*.new"]),
        (r"orders\.[^*>]*", ["orders.eu.new"], ["orders.*", "orders.>"]),
        (r"\*\.new|>", ["*.new", ">"], ["a.new", "a.>"]),
        ("", [], ["a", ">"]), (".*", ["a", ">", "*.*"], []),
    ],
)  # fmt: skip
def test_the_whole_text_of_a_pattern_must_match(
    expression: str, allowed: list[str], refused: list[str]
) -> None:
    """It is not asked which topics the pattern matches: `*.new` matches one of `orders.>`, too."""
    permissions = said(PermissionDefinition(cluster="web", capture=expression))
    for pattern in [*allowed, *refused] * 2:  # The second answer comes from the cache.
        needs = [*rules.for_capture([pattern])]
        with pytest.raises(AccessRefused):
            permissions.check("db", needs, "/v")
        if pattern in allowed:
            permissions.check("web", needs, "/v")
            continue
        with pytest.raises(AccessRefused, match="in vhost '/v'") as caught:
            permissions.check("web", needs, "/v")
        error = caught.value
        assert (error.cluster, error.what, error.kind) == ("web", "capture", "pattern")
        assert (error.name, error.vhost) == (pattern, "/v")


def test_each_pattern_of_a_stream_must_match() -> None:
    permissions = Permissions()
    needs = [*rules.for_capture(("a.>", "b", "c"))]
    permissions.check("web", needs, "/")  # As long as nothing is said.
    permissions.declare(PermissionDefinition(cluster="web", capture="a.*|c"))
    with pytest.raises(AccessRefused, match="may not capture pattern 'b' in vhost '/': "):
        permissions.check("web", needs, "/")
    permissions.check("web", rules.for_capture(()), "/")
    permissions.check("db", rules.for_capture(()), "/")
    permissions.declare(PermissionDefinition(cluster="web", capture="a.*|b|c"))
    permissions.check("web", needs, "/")
    permissions.remove("web")
    permissions.declare(PermissionDefinition(cluster="db"))
    with pytest.raises(AccessRefused, match=r"'a\.>'"):
        permissions.check("web", needs, "/")


def test_who_may_capture_a_pattern_sees_nothing_of_that_name() -> None:
    permissions = said(PermissionDefinition(cluster="web", capture=".*"))
    assert not permissions.sees("web", "jobs")


@pytest.mark.parametrize("unreadable", ["(" * 486 + ".*" + ")" * 486, "(", None, 5])
def test_a_capture_that_cannot_be_read_allows_no_pattern(unreadable: Any) -> None:
    permissions = said(PermissionDefinition(cluster="web", configure="s", capture=unreadable))
    with pytest.raises(AccessRefused):
        permissions.check("web", rules.for_capture(["a"]), "/")
    assert permissions.may("web", "configure", "s"), "what can be read holds"
    (line,) = permissions.invalid_patterns()
    assert line.startswith("permission of 'web': capture is invalid and grants nothing (")


TOKENS = [
    "mesh", "permissions", r"\.", ".*", "|", "(", ")", "(?:", "(?i)", "(?x)", "(?x:", "(?=", "# ", "[", "]", "a", "^", "$", "\\", "\n",
    "(?P<a>", r"\1", "(?#", "*", "?",
]  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS), max_size=8).map("".join))
@example(".*")
@example("a|mesh.*")
@example("(?x).* # a")
@example("a)|(.*")
def test_what_is_narrowed_to_permissions_allows_those_and_nothing_else(configure: str) -> None:
    """Oracle: the expression itself, asked of names that begin with `mesh.permissions.` only."""
    narrowed = rules.narrowed_to_permissions(configure)
    if not narrowed:
        return  # It allows nothing, also where that is less than it could.
    begin = "mesh.permissions."
    for name in (
        f"{begin}a", f"{begin}\na", begin, begin[:-1], begin.upper(), "mesh.vhost.a", "mesh.", "a", "",
        f"a {begin}a", "meshxpermissions.a", "mesh.permissionsxa",
    ):  # fmt: skip
        allows = compiled(configure).fullmatch(name) is not None and name.startswith(begin)
        assert (compiled(narrowed).fullmatch(name) is not None) == allows


def test_somebody_may_always_change_what_was_said() -> None:
    """Found by a new user: the first permission of all, `read` for somebody, shut everybody out for ever."""
    permissions = Permissions()
    with pytest.raises(NoAdministrator, match="'web'"):
        permissions.check_administered([PermissionDefinition(cluster="web", read=".*")])
    admin = PermissionDefinition(cluster="web", configure=r"mesh\.permissions\.web")
    permissions.check_administered([PermissionDefinition(cluster="db"), admin])
    permissions.declare(admin)
    permissions.check_administered([PermissionDefinition(cluster="db")])
    with pytest.raises(NoAdministrator):
        permissions.check_administered([PermissionDefinition(cluster="web", configure="jobs")])
    permissions.check_administered((), removed="web")  # The last one: all may do everything again.
    permissions.declare(PermissionDefinition(cluster="db"))
    with pytest.raises(NoAdministrator, match="'web'"):
        permissions.check_administered((), removed="web")


def test_who_administers_need_not_be_the_cluster_itself() -> None:
    """Found: two clusters that could each change what is said of the other were refused, as nobody."""
    permissions = Permissions()
    of_web = PermissionDefinition(cluster="db", configure=r"mesh\.permissions\.web")
    permissions.check_administered([of_web, PermissionDefinition(cluster="web")])
    permissions.declare(of_web)
    with pytest.raises(NoAdministrator):
        permissions.check_administered([PermissionDefinition(cluster="crm", configure="web")])


def test_whether_somebody_administers_is_not_asked_of_each_cluster_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by reading: of 2,000 clusters it took 2 s, in which a broker did nothing else."""
    asked = list[str]()

    @dataclass(frozen=True)
    class Counting:
        pattern: str

        def fullmatch(self, name: str) -> bool:
            asked.append(name)
            return re.fullmatch(self.pattern, name) is not None

    monkeypatch.setattr(rules, "compiled_or_nothing", Counting)
    alike = [PermissionDefinition(cluster=f"c{at}", configure="c.*") for at in range(100)]
    others = [PermissionDefinition(cluster=f"d{at}", configure=f"d{at}.*") for at in range(100)]
    admin = PermissionDefinition(cluster="admin", configure=".*")
    said(*alike, *others).check_administered([admin])
    assert len(asked) == 201
    asked.clear()
    with pytest.raises(NoAdministrator):
        said(*alike).check_administered([PermissionDefinition(cluster="web")])
    assert len(asked) == 3 * 101, "its own of each, then all by the two that differ"


def test_what_is_said_last_counts_at_once() -> None:
    permissions = said(PermissionDefinition(cluster="web", read="a"))
    assert permissions.may("web", "read", "a")
    last = PermissionDefinition(cluster="web", read="b")
    permissions.declare(last)
    assert not permissions.may("web", "read", "a")
    assert permissions.may("web", "read", "b")
    permissions.declare(PermissionDefinition(cluster="db"))
    assert permissions.may("web", "read", "b")
    permissions.remove("web")
    assert not permissions.may("web", "read", "b")
    assert permissions.definitions() == (PermissionDefinition(cluster="db"),)


DEEP = "(" * 486 + ".*" + ")" * 486


@pytest.mark.parametrize("unreadable", [DEEP, "(", None, 5])
def test_what_cannot_be_read_grants_nothing_and_is_still_said(unreadable: Any) -> None:
    """Found: a log with such a permission could not be read any more, by a broker nor by `salvage`."""
    definition = PermissionDefinition(cluster="web", configure=unreadable, read="jobs")
    permissions = said(definition)
    assert permissions.definitions() == (definition,)
    assert not permissions.may("web", "configure", "jobs")
    assert permissions.may("web", "read", "jobs"), "what can be read holds"
    assert not permissions.may("db", "configure", "jobs"), "something has been said"
    with pytest.raises(AccessRefused):
        permissions.check_configures("web")
    (line,) = permissions.invalid_patterns()
    assert line.startswith("permission of 'web': configure is invalid and grants nothing (")
    permissions.declare(PermissionDefinition(cluster="web", configure=".*"))
    assert permissions.may("web", "configure", "jobs")
    assert not [*permissions.invalid_patterns()]


def test_who_cannot_be_read_administers_nothing() -> None:
    permissions = said(PermissionDefinition(cluster="web", configure=DEEP))
    with pytest.raises(NoAdministrator):
        permissions.check_administered([PermissionDefinition(cluster="db", configure="jobs")])
    with pytest.raises(NoAdministrator):
        permissions.check_administered([PermissionDefinition(cluster="db", configure=DEEP)])
    permissions.check_administered([PermissionDefinition(cluster="db", configure=".*")])


def test_a_refusal_says_who_may_not_what() -> None:
    permissions = said(PermissionDefinition(cluster="web", read=".*"))
    binding = BindingDefinition(exchange="orders", destination="jobs")
    with pytest.raises(AccessRefused, match="cluster 'web' may not write queue 'jobs'") as caught:
        permissions.check("web", rules.for_bind(binding))
    error = caught.value
    assert (error.cluster, error.what, error.kind, error.name) == ("web", "write", "queue", "jobs")
    permissions.check("web", rules.for_read("queue", "jobs"))
    with pytest.raises(AccessRefused, match=r"'amq[.]default'"):
        permissions.check("web", rules.for_publish(""))


@pytest.mark.parametrize(
    ("needs", "wanted"),
    [
        (rules.for_declare_queue(QueueDefinition(name="q")), "configure queue q"),
        (
            rules.for_declare_queue(QueueDefinition(name="q", dead_letter_exchange="d")),
            "configure queue q, read queue q, write exchange d",
        ),
        (rules.for_declare_stream(StreamDefinition(name="s")), "configure stream s"),
        (rules.for_capture(("a.>", "b")), "capture pattern a.>, capture pattern b"),
        (rules.for_declare_exchange(ExchangeDefinition(name="e")), "configure exchange e"),
        (
            rules.for_declare_exchange(ExchangeDefinition(name="e", alternate="a")),
            "configure exchange e, read exchange e, write exchange a",
        ),
        (rules.for_delete("queue", "q"), "configure queue q"),
        (
            rules.for_bind(BindingDefinition(exchange="e", destination="q")),
            "write queue q, read exchange e",
        ),
        (
            rules.for_bind(BindingDefinition(exchange="e", destination="f", to_exchange=True)),
            "write exchange f, read exchange e",
        ),
        (rules.for_publish("e"), "write exchange e"),
        (rules.for_read("stream", "s"), "read stream s"),
        (rules.for_permissions("web"), "configure permissions mesh.permissions.web"),
        (rules.for_vhost("v"), "configure vhost mesh.vhost.v"),
    ],
)
def test_what_each_operation_needs(needs: list[Need], wanted: str) -> None:
    assert ", ".join(" ".join(one) for one in needs) == wanted


@pytest.mark.parametrize("what", ["configure", "write", "read"])
def test_who_may_do_anything_with_it_sees_it(what: str) -> None:
    permissions = said(PermissionDefinition(cluster="web", **{what: "jobs"}))
    assert permissions.sees("web", "jobs")
    assert not permissions.sees("web", "other")
    assert not permissions.sees("db", "jobs")
    assert permissions.admits("web")
    assert not permissions.admits("db")
    permissions.declare(PermissionDefinition(cluster="db", write=r"amq\.default"))
    assert permissions.sees("db", "jobs"), "it sends straight to each"
    permissions.remove("db")
    permissions.remove("web")
    assert permissions.sees("db", "jobs")
    assert permissions.admits("db")
