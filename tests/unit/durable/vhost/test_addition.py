"""Declared all at once it is what it is one by one, to those who are there and after a restart."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from durable.definition_forms import to_plain
from durable.definitions import (
    MEMORY,
    BindingDefinition,
    Definition,
    Definitions,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.vhost import changes
from durable.vhost.addition import Addition, build_addition
from durable.vhost.changes import Change
from durable.vhost.registry import Registry
from tests.vhosts import PlainVhost

EXCHANGES = [
    ExchangeDefinition(name=f"{kind}{'-' * ends}", type=kind, auto_delete=ends)
    for kind, ends in product(("direct", "fanout", "topic", "headers"), (False, True))
]
QUEUES = [
    QueueDefinition(name="disk", expires_s=1.0), QueueDefinition(name="prior", max_priority=2),
    QueueDefinition(name="held", durability=MEMORY, expires_s=9.0),
    QueueDefinition(name="other", durability=MEMORY),
]  # fmt: skip
STREAMS = [StreamDefinition(name=f"s{n}", patterns=("t.>", f"t.{n}")[n:]) for n in range(3)]
PERMISSIONS = [
    PermissionDefinition(cluster=one, configure="c.*", capture=capture)
    for one, capture in (("c", ".*"), ("d", "t.*"))
]
BINDINGS = [
    BindingDefinition(exchange=exchange.name, destination=to, key=key, to_exchange=to == "fanout")
    for exchange, to, key in product(EXCHANGES, ("disk", "held", "s0", "fanout"), ("a", "#"))
]
ALL: list[Definition] = [*EXCHANGES, *QUEUES, *STREAMS, *PERMISSIONS, *BINDINGS]
WORDS = {"exchange": changes.EXCHANGE, "binding": changes.BIND}
KEYS = ("a", "b")
IN_MEMORY = Definitions(queues=(QueueDefinition(name="q", durability=MEMORY),))


def declaring(registry: Registry, one: Definition) -> list[Change]:
    """One by one, as a client declares it."""
    if isinstance(one, QueueDefinition):
        return [[changes.QUEUE, registry.new_lanes(one), to_plain(one)]]
    if isinstance(one, StreamDefinition):
        return [[changes.STREAM, *registry.new_lanes(one), to_plain(one)]]
    if isinstance(one, PermissionDefinition):
        return changes.permission(one)
    return [[WORDS[one.kind], to_plain(one)]]


def grouped(some: list[Definition]) -> Definitions:
    def of(kind: type) -> tuple[Any, ...]:
        return tuple(one for one in some if isinstance(one, kind))

    return Definitions(
        exchanges=of(ExchangeDefinition), queues=of(QueueDefinition), streams=of(StreamDefinition),
        bindings=of(BindingDefinition), permissions=of(PermissionDefinition),
    )  # fmt: skip


def told(there: PlainVhost) -> dict[str, Any]:
    """All that anybody may learn of what is declared, lane ids and order included."""
    registry, router = there.registry, there.registry.router
    exchanges, bindings = router.definitions()
    names = [one.name for one in exchanges] + ["amq.topic"]
    return {
        "declared": list(registry.declared()), "exchanges": exchanges, "bindings": bindings,
        "queues": {
            name: one.definition.expires_s and one.idle_since_us()
            for name, one in registry.queues.items()
        },
        "lanes": {id_: lane._logged for id_, lane in registry.lanes.items()},
        "owners": {lane: one.name for lane, one in registry.owners.items()},
        "to": {name: router.bindings_to(name) for name in (*registry.queues, *registry.streams)},
        "to exchanges": [router.bindings_to(name, is_exchange=True) for name in names],
        "routes": {
            (name, key): router.route(name, (key,), {}) for name, key in product(names, KEYS)
        },
        "captured": {
            topic: sorted(one.name for one in registry.captures.match(topic))
            for topic in ("t.0", "t.1", "t.2", "u")
        },
        "patterns": registry.patterns,
        "permissions": registry.permissions.definitions(),
        "may": registry.permissions.may("c", "configure", "c1"),
        "next": (registry.next_lane, registry._next_transient),
    }  # fmt: skip


@given(st.data())
def test_all_at_once_it_is_what_it_is_one_by_one(data: st.DataObject) -> None:
    needed = [one for one in ALL if not isinstance(one, BindingDefinition)]
    before = data.draw(st.sets(st.sampled_from(range(len(needed)))))
    bound = data.draw(st.lists(st.sampled_from(BINDINGS), unique=True))
    early = data.draw(st.integers(0, len(bound)))
    first: list[Definition] = [needed[at] for at in sorted(before)]
    names = {getattr(one, "name", "") for one in first}
    those = [one for one in bound[:early] if {one.exchange, one.destination} <= names]
    first += those
    new = [one for one in needed if one not in first] + [one for one in bound if one not in those]

    whole, single = PlainVhost(), PlainVhost()
    for there in (whole, single):
        for one in first:
            there.change(*declaring(there.registry, one))
    routed = told(whole)
    steps = build_addition(whole.registry, grouped(new))
    while True:
        try:
            next(steps)
        except StopIteration as done:
            addition = done.value
            break
        assert {**told(whole), "next": 0} == {**routed, "next": 0}, "nobody sees half of it"
    whole.vhost.extend(addition, 7)
    for one in new:
        single.vhost.change(declaring(single.registry, one), 7)
    assert told(whole) == told(single)
    for there in (whole, single):
        there.commit()
    assert told(whole.restarted()) == told(single.restarted())


def made(registry: Registry, new: Definitions) -> Addition:
    steps = build_addition(registry, new)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Addition = done.value
            return found


def test_nothing_that_lasts_takes_no_record() -> None:
    there = PlainVhost()
    end = there.store.end
    there.vhost.extend(made(there.registry, IN_MEMORY), 0)
    assert there.store.end == end
    assert list(there.registry.queues) == ["q"]


def test_nothing_that_lasts_waits_for_what_it_found_there() -> None:
    """Found: an import of which only memory queues were new was answered before the rest of it was on disk, which
    another client was just declaring."""
    there = PlainVhost()
    there.change(*declaring(there.registry, QUEUES[0]))
    position = there.vhost.extend(made(there.registry, IN_MEMORY), 0)
    assert there.store.durable_end <= position == there.store.end - 1
