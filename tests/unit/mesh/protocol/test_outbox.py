from __future__ import annotations

from collections.abc import Hashable

import pytest

from mesh.protocol.frame import DATA, MORE, RECORD_BYTES, Frame, Kind, pack_frame
from mesh.protocol.outbox import QUANTUM_BYTES, REQUESTS, Outbox, Record
from tests.machines import take_records

from .patterns_bench import Bench

CHUNK = 512
ROOM = 10_000


def make_outbox(limit: int = 1 << 20, chunk: int = CHUNK, reassembly: int = 1 << 20) -> Outbox:
    return Outbox(limit_bytes=limit, chunk_bytes=chunk, reassembly_bytes=reassembly)


def take(outbox: Outbox, limit: int = ROOM) -> list[tuple[int, int, bytes]]:
    """(id, flags, body) of the records of one frame."""
    parts, count = outbox.take(limit)
    frame = Frame(pack_frame(DATA, 1, 0, 0, count, parts))
    return [(ident, flags, bytes(frame.data[a:b])) for _, flags, ident, a, b in frame.records]


def idents(outbox: Outbox, limit: int = ROOM) -> list[int]:
    return [ident for ident, _, _ in take(outbox, limit)]


def fill(outbox: Outbox, flow: Hashable, *ids: int, size: int = 100) -> list[Record]:
    return [
        outbox.push(flow, Kind.REPLY, ident, bytes(size), label=ident, protected=False)
        for ident in ids
    ]


def drop(outbox: Outbox, flow: Hashable = "a") -> object:
    """The label of what was dropped, None when nothing could be."""
    record = outbox.drop_oldest(flow)
    return record and record.label


def test_empty_is_false_and_takes_nothing() -> None:
    outbox = make_outbox(limit=1000)
    assert not outbox
    assert outbox.take(ROOM) == ([], 0)
    assert (outbox.size_bytes, outbox.room_bytes) == (0, 1000)


def test_prefix_and_body_are_one_record() -> None:
    outbox = make_outbox()
    outbox.push("a", Kind.REPLY, 7, b"body", prefix=b"pre")
    assert outbox.size_bytes == RECORD_BYTES + 7
    assert take(outbox) == [(7, 0, b"prebody")]
    assert not outbox


@pytest.mark.parametrize("size", [CHUNK - 4, CHUNK - 3, CHUNK, 2 * CHUNK - 3, 2 * CHUNK, 5000])
def test_large_records_are_cut_into_whole_chunks(size: int) -> None:
    outbox = make_outbox()
    body = bytes(n % 251 for n in range(size))
    outbox.push("a", Kind.REPLY, 7, body, prefix=b"pre")
    pieces = take(outbox)
    assert b"".join(piece for _, _, piece in pieces) == b"pre" + body
    assert [len(piece) for _, _, piece in pieces[:-1]] == [CHUNK] * (len(pieces) - 1)
    assert 0 < len(pieces[-1][2]) <= CHUNK
    assert [flags for _, flags, _ in pieces] == [MORE] * (len(pieces) - 1) + [0]


def test_a_whole_record_is_not_cut() -> None:
    outbox = make_outbox()
    outbox.push_whole("a", Kind.BATCH, 7, [b"x" * 600, b"y" * 600], 1200)
    assert take(outbox) == [(7, 0, b"x" * 600 + b"y" * 600)]


def test_small_records_that_wait_are_joined_and_leave_each_as_it_is() -> None:
    """Found: a window of 2-byte parts was a hundred times as much memory."""
    outbox = make_outbox(chunk=1 << 16)
    bodies = [bytes([n % 251]) * (n % 5) for n in range(5000)]
    for n, body in enumerate(bodies):
        outbox.push_joined("a", Kind.TUNNEL_DATA, n, body)
    assert len(outbox._flows["a"].records) < 10
    assert outbox.size_bytes == sum(RECORD_BYTES + len(body) for body in bodies)
    found: list[tuple[int, int, bytes]] = []
    while outbox:
        found += take(outbox, 40_000)
    assert found == [(n, 0, body) for n, body in enumerate(bodies)]
    assert outbox.size_bytes == 0


