"""Batches and groups that settled messages are cut out of, against plain lists of messages."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from durable.protocol.properties import Properties, encode_properties
from durable.vhost.cutting import CUT_RATIO_MAX, cut_ranges, cut_settled
from durable.vhost.groups import GroupStretch, batches_in, encode_group, is_group, read_front
from mesh.protocol.batch import LOST, Batch, batch_pieces
from tests.logs import PUBLISHER, following

bodies = st.lists(st.integers(0, 400).map(bytes), min_size=1, max_size=30)
parts = st.lists(
    st.tuples(st.sampled_from([b"", b"a", b"b.c"]), bodies, st.booleans()), min_size=1, max_size=8
)
Message = tuple[str, bytes, bytes, int]


@st.composite
def stored(draw: st.DrawFn) -> bytes:
    """A batch, or a group, spread or not."""
    some = [
        (key, payloads, [b"\x80"] * len(payloads) if headers else None)
        for key, payloads, headers in draw(parts)
    ]
    holes = draw(st.lists(st.sampled_from([0, 0, 7]), min_size=len(some), max_size=len(some)))
    batches = following(some, 5, holes=holes)
    if len(batches) == 1:
        return batches[0].raw()
    stretch = draw(st.one_of(st.none(), st.just(GroupStretch(3, 0, 9))))
    return encode_group(batches, draw(st.one_of(st.none(), st.just(77))), stretch, 4)


def messages(body: bytes) -> list[Message | None]:
    """Topic, payload, headers and sequence of each; None: it is cut out."""
    count = read_front(body).messages if is_group(body) else Batch(body).count
    found: list[Message | None] = []
    for batch, first in batches_in(body, 0, 0, count):
        assert first == len(found)
        if batch.kind == LOST:
            found += [None] * batch.count
            continue
        headers = batch.message_headers() or [b""] * batch.count
        sequences = range(batch.base_sequence, batch.next_sequence)
        topics = [batch.topic] * batch.count
        found += zip(topics, batch.payloads, headers, sequences, strict=True)
    return found


@given(stored(), st.lists(st.lists(st.integers(0, 240)), min_size=1, max_size=3))
def test_who_is_not_settled_stays_where_it_was(body: bytes, settlements: list[list[int]]) -> None:
    """However often a body is cut."""
    whole, done = messages(body), set[int]()
    before = read_front(body) if is_group(body) else None
    for some in settlements:
        done |= {one for one in some if one < len(whole)}
        ranges = [(at, at + 1) for at in sorted(done)]
        cut = cut_settled(body, ranges, captured=False)
        if cut is None:
            continue
        assert len(cut) <= CUT_RATIO_MAX * len(body)
        body, left = cut, messages(cut)
        assert len(left) == len(whole)
        gone = {at for low, high in cut_ranges(cut) for at in range(low, high)}
        assert gone == {at for at, one in enumerate(left) if one is None}
        assert gone <= done
        assert all(one is None or one == whole[at] for at, one in enumerate(left))
        front = read_front(cut)
        if before is not None:
            assert front == before._replace(batches=front.batches)


@given(st.integers(2, 300), st.data())
def test_of_large_messages_only_those_are_left_that_are_needed(
    count: int, data: st.DataObject
) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=max(1, count // 2)))
    shared = encode_properties(Properties("x", ttl_us=5))
    pieces, _ = batch_pieces(PUBLISHER, 3, 9, 0, b"t", [bytes(500)] * count, shared_headers=shared)
    batch = Batch(b"".join(pieces))
    edges = [-1, *sorted(needed), count]
    settled = [(low + 1, high) for low, high in pairwise(edges) if low + 1 < high]
    cut = cut_settled(batch.raw(), settled, captured=False)
    assert cut is not None or count <= 2
    if cut is not None:
        assert cut_ranges(cut) == settled
        front = read_front(cut)
        assert (front.messages, front.bodies_bytes, front.ttl_us) == (count, 500 * count, 5)
        captured = cut_settled(batch.raw(), settled, captured=True)
        assert captured is not None
        assert read_front(captured).ttl_us is None


def test_what_no_group_can_say_stays_whole() -> None:
    """Found: it ended the broker. The last piece is farther from the first message than a group has numbers for."""
    holes = [0, 2**32 - 11]
    batches = following([(b"a", [bytes(9)], None), (b"a", [bytes(500)] * 20, None)], 0, holes=holes)
    body = encode_group(batches, None)
    assert cut_settled(body, [(0, 20)], captured=False) is None
    assert cut_settled(body, [(0, 9)], captured=False) is not None
