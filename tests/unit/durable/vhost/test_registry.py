"""What is declared, beside what `Replay` tests of it."""

from __future__ import annotations

import pytest

from durable.definition_forms import to_plain
from durable.definitions import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import InvalidDefinition
from durable.vhost import changes
from durable.vhost.changes import Change
from durable.vhost.registry import Registry


def declaring(registry: Registry, name: str, *, exclusive: bool = False) -> Change:
    queue = QueueDefinition(name=name, exclusive=exclusive)
    return [changes.QUEUE, registry.new_lanes(queue), to_plain(queue)]


def binding(word: str, exchange: str, queue: str) -> Change:
    return [word, to_plain(BindingDefinition(exchange=exchange, destination=queue))]


def test_patterns_are_known_without_asking_every_stream() -> None:
    """Whoever declares a stream asks for them: 10,000 streams took 40 s of nothing else."""
    registry = Registry()
    there = registry.patterns
    for lane, patterns in enumerate((("a.>", "b"), ("b", "c")), 1):
        plain = to_plain(StreamDefinition(name=f"s{lane}", patterns=patterns))
        registry.apply([changes.STREAM, lane, plain])
        registry.apply([changes.STREAM, lane, plain])  # As at recovery.
    assert there == {"a.>": 1, "b": 2, "c": 1}
    registry.apply([changes.STREAM_GONE, "s1"])
    registry.apply([changes.STREAM_GONE, "s1"])
    assert there == {"b": 1, "c": 1}
    registry.apply([changes.STREAM_GONE, "s2"])
    assert not there


@pytest.mark.parametrize("exclusive", [True, False])
def test_what_ends_with_the_broker_stands_in_no_log(exclusive: bool) -> None:
    registry = Registry()
    queue = declaring(registry, "q", exclusive=exclusive)
    assert registry.logged_changes([queue]) == ([] if exclusive else [queue])
    registry.apply(queue)
    bound, unbound = (binding(word, "amq.direct", "q") for word in (changes.BIND, changes.UNBIND))
    wanted = [queue, bound, unbound, [changes.QUEUE_GONE, "q"]]
    assert registry.logged_changes(wanted) == ([] if exclusive else wanted)


def test_an_exchange_that_ends_with_its_bindings_keeps_those_of_transient_queues() -> None:
    registry = Registry()
    queue = declaring(registry, "q", exclusive=True)
    exchange = ExchangeDefinition(name="x", auto_delete=True)
    declared = [changes.EXCHANGE, to_plain(exchange)]
    bound, gone = binding(changes.BIND, "x", "q"), [changes.QUEUE_GONE, "q"]
    for change, lasts in ((declared, True), (queue, False), (bound, True)):
        assert registry.logged_changes([change]) == ([change] if lasts else [])
        registry.apply(change)
    unbound = binding(changes.UNBIND, "x", "q")
    assert registry.logged_changes([bound, unbound, gone]) == [bound, unbound, gone]


def test_a_permission_of_a_later_release_allows_nothing_and_not_everything() -> None:
    """Found by reading: it was left out, so its cluster kept what it had been allowed before; and where it
    was the only one, everybody might do everything."""
    before, later = {"cluster": "web", "read": "jobs"}, {"cluster": "web", "peek": "jobs"}
    for first in ([before], []):
        registry = Registry()
        for said in first:
            registry.apply([changes.PERMISSION, said])
        with pytest.raises(InvalidDefinition):  # Which `Replay` tells.
            registry.apply([changes.PERMISSION, later])
        for cluster in ("web", "db"):
            assert not registry.permissions.may(cluster, "read", "jobs")


FIELDS_BEFORE = len([changes.CURSOR, "stream", "cursor", 5])


def test_releases_that_do_not_know_what_readers_were_told_have_their_cursors() -> None:
    """Found: to them the whole change made no sense, so after a downgrade a cursor was where it had been before,
    or nowhere. Of a stream with a single gap, every one."""
    stream = [changes.STREAM, 1, to_plain(StreamDefinition(name="s"))]
    registry, before = Registry(), Registry()
    for one in (registry, before):
        one.apply(stream)
    for change in changes.cursor("s", "c", 5, reported=3):
        registry.apply(change)
    assert registry.stream("s").reported_missing == {"c": 3}
    for written in (changes.cursor("s", "c", 5, reported=3), list(registry.cursors())):
        for change in written:
            if len(change) == FIELDS_BEFORE:  # The others they log and pass over.
                before.apply(change)
        assert before.stream("s").cursors == {"c": 5}
        before.apply([changes.CURSOR, "s", "c", None])