def test_what_is_joined_keeps_its_place() -> None:
    outbox = make_outbox()
    for n in range(0, 9, 3):
        outbox.push_joined("a", Kind.TUNNEL_DATA, n, b"")
        outbox.push("a", Kind.TUNNEL_EOF, n + 1, b"")
        outbox.push_joined("a", Kind.TUNNEL_DATA, n + 2, bytes(CHUNK))
    assert idents(outbox) == [*range(9)]


def test_nothing_is_added_to_what_has_left_or_was_taken_back() -> None:
    outbox = make_outbox()
    outbox.push_joined("a", Kind.TUNNEL_DATA, 1, b"one")
    assert idents(outbox) == [1]
    outbox.push_joined("a", Kind.TUNNEL_DATA, 2, b"two")
    outbox.discard_all("a")
    assert (bool(outbox), outbox.size_bytes) == (False, 0)
    outbox.push_joined("a", Kind.TUNNEL_DATA, 3, b"three")
    assert take(outbox) == [(3, 0, b"three")]


@pytest.mark.parametrize("size", [0, 100, CHUNK - RECORD_BYTES, CHUNK, CHUNK + 1])
def test_what_is_joined_fits_a_frame(size: int) -> None:
    outbox = make_outbox()
    for n in range(20):
        outbox.push_joined("a", Kind.TUNNEL_DATA, n, bytes(size))
    while outbox:
        parts, _ = outbox.take(CHUNK + RECORD_BYTES)
        assert 0 < sum(map(len, parts)) <= CHUNK + RECORD_BYTES


class Leaving:
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_first_piece(self) -> None:
        self.told.append("begins")

    def on_last_piece(self) -> None:
        self.told.append("ends")


def test_an_owner_is_told_once_when_the_first_piece_leaves_and_the_last_one() -> None:
    outbox = make_outbox()
    large, small = Leaving(), Leaving()
    outbox.push("a", Kind.REPLY, 1, bytes(1200), owner=large)
    outbox.push("a", Kind.REPLY, 2, b"", owner=small)
    assert (large.told, small.told) == ([], [])
    take(outbox, CHUNK + RECORD_BYTES)
    assert (large.told, small.told) == (["begins"], [])
    take(outbox)
    assert large.told == small.told == ["begins", "ends"]


def test_a_frame_holds_what_fits_and_at_least_one_record() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, 2, 3)
    assert idents(outbox, 2 * (RECORD_BYTES + 100)) == [1, 2]
    fill(outbox, "a", 4)
    assert idents(outbox, 1) == [3]
    assert outbox.size_bytes == RECORD_BYTES + 100


def test_flows_take_turns_a_quantum_each() -> None:
    outbox = make_outbox(limit=1 << 24, chunk=1 << 16)
    size = QUANTUM_BYTES // 4 - RECORD_BYTES
    fill(outbox, "a", *range(10), size=size)
    fill(outbox, "b", *range(100, 110), size=size)
    fill(outbox, "c", 200, size=size)
    assert idents(outbox, 1 << 24) == [
        *range(4), *range(100, 104), 200, *range(4, 8), *range(104, 108), 8, 9, 108, 109,
    ]  # fmt: skip


def test_a_flow_that_just_did_not_fit_is_first_in_the_next_frame() -> None:
    """Found: it went to the back, and a chunk that never just fits was never sent at all."""
    outbox = make_outbox(limit=1 << 24, chunk=QUANTUM_BYTES)
    small = QUANTUM_BYTES // 4 - RECORD_BYTES
    for flow in ("a", "b", "c"):
        fill(outbox, flow, *range(100), size=small)
    fill(outbox, "large", 1000, size=QUANTUM_BYTES)
    limit = 4 * QUANTUM_BYTES
    assert 1000 not in idents(outbox, limit)
    assert idents(outbox, limit)[0] == 1000


def test_a_flow_that_had_its_turn_goes_to_the_back_when_the_frame_is_full() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, 2, 3, 4)
    fill(outbox, "b", 10)
    assert idents(outbox, 2 * (RECORD_BYTES + 100)) == [1, 2]
    assert idents(outbox) == [10, 3, 4]


# Discarding


