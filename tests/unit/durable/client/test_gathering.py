"""What waits to be packed is counted right, whatever way it came and however much of it has left."""

from __future__ import annotations

from durable.client.gathering import PER_MESSAGE_BYTES, Gathering

PUBLISHER = bytes(16)


def gathered(*keys: str) -> Gathering:
    gathering = Gathering(1000)
    for key in keys:
        gathering.add("", key, b"properties", b"x" * 92, None)
    return gathering


def counts(gathering: Gathering) -> tuple[int, int]:
    return gathering.count, gathering.size_bytes


def test_counts_follow_what_is_added_and_packed() -> None:
    each = 92 + PER_MESSAGE_BYTES
    gathering = gathered("a", "b", "b", "a")
    assert counts(gathering) == (4, 4 * each)
    gathering.last.payloads.append(b"x" * 92)  # As the publisher's hot path does.
    gathering.last.size_bytes += each
    assert counts(gathering) == (5, 5 * each)
    _, packed = gathering.pack(PUBLISHER, 1, 0, 0, part_bytes_max=400)
    assert packed == 1
    assert counts(gathering) == (4, 4 * each)
    gathering.add("", "c", b"properties", b"x" * 92, None)
    assert counts(gathering) == (5, 5 * each)
    _, packed = gathering.pack(PUBLISHER, 1, 1, 0, part_bytes_max=1 << 20)
    assert packed == 5
    assert counts(gathering) == (0, 0)
    assert not gathering


def test_keys_in_turn_leave_in_one_part() -> None:
    gathering = gathered(*"abcabcabc")
    assert gathering.pack(PUBLISHER, 1, 0, 0, part_bytes_max=1 << 20)[1] == 9
