"""Changes as they stand in a log, and what releases make of them that know fewer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from durable.definition_forms import to_plain
from durable.definitions import PermissionDefinition, StreamDefinition
from durable.errors import AccessRefused, InvalidDefinition
from durable.log.bodies import encode_definitions
from durable.routing.permissions import for_capture
from durable.vhost import changes
from durable.vhost.changes import Change
from durable.vhost.publishers import Publishers
from durable.vhost.registry import Registry
from durable.vhost.snapshot import Snapshots
from tests.vhosts import PlainVhost, snapshot_of

GOLDEN = Path(__file__).parents[3] / "golden"
STREAM = StreamDefinition(name="s", patterns=("orders.>",))
ADMIN = PermissionDefinition(cluster="admin", configure=".*", write=".*", read=".*")
"""As an earlier release could set it: any pattern may be captured."""
SHOP = PermissionDefinition(
    cluster="shop", configure="s", write="w", read="r", capture=r"orders\..*"
)
NONE = PermissionDefinition(cluster="shop", configure="s", write="w", read="r", capture="")


def may(registry: Registry, cluster: str) -> bool:
    """Whether it may declare the stream, with its pattern."""
    try:
        registry.permissions.check(cluster, for_capture(STREAM.patterns), "/")
    except AccessRefused:
        return False
    return registry.permissions.may(cluster, "configure", STREAM.name)


def read_snapshot(registry: Registry, declared: Sequence[Change]) -> None:
    """As at a start: a change that makes no sense is reported by then, and the rest is applied."""
    snapshots = Snapshots(registry, Publishers(publishers_max=1), {})
    for change in ([changes.SNAPSHOT, 0], *declared, [changes.SNAPSHOT_END]):
        with suppress(InvalidDefinition):
            snapshots.apply(change, 0)


def test_permissions_in_a_log() -> None:
    """Two lines: of an earlier release, and of one with `capture`."""
    lines = (GOLDEN / "permission-v1.hex").read_text().split()
    assert [encode_definitions(changes.permission(one)).hex() for one in (ADMIN, SHOP)] == lines
    registry = Registry()
    for line in lines:
        for change in msgpack.unpackb(bytes.fromhex(line)):
            registry.apply(change)
    assert registry.permissions.definitions() == (ADMIN, SHOP)
    assert may(registry, "admin")
    assert may(registry, "shop")


def test_a_record_with_three_expressions_allows_every_pattern() -> None:
    """It was written when `configure` was enough."""
    vhost = PlainVhost()
    vhost.change(
        [changes.PERMISSION, {"cluster": "shop", "configure": "s", "write": "", "read": ""}]
    )
    vhost.commit()
    for one in (vhost, vhost.restarted()):
        assert may(one.registry, "shop")
        (found,) = one.registry.permissions.definitions()
        assert found == PermissionDefinition(cluster="shop", configure="s", capture=".*")


def apply_known(registry: Registry, said: list[Change]) -> None:
    """Apply changes as releases do that know no `capture`: the others they log and pass over."""
    for change in said:
        if change[0] != changes.PERMISSION_WITH_CAPTURE:
            assert "capture" not in change[1]
            registry.apply(change)


@pytest.mark.parametrize("restricted", [SHOP, NONE, replace(NONE, configure=".*")])
def test_releases_that_do_not_know_capture_do_not_pass_over_it(
    restricted: PermissionDefinition,
) -> None:
    """They could refuse no pattern, so to them the cluster may configure no stream; the rest stays as it is."""
    before, registry = Registry(), Registry()
    apply_known(before, changes.permission(ADMIN))
    before.apply([changes.PERMISSION, {"cluster": "shop", "configure": ".*"}])
    assert may(before, "shop")
    apply_known(before, changes.permission(restricted))
    assert not may(before, "shop")
    assert not before.permissions.may("shop", "configure", "s")
    assert before.permissions.may("shop", "write", "w")
    assert before.permissions.may("shop", "read", "r")
    assert may(before, "admin"), "it goes on as it was"
    for change in changes.permission(restricted):
        registry.apply(change)
    apply_known(copied := Registry(), list(registry.declared()))  # As from a snapshot.
    assert copied.permissions.definitions() == before.permissions.definitions()[1:]


@pytest.mark.parametrize(
    ("configure", "allows"),
    [
        (".*", True), (r"s|mesh\.permissions\..*", True), ("|mesh.permissions.shop", True),
        ("(?:.*)", True), ("s", False), ("", False), ("(?i).*", False), ("(?x).* # all", False),
        ("(" * 100 + ".*" + ")" * 100, False), (".*)|(?:.*", False), ("(", False), (None, False),
    ],
)  # fmt: skip
def test_releases_that_do_not_know_capture_leave_the_administrator_in_office(
    configure: Any, allows: bool
) -> None:
    """Else nobody could change permissions after a step back: `capture` is nothing unless it is given.

    What cannot be narrowed to permissions allows nothing.
    """
    registry = Registry()
    apply_known(registry, changes.permission(replace(NONE, configure=configure)))
    may = registry.permissions.may
    assert may("shop", "configure", "mesh.permissions.shop") is allows
    # Nor a vhost: made on such a release it has no permissions, so any stream could be declared in it.
    reserved = ("mesh", "mesh.vhost.shop", "mesh.permissions", "xmesh.permissions.shop")
    for name in ("s", "", *reserved, "s\nmesh.permissions."):
        assert not may("shop", "configure", name)
    assert not [*registry.permissions.invalid_patterns()], (
        "which keeps the earliest ones from starting"
    )


@pytest.mark.parametrize("lost", [None, 0, 1])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_permission_is_what_was_set_last_whichever_copy_is_left(
    lost: int | None, snapshot: bool
) -> None:
    vhost, damaged = PlainVhost(), list[int]()
    for said in (
        SHOP,
        ADMIN,
        NONE,
        SHOP,
        PermissionDefinition(cluster="shop", read="x"),
        NONE,
        SHOP,
    ):
        before = vhost.store.end
        vhost.change(*changes.permission(said))
        vhost.commit()
        assert vhost.store.end - before == 2, "both changes in one record, twice"
        if lost is not None:
            damaged.append(before + lost)
        if snapshot:
            vhost.store.append_nowait(snapshot_of(vhost.vhost))
            vhost.commit()
        again = vhost.restarted(damaged).registry.permissions
        assert again.definitions() == vhost.registry.permissions.definitions()
    vhost.change([changes.PERMISSION_GONE, "shop"])
    vhost.commit()
    assert vhost.restarted(damaged).registry.permissions.definitions() == (ADMIN,)


def test_a_snapshot_without_a_permission_removes_it() -> None:
    """Also if the record that cleared it has been freed since."""
    vhost = PlainVhost()
    vhost.change(*changes.permission(ADMIN), *changes.permission(SHOP))
    kept: list[Change] = changes.permission(ADMIN)
    read_snapshot(vhost.registry, kept)
    assert vhost.registry.permissions.definitions() == (ADMIN,)
    vhost.change(*changes.permission(SHOP))
    read_snapshot(vhost.registry, [*kept, *changes.permission(SHOP)])
    assert vhost.registry.permissions.definitions() == (ADMIN, SHOP)
    for change in changes.permission(SHOP):
        assert changes.opposite(change) == [changes.PERMISSION_GONE, "shop"]


def test_a_permission_with_capture_of_a_later_release_allows_nothing() -> None:
    registry = Registry()
    for change in changes.permission(SHOP):
        registry.apply(change)
    later: dict[str, Any] = {**to_plain(SHOP), "peek": "s"}
    with pytest.raises(InvalidDefinition):
        registry.apply([changes.PERMISSION_WITH_CAPTURE, later])
    nothing = PermissionDefinition(cluster="shop", capture="")
    assert registry.permissions.definitions() == (nothing,)


def test_a_permission_of_a_later_release_in_a_snapshot_still_allows_nothing() -> None:
    """It is kept as two changes, of which the snapshot has one: removed, all might do everything."""
    registry, later = Registry(), [changes.PERMISSION, {"cluster": "shop", "peek": "s"}]
    with pytest.raises(InvalidDefinition):
        registry.apply(later)
    read_snapshot(registry, [later])
    assert registry.permissions.definitions() == (PermissionDefinition(cluster="shop", capture=""),)
    assert not registry.permissions.may("crm", "read", "jobs")