def test_discard_takes_out_one_record_and_no_others() -> None:
    outbox = make_outbox()
    one, two, _ = fill(outbox, "a", 1, 2, 3)
    fill(outbox, "b", 1)
    assert outbox.discard(two)
    assert not outbox.discard(two)
    assert outbox.size_bytes == 3 * (RECORD_BYTES + 100)
    assert idents(outbox) == [1, 3, 1]
    assert not outbox.discard(one), "it has left"
    assert not outbox
    assert outbox.size_bytes == 0


def test_discard_all_of_a_flow() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, size=1200)
    fill(outbox, "a", 2, 3)
    fill(outbox, "b", 10)
    take(outbox, CHUNK)
    outbox.discard_all("a")
    outbox.discard_all("unknown")
    assert idents(outbox) == [10, 1, 1]
    assert outbox.size_bytes == 0


def test_what_was_taken_back_takes_no_memory() -> None:
    """Found: cancelled requests to a member that stands still, one after another, for ever."""
    outbox = make_outbox()
    fill(outbox, "a", 0)
    for n in range(1, 1000):
        outbox.discard(fill(outbox, "a", n)[0])
    assert len(outbox._flows["a"].records) < 100
    assert idents(outbox) == [0]


def test_each_flow_has_the_limit_for_itself_and_one_record_always_fits() -> None:
    outbox = make_outbox(limit=100)
    assert outbox.has_room("a", 1000), "alone, whatever its size"
    outbox.push("a", 1, 1, bytes(100 - RECORD_BYTES - 30))
    assert outbox.has_room("a", 30)
    assert not outbox.has_room("a", 31)
    assert outbox.has_room("b", 1000)


def test_a_small_reply_is_not_delayed_by_the_pieces_of_a_large_one() -> None:
    """Found: small requests took 40 ms instead of 0.5 beside replies of 15 MiB."""
    outbox = make_outbox(chunk=QUANTUM_BYTES)
    outbox.push_unordered(Kind.REPLY, 1, bytes(4 * QUANTUM_BYTES), prefix=b"large")
    frame_bytes = QUANTUM_BYTES + 200
    assert idents(outbox, frame_bytes) == [1]
    outbox.push_unordered(Kind.REPLY, 2, b"", prefix=b"small")
    outbox.push_unordered(Kind.REPLY, 3, b"", prefix=b"small")
    assert idents(outbox, frame_bytes) == [1, 2, 3]
    assert idents(outbox, 4 * frame_bytes) == [1, 1, 1]


def test_a_small_broadcast_does_not_wait_for_the_pieces_of_a_large_one() -> None:
    """Found: it did, and so did small requests, which share the flow."""
    bench = Bench()
    for size in (4 * bench.link.outbox.chunk_bytes, 1):
        assert bench.patterns.broadcast("shop", "flush", bytes(size)) == 1
    small, large = take_records(bench.link)
    assert len(small[2]) < 100 < len(large[2])


def test_large_requests_share_the_limit_of_the_small_ones() -> None:
    outbox = make_outbox(limit=4 * CHUNK)
    record = outbox.push_unordered(Kind.REQUEST, 1, bytes(3 * CHUNK), prefix=b"")
    assert outbox.has_room(REQUESTS, 100)
    assert not outbox.has_room(REQUESTS, CHUNK)
    assert outbox.discard(record)
    assert outbox.has_room(REQUESTS, 5 * CHUNK)
    assert (bool(outbox), outbox.size_bytes) == (False, 0)


def test_discarding_the_last_record_empties_the_outbox() -> None:
    outbox = make_outbox()
    (record,) = fill(outbox, "a", 1, size=2000)
    assert outbox.discard(record)
    assert not outbox
    assert outbox.size_bytes == 0


def test_a_begun_record_is_completed_though_it_is_discarded() -> None:
    outbox = make_outbox()
    one, _, three = fill(outbox, "a", 1, 2, 3, size=1200)
    assert take(outbox, CHUNK)[0][:2] == (1, MORE)
    assert not outbox.discard(one)
    assert outbox.discard(three)
    assert [(ident, flags) for ident, flags, _ in take(outbox)] == [
        (1, MORE), (1, 0), (2, MORE), (2, MORE), (2, 0),
    ]  # fmt: skip


