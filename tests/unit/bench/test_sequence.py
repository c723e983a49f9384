"""What was lost, doubled, out of order or damaged is found, and nothing else is reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sequence import Follower, Ring, Tally


def test_all_in_order_is_clean() -> None:
    tally = Tally()
    for sequence in range(10):
        tally.add(sequence)
    assert tally.report(10) == {"received": 10, "lost": 0, "duplicated": 0, "reordered": 0}


@pytest.mark.parametrize(
    ("ranges", "sent", "report"),
    [
        ([(0, 3), (5, 8)], 10, {"received": 6, "lost": 4, "duplicated": 0, "reordered": 0}),
        ([(0, 5), (3, 5)], 7, {"received": 7, "lost": 2, "duplicated": 2, "reordered": 0}),
    ],
    ids=["what never came", "what came twice hides no loss"],
)
def test_what_is_missing_and_what_came_twice(
    ranges: list[tuple[int, int]], sent: int, report: dict[str, int]
) -> None:
    tally = Tally()
    for start, end in ranges:
        tally.add_range(start, end)
    assert tally.report(sent) == report


def test_what_came_late_is_reordered_not_lost() -> None:
    tally = Tally()
    for sequence in (0, 2, 3, 1):
        tally.add(sequence)
    assert tally.report(4) == {"received": 4, "lost": 0, "duplicated": 0, "reordered": 1}


def test_nothing_received_is_all_lost() -> None:
    assert Tally().lost(5) == 5


@given(st.lists(st.integers(0, 40)), st.integers(0, 50))
def test_tally_agrees_with_a_dumb_version(arrivals: list[int], sent: int) -> None:
    """Oracle: sets of numbers."""
    tally = Tally()
    for sequence in arrivals:
        tally.add(sequence)
    assert tally.lost(sent) == len(set(range(sent)) - set(arrivals))
    assert tally.duplicated == len(arrivals) - len(set(arrivals))
    late = [
        sequence
        for place, sequence in enumerate(arrivals)
        if sequence not in arrivals[:place] and any(seen > sequence for seen in arrivals[:place])
    ]
    assert tally.reordered == len(late)


def test_ring_payloads_are_distinct_sized_and_the_same_in_every_process() -> None:
    ring = Ring(32, 8)
    assert len(set(ring.payloads)) == 8
    assert {len(payload) for payload in ring.payloads} == {32}
    assert ring.payloads == Ring(32, 8).payloads


@given(st.integers(0, 100), st.integers(0, 30))
def test_ring_slice_goes_round(start: int, count: int) -> None:
    ring = Ring(8, 8)
    assert ring.slice(start, count) == [
        ring.payloads[sequence % 8] for sequence in range(start, start + count)
    ]


def followed(ring: Ring, sequences: list[int], sent: int, chunk: int = 3) -> dict[str, int]:
    follower = Follower(ring)
    payloads = [ring.payloads[sequence % ring.count] for sequence in sequences]
    for start in range(0, len(payloads), chunk):
        follower.take(payloads[start : start + chunk])
    return follower.report(sent)


CLEAN = {"lost": 0, "duplicated": 0, "reordered": 0, "damaged": 0}


def test_follower_is_clean_over_several_rounds_of_the_ring() -> None:
    assert followed(Ring(16, 8), list(range(50)), 50) == {"received": 50, **CLEAN}


def test_follower_finds_a_gap_across_the_ring_seam() -> None:
    sequences = [*range(7), *range(10, 30)]
    assert followed(Ring(16, 8), sequences, 30) == {"received": 27, **CLEAN, "lost": 3}


def test_follower_finds_a_duplicate() -> None:
    sequences = [*range(12), 11, *range(12, 20)]
    assert followed(Ring(16, 8), sequences, 20) == {"received": 21, **CLEAN, "duplicated": 1}


def test_follower_finds_a_swap() -> None:
    sequences = [*range(10), 11, 10, *range(12, 20)]
    assert followed(Ring(16, 8), sequences, 20) == {"received": 20, **CLEAN, "reordered": 1}


def test_follower_finds_a_lost_tail() -> None:
    assert followed(Ring(16, 8), list(range(15)), 20) == {"received": 15, **CLEAN, "lost": 5}


def test_follower_counts_loss_of_a_whole_ring_at_its_true_size() -> None:
    """Eight of eight missing look like none missing, until the end is compared."""
    sequences = [*range(8), *range(16, 24)]
    assert followed(Ring(16, 8), sequences, 24)["lost"] == 8


def test_follower_finds_damage() -> None:
    ring, damaged = Ring(16, 8), bytearray(Ring(16, 8).payloads[1])
    damaged[-1] ^= 1
    follower = Follower(ring)
    follower.take([ring.payloads[0], bytes(damaged), ring.payloads[2], b"\xff" * 16, b""])
    assert follower.report(3) == {
        "received": 2, "lost": 1, "duplicated": 0, "reordered": 0, "damaged": 3,
    }  # fmt: skip
    assert follower.received == 5


@given(st.integers(0, 60), st.sets(st.integers(0, 59)), st.integers(1, 7))
def test_follower_finds_scattered_losses_exactly(sent: int, missing: set[int], chunk: int) -> None:
    """As long as fewer than half a ring is missing at once."""
    ring = Ring(8, 200)
    sequences = [sequence for sequence in range(sent) if sequence not in missing]
    report = followed(ring, sequences, sent, chunk)
    assert report == {"received": len(sequences), **CLEAN, "lost": sent - len(sequences)}


def test_strands_of_a_ring_follow_one_topic_each() -> None:
    """Topics in turn: messages of different topics may overtake each other, of one they may not."""
    ring, topics, sent = Ring(8, 12), 3, 50
    for first in range(topics):
        strand = ring.strand(first, topics)
        sequences = range(first, sent, topics)
        follower = Follower(strand)
        follower.take([ring.payloads[sequence % ring.count] for sequence in sequences])
        assert follower.report(len(sequences)) == {"received": len(sequences), **CLEAN}
        follower.take([ring.payloads[(first + 1) % topics]])
        assert follower.damaged == 1  # Another topic's message is none of this one's.


def test_strands_of_several_in_a_row() -> None:
    ring = Ring(8, 12)
    assert ring.strand(1, 2, in_row=3).payloads == [*ring.payloads[3:6], *ring.payloads[9:12]]
