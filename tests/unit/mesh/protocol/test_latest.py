"""A mapping that keeps its latest entries only."""

from __future__ import annotations

from mesh.protocol.latest import Latest


def test_the_oldest_entry_makes_room() -> None:
    latest: Latest[str, int] = Latest(3)
    for at, key in enumerate("abcd"):
        latest[key] = at
    assert latest == {"b": 1, "c": 2, "d": 3}


def test_an_entry_set_or_moved_again_is_the_latest() -> None:
    latest: Latest[str, int] = Latest(3)
    for at, key in enumerate("abca"):
        latest[key] = at
    latest.move_to_end("b")
    latest["d"] = 4
    assert list(latest.items()) == [("a", 3), ("b", 1), ("d", 4)]
    del latest["a"]
    latest["e"] = 5
    assert list(latest) == ["b", "d", "e"], "an entry that was removed takes no room"
