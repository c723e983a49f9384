"""What is declared, beside what `Replay` tests of it."""

from __future__ import annotations

from durable.definition_forms import to_plain
from durable.definitions import StreamDefinition
from durable.vhost import changes
from durable.vhost.registry import Registry


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