# Records in pieces


def test_unfinished_records_stay_within_what_the_peer_puts_together() -> None:
    """Found: parts of a hundred tunnels, a piece of each in turn, cost the link."""
    outbox = make_outbox(chunk=CHUNK, reassembly=5000)
    for flow in range(10):
        fill(outbox, flow, flow, size=2000)
    fill(outbox, "small", 99)
    unfinished: dict[int, int] = {}
    most, order = 0, []
    while outbox:
        for ident, flags, piece in take(outbox, CHUNK):
            order.append(ident)
            unfinished[ident] = unfinished.get(ident, 0) + len(piece)
            if not flags & MORE:
                del unfinished[ident]
            most = max(most, sum(unfinished.values()))
    assert 2000 < most <= 5000
    assert order.index(99) < 12, "small records pass those that have to wait"
    assert not unfinished


def test_a_large_record_waits_for_those_that_have_begun_and_for_no_others() -> None:
    """Found: two large topics took turns, and a large request behind them never left."""
    outbox = make_outbox(chunk=CHUNK, reassembly=3000)
    fill(outbox, "a", *range(10, 20), size=1300)
    fill(outbox, "b", *range(20, 30), size=1300)
    fill(outbox, "c", 1, size=2500)
    ends: list[int] = []
    while 1 not in ends:
        ends += [ident for ident, flags, _ in take(outbox, 600) if not flags & MORE]
    assert len(ends) < 8, ends
    while outbox:
        take(outbox, 600)


def test_what_goes_first_goes_before_all_of_its_flow() -> None:
    outbox = make_outbox()
    fill(outbox, "b", 10)
    fill(outbox, "a", 1, 2)
    outbox.push_first("a", Kind.BATCH, 99, b"first")
    outbox.push_first("c", Kind.BATCH, 98, b"alone")
    assert drop(outbox) == 1, "it is not one to be dropped"
    assert idents(outbox) == [10, 99, 2, 98]
    assert outbox.size_bytes == 0


def test_a_record_larger_than_all_of_that_goes_alone() -> None:
    outbox = make_outbox(reassembly=1000)
    fill(outbox, "a", 1, size=3000)
    fill(outbox, "b", 2, size=3000)
    ends = [ident for ident, flags, _ in take(outbox) if not flags & MORE]
    assert ends == [1, 2]


# Dropping


def test_drop_oldest_takes_one_whole_record_and_names_it() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, size=2000)
    fill(outbox, "a", 2, 3)
    assert drop(outbox) == 1
    assert outbox.size_bytes == 2 * (RECORD_BYTES + 100)
    assert drop(outbox) == 2
    assert idents(outbox) == [3]
    assert drop(outbox) is None


def test_drop_oldest_of_the_last_record_empties_the_outbox() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1)
    assert drop(outbox) == 1
    assert not outbox
    assert outbox.size_bytes == 0


def test_drop_oldest_passes_over_what_has_begun() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, size=1200)
    fill(outbox, "a", 2, 3)
    take(outbox, CHUNK)
    assert drop(outbox) == 2
    assert drop(outbox) == 3
    assert drop(outbox) is None
    assert [(ident, flags) for ident, flags, _ in take(outbox)] == [(1, MORE), (1, 0)]


def test_drop_oldest_passes_over_what_stays() -> None:
    outbox = make_outbox()
    outbox.push("a", Kind.REPLY, 1, bytes(1200), label=1)
    outbox.push_whole("a", Kind.REPLY, 2, [b"x"], 1, label=2)
    fill(outbox, "a", 3, 4)
    assert drop(outbox) == 3
    assert [ident for ident, _, _ in take(outbox)] == [1, 1, 1, 2, 4]


def test_many_drops_before_what_stays_take_no_memory() -> None:
    outbox = make_outbox()
    outbox.push("a", Kind.REPLY, 0, b"stays")
    for n in range(1, 1000):
        fill(outbox, "a", n)
        assert drop(outbox) == n
    assert len(outbox._flows["a"].records) < 100
    assert idents(outbox) == [0]
